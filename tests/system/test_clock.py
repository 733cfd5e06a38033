"""The clock of a call starts when the call starts, covers all of it, and runs while the host cannot."""

import contextlib
import ctypes
import math
import os
import signal
import time
from pathlib import Path

import pytest

import census
import stage
import tasks
from killpool import Cause, Pool, TaskTimeout
from killpool.spec import Contain

pytestmark = pytest.mark.timeout(120)


def test_time_in_the_queue_is_not_charged(tier: Contain) -> None:
    with Pool(1, contain=tier, timeout=1.5) as pool:
        futures = [pool.submit(tasks.spin, 0.5) for _ in range(5)]  # the last waits for 2 s
        assert [f.outcome(60).cause for f in futures] == [Cause.OK] * 5


def test_start_up_is_not_charged() -> None:
    with Pool(1, initializer=tasks.spin, initargs=(1.0,), timeout=0.5) as pool:
        assert pool.submit(tasks.add, 1, 2).outcome(60).value == 3


def test_the_first_import_of_a_function_is_not_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        "import tasks\ntasks.spin(1.0)\nfrom tasks import add\ndef f(): return 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with Pool(1, timeout=0.5) as pool:
        import slow_to_import  # type: ignore[import-not-found]  # noqa: PLC0415

        assert pool.submit(slow_to_import.f).outcome(60).value == 5


def test_pickling_of_the_result_is_charged(tier: Contain) -> None:
    mark = census.new_mark()
    with Pool(1, contain=tier) as pool:
        future = pool.schedule(tasks.slow_result, (mark,), timeout=1.0)
        assert len(census.wait_for(1, mark)) == 1
        outcome = future.outcome(60)
        assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.TIMEOUT, 0, [])
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_unpickling_of_the_arguments_is_charged(tier: Contain) -> None:
    mark = census.new_mark()
    with Pool(1, contain=tier) as pool:
        future = pool.schedule(tasks.echo, (tasks.SlowToUnpickle(mark),), timeout=1.0)
        assert len(census.wait_for(1, mark)) == 1
        outcome = future.outcome(60)
        assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.TIMEOUT, 0, [])
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_the_stack_at_the_deadline_names_the_function_that_ran() -> None:
    with Pool(1) as pool:
        stacks = [pool.schedule(tasks.in_big_power, (census.new_mark(),), timeout=0.5).outcome(60).stack for _ in "ab"]
        assert any("in in_big_power" in stack for stack in stacks)  # best effort


def test_deadlines_are_kept_while_the_host_holds_its_gil_for_five_seconds() -> None:
    with contextlib.ExitStack() as stack:
        tiers = [t for t in ("auto", "walk", "pidns") if not stage.OWN.refusal(t)]
        pools = [stack.enter_context(Pool(1, contain=tier)) for tier in tiers]  # type: ignore[arg-type]
        for pool in pools:
            pool.submit(tasks.add, 1, 2).result(30)
        marks = [census.new_mark() for _ in pools]
        futures = [p.schedule(tasks.daemon, (m,), timeout=2.0) for p, m in zip(pools, marks, strict=True)]
        assert [len(census.wait_for(2, mark)) for mark in marks] == [2] * len(pools)
        started = time.monotonic()
        ctypes.PyDLL(None).usleep(5_000_000)
        assert time.monotonic() - started >= 5.0
        # Nobody else in this process could run meanwhile: what is dead at once was killed by the supervisor.
        assert [census.find(mark) for mark in marks] == [[]] * len(pools)
        outcomes = [future.outcome(60) for future in futures]
        assert [o.cause for o in outcomes] == [Cause.TIMEOUT] * len(pools)
        assert [o.kill_latency is not None and o.kill_latency < 1.0 for o in outcomes] == [True] * len(pools)
        assert [o.usage.wall < 4.0 for o in outcomes] == [True] * len(pools)


