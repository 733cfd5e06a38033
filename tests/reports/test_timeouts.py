"""Group 1: limits that are really kept, from when, for whom, and by whose word."""

import os
import signal
import socket
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import census
from killpool import (
    Cause,
    Limits,
    Outcome,
    Pool,
    SpecError,
    StartFailed,
    TaskExpired,
    TaskTimeout,
    UnsupportedPlatform,
)
from killpool.spec import Isolation
from killpool.system import cgroup
from reports import tasks
from reports.support import lines, stopwatch

pytestmark = pytest.mark.timeout(120)


def test_leaving_the_block_does_not_wait_for_a_call_that_was_timed_out(mark: str) -> None:
    """T02."""
    with Pool(1) as pool, stopwatch() as inner:
        outer = inner
        future = pool.schedule(tasks.block_as, (mark,), timeout=1.0)
        assert census.wait_for(1, mark, unless=lambda: bool(census.find(mark)))
        with pytest.raises(TaskTimeout):
            future.result(30)
        assert census.find(mark) == []
    assert 1.0 <= outer.seconds < 2.0
    with stopwatch() as closing, Pool(1) as pool:
        pool.submit(tasks.nothing).result(30)
        pool.schedule(tasks.block_as, (mark,), timeout=1.0)  # nobody waits for it but the block's end
        assert census.wait_until(lambda: census.find(mark))
        started = closing.seconds
    assert closing.seconds - started < 2.0
    assert census.find(mark) == []


def test_a_timeout_works_the_same_in_threads_and_installs_no_signal_handler() -> None:
    """T04."""
    numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
    before = [signal.getsignal(n) for n in numbers]
    outcomes: list[Outcome] = []
    during: list[Any] = []

    def in_thread() -> None:
        with Pool(1) as pool:
            future = pool.schedule(tasks.sleep, (30,), timeout=1.0)
            during.append([signal.getsignal(n) for n in numbers])
            outcomes.append(future.outcome(30))

    for count in (1, 2):
        threads = [threading.Thread(target=in_thread) for _ in range(count)]
        with stopwatch() as watch:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        assert watch.seconds < 10
    with Pool(1) as pool:
        outcomes.append(pool.schedule(tasks.sleep, (30,), timeout=1.0).outcome(30))
    assert [(o.cause, type(o.error), o.killed_by_us) for o in outcomes] == [(Cause.TIMEOUT, TaskTimeout, True)] * 4
    assert all(1.0 <= o.usage.wall < 2.0 for o in outcomes)
    assert during == [before] * 3
    assert [signal.getsignal(n) for n in numbers] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_clock_starts_when_the_call_does_and_the_queue_has_a_limit_of_its_own(log: Path) -> None:
    """T05."""
    with Pool(1) as pool:
        with stopwatch() as watch:
            futures = [pool.schedule(tasks.sleep, (0.7,), timeout=1.0) for _ in range(4)]
            last = futures[-1].outcome(30)  # not read in order
            assert [f.outcome(30).value for f in futures] == [0.7] * 4
        assert watch.seconds >= 2.8
        assert last.usage.wall < 1.0

        pool.submit(tasks.sleep, 1.0)
        waiting = pool.schedule(tasks.append, (str(log), "ran"), queue_timeout=0.3)
        outcome = waiting.outcome(30)
        assert (outcome.cause, outcome.started_at, type(outcome.error)) == (Cause.EXPIRED, None, TaskExpired)
        assert str(outcome.limit) == "the call's own queue limit of 0.3 s"
        assert pool.submit(tasks.square, 3).result(30) == 9
    assert lines(log) == []


def test_a_timeout_does_not_touch_the_neighbour(log: Path) -> None:
    """T06."""
    with Pool(2) as pool:
        first = pool.schedule(tasks.sleep, (30,), timeout=1.0)
        second = pool.schedule(tasks.sleep_then, (3, "value"), timeout=10.0)
        assert census.wait_until(lambda: first.running() and second.running())
        before = set(pool.statistics().worker_pids)
        told = first.outcome(30)
        assert (told.cause, told.survivors) == (Cause.TIMEOUT, 0)
        assert not second.done()
        outcome = second.outcome(30)
        assert (outcome.value, outcome.attempts) == ("value", 1)
        assert outcome.pid in before
        assert outcome.pid in pool.statistics().worker_pids
        assert told.pid not in pool.statistics().worker_pids
        assert outcome.started_at is not None
        assert outcome.usage.wall >= 3.0


