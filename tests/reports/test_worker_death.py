"""Group 2: a worker's death is told at once, to the one call that it concerns."""

import os
import random
import signal
import threading

import pytest

import census
from killpool import Cause, Pool, TaskFuture, WorkerLost
from killpool.spec import Isolation
from reports import tasks
from reports.support import stopwatch

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_death_is_told_within_a_second_though_there_is_no_deadline(isolation: Isolation) -> None:
    """D02."""
    with Pool(1, isolation=isolation) as pool:
        pool.submit(tasks.nothing).result(30)
        with stopwatch() as watch:
            outcome = pool.submit(tasks.die).outcome(30)
        assert (outcome.cause, outcome.signal, outcome.killed_by_us) == (Cause.SIGNAL, signal.SIGKILL, False)
        assert isinstance(outcome.error, WorkerLost)
        assert watch.seconds < 1.0


@pytest.mark.parametrize("half", range(4))
def test_calls_beside_cancelled_ones_are_all_finished(half: int) -> None:
    """D05.

    Five of the twenty rounds: in the even quarters a call is cancelled once it is seen to run, in the odd ones a
    moment of any length after its neighbour.
    """
    chance = random.Random(half)
    with Pool(2) as pool:
        pool.submit(tasks.nothing).result(30)
        for _ in range(5):
            futures = [pool.submit(tasks.sleep_then, 0.005, n) for n in range(300)]
            cancelled = {n: _cancel_as_it_starts(futures[n], half % 2 == 0, chance) for n in range(0, 300, 3)}
            outcomes = [f.outcome(30) for f in futures]
            kept = [n for n in range(300) if not cancelled.get(n)]
            assert [outcomes[n].value for n in kept] == kept
            assert len(kept) >= 200
            assert {outcomes[n].cause for n in cancelled if cancelled[n]} <= {Cause.CANCELLED}
            assert sum(cancelled.values()) >= 20  # else nothing was tried


def _cancel_as_it_starts(future: TaskFuture, is_seen: bool, chance: random.Random) -> bool:
    if is_seen:
        while not (future.running() or future.done()):
            os.sched_yield()
    else:
        for _ in range(chance.randrange(3000)):
            if future.done():
                break
    return future.cancel()


def test_a_stopped_idle_worker_blocks_neither_the_submitter_nor_the_next_call() -> None:
    """D06."""
    argument = bytes(20_000_000)
    with Pool(1) as pool:
        pid = pool.submit(tasks.pid).result(30)
        assert census.kill_exactly(pid, signal.SIGSTOP)
        assert census.wait_until(lambda: census.is_stopped(pid))
        with stopwatch() as watch:
            first = pool.schedule(tasks.size_of, (argument,), timeout=1.0)
        assert watch.seconds < 0.2
        second = pool.submit(tasks.square, 3)
        outcome = first.outcome(30)
        assert (outcome.cause, outcome.limit and outcome.limit.value) == (Cause.TIMEOUT, 1.0)
        assert second.result(30) == 9
        assert pool.submit(tasks.size_of, argument).result(30) == 20_000_000


def test_a_call_that_stops_itself_is_killed_at_its_deadline() -> None:
    """D06."""
    with Pool(1) as pool:
        outcome = pool.schedule(tasks.die, (signal.SIGSTOP,), timeout=1.0).outcome(30)
        assert (outcome.cause, outcome.signal) == (Cause.TIMEOUT, signal.SIGKILL)
        assert outcome.usage.wall < 2.0
        assert pool.submit(tasks.square, 3).result(30) == 9


def test_a_crash_in_c_code_names_its_signal_its_call_and_its_input() -> None:
    """D07."""
    with Pool(2) as pool:
        outcomes = list(pool.outcomes(tasks.segfault_if_three, range(6), ordered=True))
        tagged = pool.schedule(tasks.read_null, tag="case-17").outcome(30)
    assert [o.value for o in outcomes] == [0, 1, 4, None, 16, 25]
    crash = outcomes[3]
    assert (crash.cause, crash.signal, crash.index) == (Cause.SIGNAL, signal.SIGSEGV, 3)
    assert isinstance(crash.error, WorkerLost)
    assert crash.error.outcome.index == 3
    assert "segfault_if_three" in str(crash.error)
    assert (tagged.signal, tagged.tag) == (signal.SIGSEGV, "case-17")


def test_closing_right_after_a_cancel_never_hangs() -> None:
    """D08."""
    closings: list[float] = []
    faults: list[BaseException] = []

    def rounds(count: int, is_patient: bool) -> None:
        try:
            for _ in range(count):
                pool = Pool(1)
                assert pool.submit(tasks.square, 3).result(30) == 9
                future = pool.submit(tasks.sleep, 30)
                if is_patient:
                    assert census.wait_until(future.running)
                assert future.cancel()
                with stopwatch() as watch:
                    pool.shutdown(wait=True)
                closings.append(watch.seconds)
                assert future.outcome(0).cause is Cause.CANCELLED
        except BaseException as fault:  # told below, in the thread of the test
            faults.append(fault)

    threads = [threading.Thread(target=rounds, args=(50, n % 2 == 0)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(closings) == 200
    assert max(closings) < 1.0


def test_work_goes_on_in_the_replacement_of_a_dead_worker() -> None:
    """D09."""
    with Pool(1) as pool:
        futures = [pool.submit(tasks.die_if, n % 2, n) for n in range(1, 7)]
        outcomes = [f.outcome(30) for f in futures]
    died = (Cause.SIGNAL, signal.SIGKILL, None)
    assert [(o.cause, o.signal, o.value) for o in outcomes] == [
        died, (Cause.OK, None, 2), died, (Cause.OK, None, 4), died, (Cause.OK, None, 6),
    ]  # fmt: skip
