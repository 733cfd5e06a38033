"""Group 24: cancelling kills what runs, withdraws what waits, and touches nobody else."""

import os
import signal
from pathlib import Path

import pytest

import census
from killpool import Cause, Pool, TaskCancelled
from killpool.spec import Isolation
from reports import tasks
from reports.support import lines, stopwatch, wait_lines

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_running_call_can_be_cancelled(isolation: Isolation) -> None:
    """H01."""
    with Pool(1, isolation=isolation) as pool:
        future = pool.submit(tasks.sleep, 20)
        assert census.wait_until(future.running)
        with stopwatch() as watch:
            assert future.cancel() is True
            assert pool.submit(tasks.square, 2).result(30) == 4
        assert watch.seconds < 1.0
        outcome = future.outcome(30)
        assert (outcome.cause, outcome.signal, outcome.killed_by_us) == (Cause.CANCELLED, signal.SIGKILL, True)
        assert future.cancelled()
        assert outcome.pid is not None
        assert not census.is_alive(outcome.pid)
        with pytest.raises(TaskCancelled):
            future.result(0)


def test_a_waiting_call_that_is_cancelled_never_runs(gate: str, log: Path) -> None:
    """H02."""
    with Pool(1) as pool:
        for _ in range(50):
            pool.submit(tasks.nothing).result(30)  # short calls: the next ones are sent ahead into the worker
        pid = pool.submit(tasks.pid).result(30)
        busy = pool.submit(tasks.pass_gate, gate)
        assert census.wait_until(busy.running)
        waiting = [pool.submit(tasks.append, str(log), str(n)) for n in range(20)]
        assert [f.cancel() for f in waiting] == [True] * 20
        assert [f.outcome(5).cause for f in waiting] == [Cause.CANCELLED] * 20
        tasks.open_gate(gate)
        assert busy.result(30) == pid
        assert pool.submit(tasks.pid).result(30) == pid  # nobody was killed for them
        assert pool.statistics().idle_deaths == 0
    assert lines(log) == []


def test_cancelling_a_waiting_call_does_not_touch_the_running_one(gate: str) -> None:
    """H03."""
    with Pool(1) as pool:
        pid = pool.submit(tasks.pid).result(30)
        neighbour = pool.submit(tasks.pass_gate, gate)
        waiting = pool.submit(tasks.square, 3)
        assert census.wait_until(neighbour.running)
        assert waiting.cancel()
        assert waiting.outcome(30).cause is Cause.CANCELLED
        assert census.is_alive(pid)
        tasks.open_gate(gate)
        assert neighbour.outcome(30).value == pid


def test_after_a_cancel_the_counts_are_true_and_the_places_free(log: Path, tmp_path: Path) -> None:
    """H04."""
    gates = [str(tmp_path / f"gate{n}") for n in range(2)]
    for path in gates:
        os.mkfifo(path)
    marks = [census.new_mark(), census.new_mark()]
    with Pool(2) as pool:
        running = [pool.submit(tasks.block_as, mark) for mark in marks]
        assert census.wait_until(lambda: all(census.find(mark) for mark in marks))
        assert (pool.statistics().busy, pool.statistics().in_flight, pool.statistics().queued) == (2, 2, 0)
        assert running[0].cancel()
        # Busy until its tree is gone: the count never falls below what lives.
        assert pool.statistics().busy >= sum(bool(census.find(mark)) for mark in marks)
        running[0].outcome(30)
        assert (census.find(marks[0]), bool(census.find(marks[1]))) == ([], True)
        assert (pool.statistics().busy, pool.statistics().in_flight, pool.statistics().queued) == (1, 1, 0)
        assert running[1].cancel()
        with stopwatch() as watch:
            next_ = [pool.submit(tasks.append_and_pass, str(log), str(n), gates[n]) for n in range(2)]
            wait_lines(log, 2)
        assert watch.seconds < 1.0
        assert (pool.statistics().busy, pool.statistics().in_flight, pool.statistics().queued) == (2, 2, 0)
        assert all(f.running() for f in next_)
        for path in gates:
            tasks.open_gate(path)
        assert len({f.result(30) for f in next_}) == 2
        assert pool.statistics().busy == 0
