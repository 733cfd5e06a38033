"""Group 9: what a call prints is kept, its own only, and bounded; standard input is empty."""

import subprocess
from typing import Any

import pytest

import census
import stage
from killpool import Cause, Pool
from killpool.spec import CAPTURE_MAX, Isolation
from reports import tasks
from reports.support import run_script, stopwatch

pytestmark = pytest.mark.timeout(120)

_KINDS: dict[str, dict[str, Any]] = {
    "worker": {},
    "process": {"isolation": "process"},
    "json": {"isolation": "process", "codec": "json"},
}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("flush", [True, False], ids=["flushed", "not flushed"])
def test_what_was_printed_before_a_timeout_is_kept(kind: str, flush: bool) -> None:
    """C01."""
    with Pool(1, capture_output=True, **_KINDS[kind]) as pool:
        outcome = pool.schedule(tasks.print_then_hang, ("the marker", flush), timeout=1.0).outcome(30)
    assert (outcome.cause, str(outcome.stdout), outcome.stdout.truncated) == (Cause.TIMEOUT, "the marker\n", False)


@pytest.mark.parametrize("kind", _KINDS)
def test_each_outcome_has_its_own_output_and_no_others(kind: str) -> None:
    """C02."""
    with Pool(4, capture_output=True, **_KINDS[kind]) as pool:
        outcomes = [f.outcome(60) for f in [pool.submit(tasks.print_lines, n, 1000) for n in range(8)]]
    for name, outcome in enumerate(outcomes):
        assert outcome.value == name
        wanted = [f"task {name} line {n}" for n in range(1000)] + [f"task {name} shell"]
        assert str(outcome.stdout).splitlines() == wanted
        assert not outcome.stderr


def test_a_flood_of_output_is_counted_and_not_kept() -> None:
    """C03."""
    with Pool(1, capture_output=True) as pool:
        pool.submit(tasks.nothing).result(30)
        before = tasks.resident()
        outcome = pool.submit(tasks.print_bytes, 300_000_000).outcome(60)
        grown = tasks.resident() - before
        supervisor = tasks.resident(pool.statistics().supervisor_pid)
    assert (outcome.value, outcome.stdout.total, outcome.stdout.truncated) == (1, 300_000_000, True)
    assert len(outcome.stdout.data) <= CAPTURE_MAX
    assert grown < 50_000_000
    assert supervisor < 100_000_000


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    ("then", "cause"),
    [("return", Cause.OK), ("hang", Cause.TIMEOUT), ("die", Cause.SIGNAL)],
    ids=["ok", "timeout", "died"],
)
def test_of_too_much_output_the_head_and_the_tail_are_kept(then: str, cause: Cause, kind: str) -> None:
    """C04: the cap is `CAPTURE_MAX` for all; half of it is for the head, half for the tail."""
    text = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    with Pool(1, capture_output=True, **_KINDS[kind]) as pool:
        outcome = pool.schedule(tasks.print_numbers, (100_000, then), timeout=2.0).outcome(30)
        small = pool.schedule(tasks.print_numbers, (100, "return")).outcome(30)
    assert outcome.cause is cause
    half = CAPTURE_MAX // 2
    assert outcome.stdout.data == text[:half] + text[-half:]
    assert (outcome.stdout.total, outcome.stdout.truncated) == (len(text), True)
    assert str(small.stdout).splitlines() == [str(n) for n in range(1, 101)]
    assert (small.stdout.total, small.stdout.truncated) == (292, False)


_ONCE = """
import sys
from reports import tasks
from killpool import Pool
print("once", end="")
pool = Pool(3, isolation=sys.argv[1])
for future in [pool.submit(tasks.sleep, 0.05) for _ in range(6)]:
    future.result(30)
if sys.argv[2] == "close":
    pool.shutdown()
"""


@pytest.mark.parametrize("end", ["close", "fall off"])
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_text_in_the_hosts_buffer_is_printed_once(isolation: str, end: str) -> None:
    """C05."""
    done = run_script(_ONCE, isolation, end)
    assert (done.status, done.out, done.err) == (0, "once", "")


_ASKS = """
import sys
from reports import tasks
from killpool import Pool
with Pool(1, isolation=sys.argv[1]) as pool:
    outcome = pool.schedule(tasks.ask, timeout=10).outcome(30)
print(outcome.cause, type(outcome.error).__name__, outcome.usage.wall < 5, flush=True)
print(sys.stdin.read())
"""


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_standard_input_of_a_call_is_at_its_end_and_the_hosts_is_not_consumed(isolation: Isolation) -> None:
    """C06."""
    mark = census.new_mark()
    env = {"SCRIPT_MARK": mark}
    host = stage.OWN.popen("-c", _ASKS, isolation, stdin=subprocess.PIPE, env=env)
    try:
        assert host.stdout is not None
        with stopwatch() as watch:
            line = host.stdout.readline()  # while its stdin is open and silent
        assert watch.seconds < 30
        assert line.split()[-3:] == ["exception", "EOFError", "True"]
        out, err = host.communicate("for the host", timeout=30)
    finally:
        stage.end(host, mark)
    assert (host.returncode, out, err) == (0, "for the host\n", "")
