"""Group 22: long batches end, in time, in bounded memory."""

import pytest

from killpool import Cause, Pool
from reports import tasks
from reports.support import stopwatch

pytestmark = pytest.mark.timeout(180)

_MANY = 20_000


def test_twenty_thousand_calls_that_are_submitted_at_once_all_end() -> None:
    """V01."""
    with Pool(4) as pool:
        pool.submit(tasks.nothing).result(30)
        before = tasks.resident()
        with stopwatch() as watch:
            futures = [pool.schedule(tasks.nothing, timeout=30.0) for _ in range(_MANY)]
            assert sum(f.outcome(60).ok for f in futures) == _MANY
        grown = tasks.resident() - before
    assert watch.seconds < 30
    assert grown < 150_000_000  # all their futures and outcomes are held here


def test_twenty_thousand_calls_that_are_streamed_need_no_memory() -> None:
    """V01."""
    with Pool(4) as pool:
        assert sum(o.ok for o in pool.outcomes(tasks.nothing, range(1000), timeout=30.0)) == 1000
        before = tasks.resident()
        with stopwatch() as watch:
            assert sum(o.ok for o in pool.outcomes(tasks.nothing, range(_MANY), timeout=30.0)) == _MANY
        grown = tasks.resident() - before
    assert watch.seconds < 30
    assert grown < 20_000_000


def test_a_hundredth_of_hanging_inputs_costs_a_hundredth_of_the_results() -> None:
    """V02."""
    with Pool(4) as pool, stopwatch() as watch:
        outcomes = list(pool.outcomes(tasks.hang_every_hundredth, range(2000), timeout=0.3, ordered=True))
    assert [o.cause for o in outcomes] == [Cause.OK if n % 100 else Cause.TIMEOUT for n in range(2000)]
    assert [o.value for o in outcomes] == [n if n % 100 else None for n in range(2000)]
    assert watch.seconds < 10
