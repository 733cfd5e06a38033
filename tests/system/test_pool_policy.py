"""Strategy, initializers, budget, cancelling and recycling: the pool as a supervised set of workers."""

import os
import threading
from pathlib import Path

import pytest

import census
import tasks
from killpool import Cause, Pool, PoolBroken, PoolClosed, RestartPolicy, StartFailed, TaskCancelled
from killpool.spec import Contain

pytestmark = pytest.mark.timeout(120)


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("initializer", [tasks.failing_initializer, tasks.dying_initializer])
def test_a_failing_initializer_ends_in_one_clear_error_after_the_budget(tmp_path: Path, initializer: object) -> None:
    path = tmp_path / "starts"
    policy = RestartPolicy(max_restarts=4, within=60, initial_backoff=0.01, max_backoff=0.05)
    with Pool(1, initializer=initializer, initargs=(str(path),), restart=policy) as pool:  # type: ignore[arg-type]
        futures = [pool.submit(tasks.add, 1, n) for n in range(20)]
        outcomes = [f.outcome(60) for f in futures]
        assert {o.cause for o in outcomes} == {Cause.START_FAILED}
        assert {type(o.error) for o in outcomes} == {StartFailed}
        with pytest.raises(PoolBroken) as caught:
            pool.submit(tasks.add, 1, 2)
        assert pool.statistics().is_broken
    if initializer is tasks.failing_initializer:
        assert "the database is not there" in str(caught.value)
        assert isinstance(caught.value.__cause__, RuntimeError)
    # The first start and max_restarts more, for each of the one worker and its spare at the most: no storm.
    assert 1 <= len(_lines(path)) <= 2 * (1 + policy.max_restarts)


def test_an_initializer_runs_once_in_each_worker_that_takes_a_place(tmp_path: Path) -> None:
    path = tmp_path / "starts"
    with Pool(2, initializer=tasks.counting_initializer, initargs=(str(path),)) as pool:
        assert [f.result(30) for f in [pool.submit(tasks.add, n, 1) for n in range(100)]] == list(range(1, 101))
        before = len(_lines(path))
        assert before <= 2
        assert pool.schedule(tasks.block, timeout=0.2).outcome(30).cause is Cause.TIMEOUT
        assert pool.submit(tasks.add, 1, 2).result(30) == 3
        assert before <= len(_lines(path)) <= before + 1


def test_timeouts_spend_no_restart_budget() -> None:
    with Pool(1, restart=RestartPolicy(max_restarts=0)) as pool:
        for _ in range(10):
            assert pool.schedule(tasks.block, timeout=0.05).outcome(30).cause is Cause.TIMEOUT
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_one_for_all_restarts_every_worker_when_one_dies_and_tells_or_retries_their_calls(
    tier: Contain, tmp_path: Path
) -> None:
    gate, path, mark, other = str(tmp_path / "gate"), tmp_path / "lines", census.new_mark(), census.new_mark()
    os.mkfifo(gate)
    with Pool(2, contain=tier, strategy="one_for_all") as pool:
        told = pool.submit(tasks.block_as, mark)
        assert len(census.wait_for(1, mark)) == 1
        deadly = pool.submit(tasks.kill_own_group, gate, other)
        assert len(census.wait_for(2, other)) == 2
        pids = set(pool.statistics().worker_pids)
        tasks.open_gate(gate)
        assert (deadly.outcome(60).cause, deadly.outcome().signal) == (Cause.SIGNAL, 9)
        assert told.outcome(60).cause is Cause.LOST
        assert census.find(mark) == census.find(other) == []
        assert pool.submit(tasks.add, 1, 2).result(30) == 3
        assert pids.isdisjoint(pool.statistics().worker_pids)
        futures = [pool.schedule(tasks.line_or_death, (n, 25, str(path)), retries=3) for n in range(1, 100)]
        assert [f.outcome(60).ok for f in futures] == [n % 25 != 0 for n in range(1, 100)]


def test_a_waiting_call_is_cancelled_for_nothing_and_never_runs(tmp_path: Path) -> None:
    gate, path = str(tmp_path / "gate"), tmp_path / "lines"
    os.mkfifo(gate)
    with Pool(1) as pool:
        first = pool.submit(tasks.pass_gate, gate)
        assert census.wait_until(first.running)
        waiting = [pool.submit(tasks.append, str(path), str(n)) for n in range(100)]
        cancelled = [f.cancel() for f in waiting[::2]]
        tasks.open_gate(gate)
        pid = first.result(30)
        assert [f.outcome(60).cause for f in waiting[1::2]] == [Cause.OK] * 50
        assert pool.submit(tasks.pid).result(30) == pid  # nobody was killed for it
    assert cancelled == [True] * 50
    assert [f.cancelled() for f in waiting[::2]] == [True] * 50
    assert _lines(path) == [str(n) for n in range(1, 100, 2)]


