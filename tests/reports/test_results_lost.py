"""Group 3: one bad call costs one result; a result that was made is never lost."""

import signal

import pytest

import census
from killpool import Cause, Pool, TaskTimeout
from killpool.spec import Isolation
from reports import tasks
from reports.support import stopwatch

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as they end"])
def test_one_hang_and_one_error_cost_two_results_of_a_hundred(ordered: bool) -> None:
    """R01."""
    with Pool(2) as pool:
        outcomes = list(pool.outcomes(tasks.hang_or_raise, range(100), timeout=0.5, ordered=ordered))
    by_index = {o.index: o for o in outcomes}
    assert len(outcomes) == len(by_index) == 100
    if ordered:
        assert [o.index for o in outcomes] == list(range(100))
    hung, failed = by_index.pop(50), by_index.pop(60)
    assert {n: o.value for n, o in by_index.items()} == {n: n for n in range(100) if n not in (50, 60)}
    assert (hung.cause, failed.cause) == (Cause.TIMEOUT, Cause.EXCEPTION)
    with pytest.raises(TaskTimeout):  # raising is for who asks for it
        hung.unwrap()
    with pytest.raises(ValueError, match="sixty"):
        failed.unwrap()


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_value_wins_over_the_death_that_follows_it(isolation: Isolation) -> None:
    """R02."""
    with Pool(1, isolation=isolation) as pool:
        outcome = pool.submit(tasks.value_and_late_death).outcome(30)
        assert (outcome.cause, outcome.value) == (Cause.OK, 5)
        if isolation == "worker":  # a fresh process ends before its own thread can kill it
            assert census.wait_until(lambda: pool.statistics().idle_deaths == 1)
        assert pool.submit(tasks.square, 3).result(30) == 9


def test_recycled_workers_lose_nothing() -> None:
    """R03."""
    with Pool(4, max_tasks_per_worker=1) as pool:
        for _ in range(5):
            futures = [pool.submit(tasks.square, n) for n in range(200)]
            outcomes = [f.outcome(60) for f in futures]
            assert [o.value for o in outcomes] == [n * n for n in range(200)]
            assert len({o.pid for o in outcomes}) == 200


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as they end"])
def test_a_batch_ends_at_its_limit_and_names_what_did_not(ordered: bool) -> None:
    """R04."""
    with Pool(2) as pool:
        pool.submit(tasks.nothing).result(30)
        with stopwatch() as watch:
            calls = pool.outcomes(tasks.hang_at_seven, range(20), batch_timeout=3.0, ordered=ordered)
            outcomes = list(calls)
        assert 3.0 <= watch.seconds < 4.0
        unfinished = [o for o in outcomes if not o.ok]
        assert len(outcomes) == 20
        assert [(o.index, o.cause) for o in unfinished] == [(7, Cause.CANCELLED)]
        assert sorted(o.value for o in outcomes if o.ok) == [n for n in range(20) if n != 7]
        assert (unfinished[0].signal, unfinished[0].killed_by_us) == (signal.SIGKILL, True)
        assert unfinished[0].pid is not None
        assert not census.is_alive(unfinished[0].pid)