def test_many_hung_calls_are_all_interrupted() -> None:
    """T07."""
    with Pool(4) as pool:
        pool.submit(tasks.nothing).result(30)
        with stopwatch() as watch:
            futures = [pool.schedule(tasks.sleep, (30,), timeout=1.0) for _ in range(10)]
            outcomes = [f.outcome(30) for f in futures]
        assert [o.cause for o in outcomes] == [Cause.TIMEOUT] * 10
        assert 3.0 <= watch.seconds < 5.0
        pids = [o.pid for o in outcomes]
        assert len(set(pids)) == 10
        assert [p for p in pids if p is not None and census.is_alive(p)] == []


def test_a_timeout_holds_in_the_unordered_stream() -> None:
    """T08."""
    with Pool(3) as pool, stopwatch() as watch:
        outcomes = list(pool.outcomes(tasks.block, range(3), timeout=1.0))
        assert [o.cause for o in outcomes] == [Cause.TIMEOUT] * 3
        assert sorted(o.index for o in outcomes if o.index is not None) == [0, 1, 2]
    assert watch.seconds < 5


def _breaks_wall(pool: Pool, limits: Limits, _path: str) -> tuple[Cause, str]:
    outcome = pool.schedule(tasks.block, limits=limits).outcome(30)
    return outcome.cause, outcome.limit.name if outcome.limit else ""


def _breaks_cpu(pool: Pool, limits: Limits, _path: str) -> tuple[Cause, str]:
    outcome = pool.schedule(tasks.spin, (30,), limits=limits).outcome(60)
    return outcome.cause, outcome.limit.name if outcome.limit else ""


def _breaks_memory(pool: Pool, limits: Limits, _path: str) -> tuple[Cause, str]:
    outcome = pool.schedule(tasks.hog_memory, (500_000_000,), limits=limits).outcome(60)
    return outcome.cause, outcome.limit.name if outcome.limit else ""


def _breaks_processes(pool: Pool, limits: Limits, _path: str) -> tuple[Cause, str]:
    outcome = pool.schedule(tasks.fork_and_block, limits=limits).outcome(60)
    return outcome.cause, outcome.limit.name if outcome.limit else ""


def _breaks_open_files(pool: Pool, limits: Limits, _path: str) -> tuple[Cause, str]:
    outcome = pool.schedule(tasks.open_many, (100,), limits=limits).outcome(30)
    return outcome.cause, "EMFILE" if isinstance(outcome.error, OSError) and outcome.error.errno == 24 else ""


def _breaks_file_size(pool: Pool, limits: Limits, path: str) -> tuple[Cause, str]:
    outcome = pool.schedule(tasks.write_file, (path, 300_000), limits=limits).outcome(30)
    assert os.path.getsize(path) <= 200_000
    return outcome.cause, outcome.limit.name if outcome.limit else str(outcome.error)


def _breaks_output(pool: Pool, limits: Limits, _path: str) -> tuple[Cause, str]:
    outcome = pool.schedule(tasks.print_bytes, (100_001,), limits=limits).outcome(30)
    return outcome.cause, outcome.limit.name if outcome.limit else ""


_BREAKERS: dict[str, tuple[Any, Any, tuple[Cause, str]]] = {
    # limit: (its value, who breaks it, what is told)
    "wall": (0.3, _breaks_wall, (Cause.TIMEOUT, "wall")),
    "cpu": (0.3, _breaks_cpu, (Cause.CPU_TIME, "cpu")),
    "memory": ("128M", _breaks_memory, (Cause.OOM, "memory")),
    "processes": (5, _breaks_processes, (Cause.PROCESS_LIMIT, "processes")),
    "open_files": (64, _breaks_open_files, (Cause.EXCEPTION, "EMFILE")),
    "file_size": (200_000, _breaks_file_size, (Cause.FILE_LIMIT, "file_size")),
    "output": (100_000, _breaks_output, (Cause.OUTPUT_LIMIT, "output")),
}


@pytest.mark.parametrize("whose", ["pool", "call"])
@pytest.mark.parametrize("name", [f.name for f in fields(Limits)])
def test_every_limit_that_is_accepted_has_an_effect(name: str, whose: str, tmp_path: Path) -> None:
    """T09."""
    value, breaks, told = _BREAKERS[name]
    limits = Limits(**{name: value})
    with Pool(1, limits=limits if whose == "pool" else None, capture_output=True) as pool:
        assert breaks(pool, limits if whose == "call" else Limits(), str(tmp_path / "file")) == told
        assert pool.submit(tasks.square, 3).result(30) == 9


