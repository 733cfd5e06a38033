"""Group 8: memory limits that hit the guilty call, say so, and leave the pool working."""

import itertools
import mmap
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import census
from killpool import Cause, LimitExceeded, Limits, Pool, RestartPolicy, WorkerLost
from killpool.spec import Isolation
from reports import tasks
from reports.support import run_script

pytestmark = pytest.mark.timeout(120)

_MB = 1_000_000


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_call_over_its_memory_is_killed_and_its_neighbour_is_not(isolation: Isolation) -> None:
    """M01."""
    with Pool(2, limits=Limits(memory="256M"), isolation=isolation) as pool:
        hog = pool.submit(tasks.hog_memory, 1000 * _MB)
        neighbour = pool.submit(tasks.take_memory, 20 * _MB)
        assert neighbour.result(30) == 20 * _MB
        outcome = hog.outcome(30)
        assert (outcome.cause, type(outcome.error)) == (Cause.OOM, LimitExceeded)
        assert outcome.limit is not None
        assert (outcome.limit.name, outcome.limit.whose, outcome.limit.value) == ("memory", "pool", 256 * 1024 * 1024)
        assert 100 * _MB < outcome.usage.peak_rss < 900 * _MB
        assert pool.submit(tasks.take_memory, 20 * _MB).result(30) == 20 * _MB


def test_deaths_from_outside_by_memory_and_by_deadline_are_three_causes(mark: str) -> None:
    """M02."""
    with Pool(3, limits=Limits(memory="128M")) as pool:
        outside = pool.schedule(tasks.block_as, (mark,), tag="outside", index=10)
        memory = pool.schedule(tasks.hog_memory, (400 * _MB,), tag="memory", index=11)
        late = pool.schedule(tasks.block, timeout=0.5, tag="deadline", index=12)
        assert census.wait_until(lambda: census.find(mark))
        assert census.kill_exactly(census.find(mark)[0], signal.SIGKILL)
        outcomes = [f.outcome(30) for f in (outside, memory, late)]
    assert [(o.tag, o.index, o.cause, o.signal) for o in outcomes] == [
        ("outside", 10, Cause.SIGNAL, 9),
        ("memory", 11, Cause.OOM, 9),
        ("deadline", 12, Cause.TIMEOUT, 9),
    ]
    assert (outcomes[0].killed_by_us, outcomes[2].killed_by_us) == (False, True)
    assert [type(o.error) is WorkerLost for o in outcomes] == [True, False, False]
    assert all(o.pid and o.usage.wall > 0 and o.usage.peak_rss > _MB for o in outcomes)
    assert len({o.pid for o in outcomes}) == 3


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_limit_counts_the_calls_own_memory_and_not_the_hosts(isolation: Isolation) -> None:
    """M03."""
    with mmap.mmap(-1, 2 << 30) as mapped:
        mapped[:: 1 << 20] = b"x" * 2048
        with Pool(1, limits=Limits(memory="1G"), isolation=isolation) as pool:
            assert pool.submit(tasks.take_with_extension, 50 * _MB).result(30) == 50 * _MB


_ABOVE_HARD_LIMIT = """
import resource
from reports import tasks
from killpool import Limits, Pool
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for limits in (Limits(open_files=1000), Limits(file_size="2M")):
    try:
        Pool(1, limits=limits)
    except Exception as error:
        print(type(error).__name__, error)
with Pool(1, limits=Limits(open_files=100)) as pool:
    print(pool.submit(tasks.descriptor_limit).result(30))
    for limits in (Limits(open_files=1000), Limits(file_size="2M")):
        try:
            outcome = pool.schedule(tasks.descriptor_limit, limits=limits).outcome(30)
            print(outcome.cause, outcome.value, outcome.error)
        except Exception as error:
            print(type(error).__name__, error)
    print(pool.schedule(tasks.square, (3,), limits=Limits(open_files=200)).outcome(30).value)
"""


def test_a_limit_above_the_hard_limit_is_one_clear_error() -> None:
    """M04."""
    done = run_script(_ABOVE_HARD_LIMIT)
    assert (done.status, done.err) == (0, "")
    first, second, used, third, fourth, last = done.out.splitlines()
    assert first == "UnsupportedPlatform limits.open_files of 1000 is above this process's hard limit of 256"
    assert second == "UnsupportedPlatform limits.file_size of 2097152 is above this process's hard limit of 1048576"
    assert used == "(100, 256)"
    # A limit of one call's own: refused when the call is made, or at the least no failure of the task's.
    for line in (third, fourth):
        assert "hard limit" in line
        assert not line.startswith("exception")
    assert last == "9"


def test_recycled_workers_give_leaked_memory_back() -> None:
    """M05."""
    with Pool(1, max_tasks_per_worker=5) as pool:
        told = [pool.submit(tasks.leak, 20 * _MB).result(30) for _ in range(30)]
    runs = [(pid, len(list(calls))) for pid, calls in itertools.groupby(pid for pid, _rss in told)]
    assert [count for _pid, count in runs] == [5] * 6
    assert len({pid for pid, _count in runs}) == 6
    assert max(rss for _pid, rss in told) < 150 * _MB
    assert max(rss for _pid, rss in told) > 100 * _MB  # it did leak


_RECYCLES = """
import warnings
warnings.simplefilter("always")
from reports import tasks
from killpool import Pool
with Pool(2, max_tasks_per_worker=1) as pool:
    print(len({f.result(30) for f in [pool.submit(tasks.pid) for _ in range(20)]}))
    print(pool.statistics().idle_deaths)
"""


def test_planned_recycling_prints_nothing_and_counts_as_no_death() -> None:
    """M06."""
    done = run_script(_RECYCLES)
    assert (done.status, done.out, done.err) == (0, "20\n0\n", "")


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_memory_kills_in_a_row_do_not_stall_the_queue(isolation: Isolation) -> None:
    """M07."""
    policy = RestartPolicy(max_restarts=1)  # kills of running calls spend nothing of it
    with Pool(1, limits=Limits(memory="96M"), restart=policy, isolation=isolation) as pool:
        hogs = [pool.submit(tasks.hog_memory, 400 * _MB) for _ in range(5)]
        good = [pool.submit(tasks.square, n) for n in range(5)]
        assert [f.outcome(60).cause for f in hogs] == [Cause.OOM] * 5
        assert [f.result(30) for f in good] == [0, 1, 4, 9, 16]


class _Counted:
    """An endless generator that counts how often it was asked."""

    def __init__(self) -> None:
        self.pulls = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.pulls += 1
            yield self.pulls


def _map(pool: Pool, source: Any) -> Iterator[Any]:
    return pool.map(tasks.square, source)


def _stream(pool: Pool, source: Any) -> Iterator[Any]:
    return pool.outcomes(tasks.square, source)


def _ordered(pool: Pool, source: Any) -> Iterator[Any]:
    return pool.outcomes(tasks.square, source, ordered=True)


@pytest.mark.parametrize("way", [_map, _stream, _ordered], ids=["map", "stream", "ordered stream"])
def test_an_endless_input_is_pulled_a_bounded_number_ahead(way: Any) -> None:
    """M08."""
    source = _Counted()
    with Pool(2) as pool:
        results = way(pool, source)
        assert len(list(itertools.islice(results, 10))) == 10
        results.close()
        assert source.pulls <= 10 + 2 * 2 + 128  # the window that Pool documents
        assert pool.submit(tasks.square, 3).result(30) == 9
