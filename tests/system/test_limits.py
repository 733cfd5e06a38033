"""A limit that is accepted has an effect, on the whole tree, and the outcome names it."""

import os
import signal
from pathlib import Path

import pytest

import census
import tasks
from killpool import Cause, LimitExceeded, Limits, Pool
from killpool.spec import Contain

pytestmark = pytest.mark.timeout(120)

MB = 1024 * 1024


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_task_over_its_memory_is_killed(tier: Contain, isolation: str) -> None:
    mark = census.new_mark()
    with Pool(1, contain=tier, isolation=isolation) as pool:  # type: ignore[arg-type]
        limits = Limits(memory=128 * MB, wall=60)
        outcome = pool.schedule(tasks.hog_memory, (mark, 400 * MB), limits=limits).outcome(60)
        assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.OOM, 0, [])
        assert outcome.limit is not None
        assert (outcome.limit.name, outcome.limit.whose, outcome.limit.value) == ("memory", "task", 128 * MB)
        assert isinstance(outcome.error, LimitExceeded)
        fine = pool.schedule(tasks.add, (1, 2), limits=limits).outcome(60)
        assert fine.value == 3


def test_children_count_against_the_memory_of_their_tree(tier: Contain) -> None:
    mark = census.new_mark()
    with Pool(1, contain=tier, limits=Limits(memory="300M", wall=60)) as pool:
        outcome = pool.submit(tasks.hog_memory_in_children, mark, 100 * MB, 5).outcome(60)
        assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.OOM, 0, [])
        assert outcome.limit is not None
        assert outcome.limit.whose == "pool"


@pytest.mark.parametrize("function", [tasks.burn, tasks.burn_in_child])
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_tree_over_its_cpu_time_is_killed(tier: Contain, function: object, isolation: str) -> None:
    mark = census.new_mark()
    with Pool(1, contain=tier, isolation=isolation) as pool:  # type: ignore[arg-type]
        pool.submit(tasks.spin, 0.3).result(30)  # an earlier call's time is not this call's
        future = pool.schedule(function, (mark,), limits=Limits(cpu=0.5, wall=60))  # type: ignore[arg-type]
        assert census.wait_for(1, mark)
        outcome = future.outcome(90)
        assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.CPU_TIME, 0, [])
        assert outcome.usage.wall >= 0.3
        assert pool.schedule(tasks.spin, (0.1,), limits=Limits(cpu=5.0)).outcome(30).ok


def test_a_tree_with_too_many_processes_is_killed(tier: Contain) -> None:
    mark = census.new_mark()
    with Pool(1, contain=tier) as pool:
        outcome = pool.schedule(tasks.bush, (mark,), limits=Limits(processes=20, wall=60)).outcome(90)
        assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.PROCESS_LIMIT, 0, [])
        assert pool.schedule(tasks.add, (1, 2), limits=Limits(processes=20)).outcome(30).value == 3


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_open_files_are_limited_for_the_call_and_not_for_the_next(isolation: str) -> None:
    with Pool(1, isolation=isolation) as pool:  # type: ignore[arg-type]
        opened = pool.schedule(tasks.open_many, (200,), limits=Limits(open_files=64)).result(30)
        assert 0 < opened < 64
        assert pool.submit(tasks.open_many, 200).result(30) == 200
    with Pool(1, isolation=isolation, limits=Limits(open_files=64)) as pool:  # type: ignore[arg-type]
        assert 0 < pool.submit(tasks.open_many, 200).result(30) < 64


def test_a_file_over_its_size_is_the_named_cause(tmp_path: Path, tier: Contain) -> None:
    path = str(tmp_path / "file")
    with Pool(1, contain=tier, limits=Limits(file_size=100_000)) as pool:
        assert pool.submit(tasks.write_file, path, 100_000).outcome(30).value == 100_000
        outcome = pool.submit(tasks.write_file, path, 100_001).outcome(30)
        assert (outcome.cause, outcome.signal) == (Cause.FILE_LIMIT, signal.SIGXFSZ)
        assert os.path.getsize(path) == 100_000
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_output_up_to_the_limit_is_fine_and_a_byte_more_is_not(tier: Contain, stream: str, isolation: str) -> None:
    cap = 200_000
    with Pool(  # type: ignore[call-overload]
        1, contain=tier, capture_output=True, isolation=isolation, limits=Limits(output=cap, wall=60)
    ) as pool:
        for count, cause in ((cap, Cause.OK), (cap + 1, Cause.OUTPUT_LIMIT), (1, Cause.OK), (cap, Cause.OK)):
            outcome = pool.submit(tasks.print_bytes, count, stream).outcome(90)
            assert (outcome.cause, count) == (cause, count)
            kept = getattr(outcome, stream)
            assert kept.total == count
            assert kept.truncated is (count > len(kept.data))
            assert set(kept.data) <= {ord("o")}


def test_an_output_flood_is_killed_and_its_beginning_kept(tier: Contain) -> None:
    mark = census.new_mark()
    with Pool(1, contain=tier, capture_output=True) as pool:
        outcome = pool.schedule(tasks.flood, (mark,), limits=Limits(output="1M", wall=60)).outcome(90)
        assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.OUTPUT_LIMIT, 0, [])
        assert outcome.stdout.total > MB
        assert outcome.stdout.truncated
        assert len(outcome.stdout.data) > 0


def test_a_call_without_limits_after_one_with_limits_has_none() -> None:
    mark = census.new_mark()
    with Pool(1) as pool:
        assert pool.schedule(tasks.add, (1, 2), limits=Limits(cpu=0.1, memory="64M", processes=2)).result(30) == 3
        assert pool.submit(tasks.spin, 1.0).outcome(30).ok
        future = pool.submit(tasks.bush, mark, 10)
        assert len(census.wait_for(11, mark)) == 11
        future.cancel()
        assert future.outcome(30).cause is Cause.CANCELLED