def test_a_limit_that_this_machine_cannot_keep_is_refused_when_the_pool_is_built() -> None:
    """T09."""
    with pytest.raises(SpecError, match="output"):
        Pool(1, limits=Limits(output="1M"))  # what is let through is not counted
    reason = cgroup.probe()
    if reason:
        with pytest.raises(UnsupportedPlatform, match="cgroup"):
            Pool(1, contain="cgroup")
    else:
        Pool(1, contain="cgroup").shutdown()


def _by_submit(pool: Pool) -> Outcome:
    return pool.submit(tasks.sleep, 5).outcome(30)


def _by_schedule(pool: Pool) -> Outcome:
    return pool.schedule(tasks.sleep, (5,)).outcome(30)


def _by_schedule_with_its_own(pool: Pool) -> Outcome:
    return pool.schedule(tasks.sleep, (5,), timeout=1.0).outcome(30)


def _by_limits(pool: Pool) -> Outcome:
    return pool.schedule(tasks.sleep, (5,), limits=Limits(wall="1s")).outcome(30)


def _by_map(pool: Pool) -> Outcome:
    with pytest.raises(TaskTimeout) as caught:
        list(pool.map(tasks.sleep, [5]))
    outcome: Outcome = caught.value.outcome
    return outcome


def _by_stream(pool: Pool) -> Outcome:
    return next(iter(pool.outcomes(tasks.sleep, [5], timeout=1.0)))


def _by_ordered_stream(pool: Pool) -> Outcome:
    return next(iter(pool.outcomes(tasks.sleep, [5], ordered=True)))


@pytest.mark.parametrize("isolation", ["worker", "process"])
@pytest.mark.parametrize(
    "way",
    [_by_submit, _by_schedule, _by_schedule_with_its_own, _by_limits, _by_map, _by_stream, _by_ordered_stream],
    ids=lambda way: way.__name__[1:],
)
def test_a_timeout_is_the_same_however_the_call_is_made(way: Any, isolation: Isolation) -> None:
    """T10."""
    with Pool(1, timeout=1.0, isolation=isolation) as pool:
        outcome = way(pool)
    assert (outcome.cause, type(outcome.error), outcome.killed_by_us) == (Cause.TIMEOUT, TaskTimeout, True)
    assert outcome.limit is not None
    assert (outcome.limit.name, outcome.limit.value) == ("wall", 1.0)
    assert 1.0 <= outcome.usage.wall < 2.0


def test_wall_and_cpu_seconds_are_told_apart_and_may_be_limited_apart() -> None:
    """T11."""
    workers = 2 * (os.cpu_count() or 1)
    with Pool(workers, limits=Limits(cpu=1.0)) as pool:
        # Twice as many as there are cores: each takes longer than its CPU time, and none is charged for that.
        outcomes = list(pool.outcomes(tasks.spin, [0.5] * workers))
        assert [o.cause for o in outcomes] == [Cause.OK] * workers
        for outcome in outcomes:
            assert 0.45 <= outcome.usage.cpu < 1.0
            assert outcome.usage.wall >= outcome.value - 0.01
            assert outcome.usage.wall < outcome.value + 0.5  # nor is start-up in it
        outcome = pool.submit(tasks.spin, 30).outcome(60)
        assert (outcome.cause, outcome.limit and outcome.limit.name) == (Cause.CPU_TIME, "cpu")
        outcome = pool.schedule(tasks.sleep, (30,), timeout=1.0).outcome(60)
        assert outcome.cause is Cause.TIMEOUT
        assert outcome.usage.cpu < 0.5 < 1.0 <= outcome.usage.wall


