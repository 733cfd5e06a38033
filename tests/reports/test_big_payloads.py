"""Group 7: large arguments and results block nobody, and a kill in the middle of one spoils no other."""

import random

import pytest

from killpool import Cause, Pool
from killpool.spec import INLINE_MAX
from reports import tasks
from reports.support import stopwatch

pytestmark = pytest.mark.timeout(120)


def test_results_of_any_size_come_back_whole() -> None:
    """B01."""
    with Pool(2) as pool, stopwatch() as watch:
        futures = [pool.submit(tasks.big, 40_000_000) for _ in range(4)]
        assert [len(f.result(30)) for f in futures] == [40_000_000] * 4
        sizes = [INLINE_MAX + n for n in (-1, 0, 1)]  # here it is where values begin to cross by memfd
        assert INLINE_MAX == 65536
        assert [pool.submit(tasks.big, n).result(30) for n in sizes] == [b"r" * n for n in sizes]
        assert [pool.submit(tasks.echo, b"a" * n).result(30) for n in sizes] == [b"a" * n for n in sizes]
    assert watch.seconds < 10


def test_a_large_argument_blocks_neither_its_submitter_nor_the_end() -> None:
    """B02."""
    argument = bytes(50_000_000)
    with stopwatch() as whole:
        with Pool(1) as pool:
            pool.submit(tasks.nothing).result(30)
            busy = pool.schedule(tasks.sleep, (3,), timeout=3.5)
            with stopwatch() as watch:
                large = pool.schedule(tasks.size_of, (argument,), timeout=2.0)
            assert watch.seconds < 0.5
        assert (busy.result(0), large.result(0)) == (3, 50_000_000)
    assert whole.seconds < 3.5 + 2.0

    with stopwatch() as whole, Pool(1) as pool:
        pool.submit(tasks.nothing).result(30)
        hung = pool.schedule(tasks.sleep, (30,), timeout=1.0)
        large = pool.schedule(tasks.size_of, (argument,), timeout=2.0)
    assert (hung.outcome(0).cause, large.result(0)) == (Cause.TIMEOUT, 50_000_000)
    assert whole.seconds < 4.0


def test_a_kill_in_the_middle_of_a_large_result_spoils_no_other() -> None:
    """B04."""
    chance = random.Random(13)
    causes: list[Cause] = []
    with Pool(4) as pool:
        pool.submit(tasks.nothing).result(30)
        for n in range(100):
            large = pool.schedule(tasks.big, (30_000_000,), timeout=chance.uniform(0.001, 0.06))
            small = [pool.submit(tasks.echo, f"{n} {k}") for k in range(3)]
            assert [f.result(30) for f in small] == [f"{n} {k}" for k in range(3)]
            outcome = large.outcome(30)
            causes.append(outcome.cause)
            assert outcome.cause is Cause.TIMEOUT or len(outcome.value) == 30_000_000
        assert pool.statistics().survivors == 0
    assert set(causes) == {Cause.OK, Cause.TIMEOUT}  # else the deadlines did not land where they were meant to
