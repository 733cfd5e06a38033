"""Group 26: a pool that cannot start its workers gives up, once, clearly; recycling never stalls."""

import signal
from itertools import pairwise
from pathlib import Path

import pytest

import census
from killpool import Cause, Pool, PoolBroken, RestartPolicy, StartFailed
from reports import tasks
from reports.support import lines, stopwatch

pytestmark = pytest.mark.timeout(120)


def test_the_sixth_failed_start_in_the_window_breaks_the_pool(log: Path) -> None:
    """I02."""
    policy = RestartPolicy(max_restarts=5, within=10.0, initial_backoff=0.01, max_backoff=0.01)
    with Pool(1, initializer=tasks.die_after, initargs=(str(log), 0.3), restart=policy) as pool:
        with stopwatch() as watch:
            pending = [pool.submit(tasks.square, n) for n in range(10)]
            outcomes = [f.outcome(30) for f in pending]
        assert 6 * 0.3 <= watch.seconds < 10
        assert [(o.cause, type(o.error)) for o in outcomes] == [(Cause.START_FAILED, StartFailed)] * 10
        assert len(lines(log)) == 6
        with pytest.raises(PoolBroken, match="initializer"):
            pool.submit(tasks.square, 3)
        assert pool.statistics().is_broken


def test_a_success_between_two_deaths_does_not_reset_the_window() -> None:
    """I02."""
    policy = RestartPolicy(max_restarts=5, within=60.0)
    with Pool(1, restart=policy) as pool:
        for death in range(1, 6):
            pid = pool.submit(tasks.pid).result(30)  # a short success
            assert census.kill_exactly(pid, signal.SIGKILL)
            assert census.wait_until(lambda count=death: pool.statistics().idle_deaths == count)  # type: ignore[misc]
        pid = pool.submit(tasks.pid).result(30)
        assert census.kill_exactly(pid, signal.SIGKILL)
        assert census.wait_until(lambda: pool.statistics().is_broken)
        with pytest.raises(PoolBroken, match="idle"):
            pool.submit(tasks.square, 3)


def test_failed_starts_wait_longer_and_longer_up_to_a_cap(log: Path) -> None:
    """I03: restarts are counted in `statistics()`; a stream of events is a later part."""
    policy = RestartPolicy(max_restarts=5, within=60.0, initial_backoff=0.1, max_backoff=0.4)
    with Pool(1, spares=0, initializer=tasks.die_after, initargs=(str(log), 0.0), restart=policy) as pool:
        assert pool.submit(tasks.nothing).outcome(30).cause is Cause.START_FAILED
    starts = [float(line) for line in lines(log)]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    for gap, least in zip(gaps, [0.1, 0.2, 0.4, 0.4, 0.4], strict=True):
        assert least <= gap < least + 0.5, gaps


def test_every_failed_future_has_an_exception_of_its_own(log: Path) -> None:
    """I04."""
    with Pool(3) as pool:
        outcomes = [f.outcome(30) for f in [pool.schedule(tasks.die, (n,), tag=f"call {n}") for n in (9, 15, 6)]]
    errors = [o.error for o in outcomes]
    assert len(set(map(id, errors))) == 3
    assert [getattr(e, "signal", None) for e in errors] == [9, 15, 6]
    assert [getattr(e, "pid", None) for e in errors] == [o.pid for o in outcomes]
    assert len({o.pid for o in outcomes}) == 3
    assert [getattr(e, "outcome", None) for e in errors] == outcomes
    assert [o.tag for o in outcomes] == ["call 9", "call 15", "call 6"]

    policy = RestartPolicy(max_restarts=0)
    with Pool(1, initializer=tasks.die_after, initargs=(str(log), 0.0), restart=policy) as pool:
        broken = [f.outcome(30) for f in [pool.schedule(tasks.square, (n,), index=n) for n in range(3)]]
    assert len({id(o.error) for o in broken}) == 3
    assert [o.index for o in broken] == [0, 1, 2]


def test_recycling_does_not_stall_a_backlog() -> None:
    """I05."""
    with Pool(1, max_tasks_per_worker=2) as pool:
        outcomes = [f.outcome(60) for f in [pool.submit(tasks.square, n) for n in range(10)]]
    assert [o.value for o in outcomes] == [n * n for n in range(10)]
    pids = [o.pid for o in outcomes]
    assert len(set(pids)) == 5
    assert pids[::2] == pids[1::2]