_SLOW = """
import sys, time
if "killpool.supervisor.template" in sys.modules:   # a worker, or what workers are forked from
    time.sleep(2)
def trivial():
    return "done"
"""


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module whose import takes 2 s in a worker; its name is its own, since imported modules stay."""
    name = f"slow_{census.new_mark()}"
    (tmp_path / f"{name}.py").write_text(_SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    return __import__(name)


@pytest.mark.parametrize("kind", ["worker", "process", "untrusted"])
def test_imports_do_not_eat_the_calls_time(kind: str, slow_module: Any) -> None:
    """T12."""
    options: dict[str, Any] = {"isolation": "worker" if kind == "worker" else "process"}
    if kind == "untrusted":  # its process has no board: what it imports itself is its own time, so it is preloaded
        options |= {"codec": "json", "preload": [slow_module.__name__]}
    with Pool(1, **options) as pool:
        outcome = pool.schedule(slow_module.trivial, timeout=1.0).outcome(30)
    assert (outcome.cause, outcome.value) == (Cause.OK, "done")
    assert outcome.usage.wall < 1.0


def test_start_up_has_its_own_limit_and_its_own_error(slow_module: Any) -> None:
    """T12."""
    with Pool(1, start_timeout=0.5) as pool:
        pool.submit(tasks.nothing).result(30)  # a worker is there before the module is known
        outcome = pool.schedule(slow_module.trivial, timeout=1.0).outcome(30)
        assert (outcome.cause, type(outcome.error)) == (Cause.START_FAILED, StartFailed)
        assert outcome.limit is not None
        assert (outcome.limit.name, outcome.limit.value) == ("start", 0.5)
        assert pool.submit(tasks.square, 3).result(30) == 9


@pytest.mark.parametrize("isolation", ["worker", "process"])
@pytest.mark.parametrize("is_warm", [True, False], ids=["warm", "cold"])
def test_an_import_that_never_ends_is_a_failed_start(
    is_warm: bool, isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T12."""
    name = f"endless_{census.new_mark()}"
    (tmp_path / f"{name}.py").write_text(_SLOW.replace("sleep(2)", "sleep(1000)"))
    monkeypatch.syspath_prepend(str(tmp_path))
    with Pool(1, start_timeout=0.5, isolation=isolation) as pool:
        if is_warm:
            pool.submit(tasks.nothing).result(30)
        future = pool.schedule(__import__(name).trivial, timeout=1.0)
        outcome = future.outcome(10)
        assert (outcome.cause, type(outcome.error)) == (Cause.START_FAILED, StartFailed)
        assert pool.submit(tasks.square, 3).result(10) == 9


@pytest.mark.parametrize("task", [tasks.stubborn_cleanup, tasks.swallow_everything])
def test_a_timeout_does_not_wait_for_the_tasks_own_clean_up(task: Any, log: Path) -> None:
    """T13."""
    with Pool(1) as pool:
        outcome = pool.schedule(task, (str(log),), timeout=1.0).outcome(30)
    assert outcome.cause is Cause.TIMEOUT
    assert 1.0 <= outcome.usage.wall < 2.0
    assert outcome.kill_latency is not None
    assert outcome.kill_latency < 1.0
    assert lines(log) == ["task"]


@pytest.mark.parametrize("value", [-1, 0, float("nan"), float("inf"), "5", True, 1e18], ids=repr)
def test_a_timeout_that_is_no_time_is_refused(value: Any, log: Path) -> None:
    """T14."""
    with pytest.raises(ValueError, match="timeout"):
        Pool(1, timeout=value)
    with Pool(1) as pool:
        for name in ("timeout", "queue_timeout"):
            with pytest.raises(ValueError, match=name):
                pool.schedule(tasks.append, (str(log), "ran"), **{name: value})
        for name in ("timeout", "batch_timeout"):
            with pytest.raises(ValueError, match=name):
                next(pool.outcomes(tasks.nothing, [1], **{name: value}))
        assert pool.submit(tasks.square, 2).result(30) == 4
    assert lines(log) == []


@pytest.mark.parametrize("task", [tasks.block_as, tasks.block_with_heir])
def test_a_replacement_finds_its_predecessors_port_free(task: Any, mark: str, log: Path) -> None:
    """T15."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Pool(1, initializer=tasks.bind_port, initargs=(str(log), port), spares=1) as pool:
        for _ in range(3):
            future = pool.schedule(task, (mark,), timeout=1.0)
            assert census.wait_until(lambda: census.find(mark))
            assert future.outcome(30).cause is Cause.TIMEOUT
            assert pool.submit(tasks.bound_port).result(30) == port
    assert lines(log) == ["bound"] * 4


def test_a_call_may_have_a_longer_limit_than_the_pools_and_the_outcome_says_which_fired() -> None:
    """T16."""
    with Pool(2, timeout=1.0) as pool:
        longer = pool.schedule(tasks.sleep, (2,), timeout=3.0)
        default = pool.schedule(tasks.sleep, (2,)).outcome(30)
        assert longer.result(30) == 2
    assert default.cause is Cause.TIMEOUT
    assert str(default.limit) == "pool default wall limit of 1 s"
    assert "pool default wall limit of 1 s" in str(default.error)
    with Pool(1) as pool:  # no limits: none is imposed
        outcome = pool.submit(tasks.sleep, 2).outcome(30)
        assert (outcome.value, outcome.limit) == (2, None)