def test_a_running_call_is_killed_with_its_tree_when_it_is_cancelled(tier: Contain) -> None:
    with Pool(2, contain=tier) as pool:
        for size in (10, 100):
            mark = census.new_mark()
            future = pool.submit(tasks.bush, mark, size)
            assert len(census.wait_for(size + 1, mark)) == size + 1
            assert future.running()
            assert future.cancel()
            outcome = future.outcome(60)
            assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.CANCELLED, 0, [])
            assert future.cancelled()
            assert future.done()
            assert future.cancel()
            with pytest.raises(TaskCancelled):
                future.result()
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_a_finished_call_cannot_be_cancelled() -> None:
    with Pool(1) as pool:
        future = pool.submit(tasks.add, 1, 2)
        assert future.result(30) == 3
        assert not future.cancel()
        assert not future.cancelled()


def test_calls_cancelled_at_any_moment_end_once_and_never_yield_a_value_after_true() -> None:
    with Pool(2) as pool:
        futures = [pool.submit(tasks.spin, 0.0005) for _ in range(600)]
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.extend(f.cancel() for f in futures[::3]))
        thread.start()
        thread.join(60)
        outcomes = [f.outcome(60) for f in futures]
        for answer, outcome in zip(answers, outcomes[::3], strict=True):
            assert outcome.cause is (Cause.CANCELLED if answer else Cause.OK)
        assert all(o.ok for n, o in enumerate(outcomes) if n % 3)


def test_a_worker_is_replaced_after_its_number_of_calls(tmp_path: Path) -> None:
    with Pool(1, max_tasks_per_worker=5) as pool:
        pids = [f.result(30) for f in [pool.submit(tasks.pid) for _ in range(50)]]
        assert {pids.count(p) for p in pids} == {5}
        assert len(set(pids)) == 10
        assert pool.statistics().idle_deaths == 0


def test_every_call_has_a_process_of_its_own_with_process_isolation(tier: Contain) -> None:
    with Pool(2, contain=tier, isolation="process") as pool:
        pids = [f.result(30) for f in [pool.submit(tasks.pid) for _ in range(100)]]
        assert len(set(pids)) == 100


def test_higher_priorities_start_first_and_equal_ones_in_order(tmp_path: Path) -> None:
    gate, path = str(tmp_path / "gate"), tmp_path / "lines"
    os.mkfifo(gate)
    with Pool(1, isolation="process", spares=0) as pool:
        first = pool.submit(tasks.pass_gate, gate)
        assert census.wait_until(lambda: pool.statistics().busy == 1)
        for n, priority in enumerate([0, 5, 0, 9, 5]):
            pool.schedule(tasks.append, (str(path), str(n)), priority=priority)
        tasks.open_gate(gate)
        first.result(30)
    assert _lines(path) == ["3", "1", "4", "0", "2"]


def test_a_closed_pool_takes_no_call_and_finishes_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    pool = Pool(1)
    futures = [pool.submit(tasks.append, str(path), str(n)) for n in range(50)]
    pool.shutdown(wait=True)
    assert [f.done() for f in futures] == [True] * 50
    assert _lines(path) == [str(n) for n in range(50)]
    with pytest.raises(PoolClosed):
        pool.submit(tasks.add, 1, 2)
    with pytest.raises(RuntimeError):
        pool.submit(tasks.add, 1, 2)


def test_a_shutdown_that_cancels_lets_the_running_call_end_and_no_other_begin(tmp_path: Path) -> None:
    gate, path = str(tmp_path / "gate"), tmp_path / "lines"
    os.mkfifo(gate)
    pool = Pool(1)
    running = pool.submit(tasks.pass_gate, gate)
    assert census.wait_until(running.running)
    waiting = [pool.submit(tasks.append, str(path), str(n)) for n in range(50)]
    pool.shutdown(wait=False, cancel_futures=True)
    assert [f.cancelled() for f in waiting] == [True] * 50
    tasks.open_gate(gate)
    assert running.outcome(30).ok
    pool.shutdown()
    assert _lines(path) == []


def test_outcomes_are_streamed_from_an_endless_generator_with_a_bounded_look_ahead() -> None:
    pulled = 0

    def inputs():  # type: ignore[no-untyped-def]
        nonlocal pulled
        while True:
            pulled += 1
            yield pulled - 1

    with Pool(2) as pool:
        stream = pool.outcomes(tasks.echo, inputs(), timeout=30, ordered=True)
        assert [next(stream).value for _ in range(1000)] == list(range(1000))
        stream.close()
    assert pulled < 1000 + 1000
