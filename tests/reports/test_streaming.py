"""Group 15, as far as a pool's streams go; progress reports are a later part."""

import random
import threading

import pytest

from killpool import Cause, Pool
from reports import tasks
from reports.support import stopwatch

pytestmark = pytest.mark.timeout(120)


def test_results_are_streamed_as_they_come_or_in_order() -> None:
    """G01."""
    with Pool(2) as pool:
        pool.submit(tasks.nothing).result(30)
        with stopwatch() as watch:
            stream = pool.outcomes(tasks.sleep, [2.0, *[0.001] * 9])
            early = [next(stream) for _ in range(9)]
            assert watch.seconds < 0.5
            last = next(stream)
        assert (sorted(o.index or 0 for o in early), last.index) == (list(range(1, 10)), 0)
        assert list(stream) == []
        ordered = list(pool.outcomes(tasks.sleep, [0.3, *[0.001] * 9], ordered=True))
        assert [(o.index, o.value) for o in ordered] == [(0, 0.3), *((n, 0.001) for n in range(1, 10))]


def test_a_stream_goes_on_while_another_thread_submits() -> None:
    """G02."""
    others: list[int] = []
    with Pool(2) as pool:

        def submits() -> None:
            others.extend(f.result(60) for f in [pool.submit(tasks.square, n) for n in range(3000)])

        thread = threading.Thread(target=submits)
        thread.start()
        outcomes = list(pool.outcomes(tasks.square, range(5000)))
        thread.join(60)
    assert sorted(o.index or 0 for o in outcomes) == list(range(5000))
    assert all(o.index is not None and o.value == o.index**2 for o in outcomes)
    assert others == [n * n for n in range(3000)]


def test_an_ordered_list_has_the_failures_in_their_places() -> None:
    """G04."""
    chance = random.Random(4)
    seconds = [chance.uniform(0, 0.05) for _ in range(50)]
    seconds[7] = 30.0
    with Pool(4, timeout=2.0) as pool:
        outcomes = list(pool.outcomes(tasks.sleep, seconds, ordered=True))
        assert list(pool.map(tasks.sleep, seconds[8:])) == seconds[8:]
    assert [o.value for o in outcomes] == [s if s < 1 else None for s in seconds]
    assert [o.index for o in outcomes if not o.ok] == [7]
    assert outcomes[7].cause is Cause.TIMEOUT