_STOPPED_HOST = """
import json, os, sys, census, tasks
from killpool import Pool
mark = os.environ['MARK']
with Pool(1, contain=sys.argv[1]) as pool:
    pool.submit(tasks.add, 1, 2).result(30)
    outcome = pool.schedule(tasks.daemon, (mark,), timeout=1.0).outcome(60)
    print(json.dumps([str(outcome.cause), outcome.survivors, outcome.kill_latency, outcome.usage.wall]))
"""


def test_a_deadline_is_kept_while_the_host_is_stopped_for_three_seconds(tier: Contain) -> None:
    mark = census.new_mark()
    host = stage.OWN.popen("-c", _STOPPED_HOST, tier, env={"MARK": mark})
    try:
        assert len(census.wait_for(2, mark)) == 2
        census.kill_exactly(host.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        assert census.wait_until(lambda: census.is_stopped(host.pid))
        assert census.wait_until(lambda: not census.find(mark), 10.0)  # an outside observer
        died_after = time.monotonic() - stopped
        assert census.is_stopped(host.pid)
        census.wait_until(lambda: time.monotonic() - stopped >= 3.0)
        census.kill_exactly(host.pid, signal.SIGCONT)
        out, err = host.communicate(timeout=60)
        cause, survivors, latency, wall = stage.last_json(out, err)
    finally:
        stage.end(host)
    assert (cause, survivors) == ("timeout", 0)
    assert died_after < 3.0
    assert latency < 1.0
    assert wall < 3.0


@pytest.mark.parametrize("value", [-1, 0, 0.0, math.nan, math.inf, -math.inf, "5", True, False, 1e18, [1], b"1"])
def test_a_timeout_that_cannot_be_is_refused_at_submit(value: object) -> None:
    with Pool(1) as pool:
        with pytest.raises(ValueError, match="timeout"):
            pool.schedule(tasks.add, (1, 2), timeout=value)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="queue_timeout"):
            pool.schedule(tasks.add, (1, 2), queue_timeout=value)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timeout"):
            next(pool.outcomes(tasks.echo, [1], timeout=value))  # type: ignore[arg-type]
        assert pool.submit(tasks.add, 1, 2).result(30) == 3
    with pytest.raises(ValueError, match="timeout"):
        Pool(1, timeout=value)  # type: ignore[arg-type]


def test_a_timeout_tells_whose_it_was_and_how_long() -> None:
    with Pool(1, timeout=0.2) as pool:
        mine, pools = pool.schedule(tasks.block, timeout=0.1), pool.submit(tasks.block)
        limits = [f.outcome(60).limit for f in (mine, pools)]
        assert [(x.name, x.whose, x.value) for x in limits if x] == [("wall", "task", 0.1), ("wall", "pool", 0.2)]
        with pytest.raises(TaskTimeout, match=r"the call's own wall limit of 0\.1 s"):
            mine.result()


def test_a_call_that_waits_too_long_is_expired_and_never_starts(tmp_path: Path) -> None:
    gate, file = str(tmp_path / "gate"), tmp_path / "started"
    os.mkfifo(gate)
    with Pool(1) as pool:
        first = pool.submit(tasks.pass_gate, gate)
        late = pool.schedule(tasks.append, (str(file), "x"), queue_timeout=0.1)
        outcome = late.outcome(60)
        assert (outcome.cause, outcome.started_at, file.exists()) == (Cause.EXPIRED, None, False)
        tasks.open_gate(gate)
        assert first.outcome(60).ok


def test_eight_hung_calls_are_told_together_and_hold_nobody_up() -> None:
    with Pool(9) as pool:
        [pool.submit(tasks.add, 1, n).result(30) for n in range(9)]
        hung = [pool.schedule(tasks.block, timeout=1.0) for _ in range(8)]
        assert census.wait_until(lambda: all(f.running() for f in hung))
        assert pool.submit(tasks.add, 1, 2).result(30) == 3
        latencies = [f.outcome(60).kill_latency for f in hung]
        assert max(x for x in latencies if x is not None) < 1.0
        assert None not in latencies
