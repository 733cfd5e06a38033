"""What a pool uses up over time: nothing.  Workers that die while they are idle are replaced unnoticed."""

import os
import tempfile
from pathlib import Path

import pytest

import census
import tasks
from killpool import Cause, Pool
from killpool.spec import Contain

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_sixty_timeouts_leave_no_descriptor_no_zombie_and_no_file(tier: Contain, isolation: str) -> None:
    with Pool(2, contain=tier, isolation=isolation, capture_output=True) as pool:  # type: ignore[arg-type]

        def causes(count: int) -> list[Cause]:
            return [o.cause for o in pool.outcomes(_block, range(count), timeout=0.02)]

        def is_at_rest() -> bool:
            statistics = pool.statistics()
            return statistics.workers == 3 and statistics.in_flight == 0  # two and a spare

        assert causes(4) == [Cause.TIMEOUT] * 4
        assert census.wait_until(is_at_rest)
        supervisor = pool.statistics().supervisor_pid
        before = len(census.open_files()), len(census.open_files(supervisor))
        assert causes(60) == [Cause.TIMEOUT] * 60

        def have_settled() -> bool:
            now = len(census.open_files()), len(census.open_files(supervisor))
            return is_at_rest() and all(x - y <= 2 for x, y in zip(now, before, strict=True))

        assert census.wait_until(have_settled), (before, census.open_files(), census.open_files(supervisor))
        assert census.wait_until(lambda: census.zombies(supervisor) == [] and census.zombies() == [])
        assert os.listdir(tempfile.gettempdir()) == []
        assert pool.statistics().survivors == 0
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def _block(_: int) -> None:
    tasks.block()


def test_an_idle_worker_that_is_killed_is_replaced_unnoticed(tier: Contain) -> None:
    with Pool(2, contain=tier) as pool:
        for _ in range(5):
            pid = pool.submit(tasks.pid).result(30)
            assert census.is_alive(pid)
            assert census.kill_exactly(pid)
            assert pool.submit(tasks.add, 1, 2).outcome(30).value == 3
        assert census.wait_until(lambda: pool.statistics().idle_deaths == 5)
        assert pool.statistics().supervisor_restarts == 0


def test_workers_killed_between_two_calls_cost_no_call_but_the_one_that_ran() -> None:
    # A SIGKILL at a random moment either meets a running call, which is charged, or it does not and nobody is.
    with Pool(2) as pool:
        pool.submit(tasks.add, 1, 2).result(30)
        kills, failures = 0, 0
        for n in range(400):
            future = pool.submit(tasks.add, n, 1)
            if n % 50 == 25:
                pids = pool.statistics().worker_pids
                kills += bool(pids) and census.kill_exactly(pids[0])
            outcome = future.outcome(30)
            assert outcome.value == n + 1 or (outcome.cause, outcome.signal) == (Cause.SIGNAL, 9)
            failures += not outcome.ok
        assert kills == 8
        assert failures <= kills


def test_a_killed_template_is_replaced_unnoticed() -> None:
    with Pool(1) as pool:
        pool.submit(tasks.add, 1, 2).result(30)
        supervisor = pool.statistics().supervisor_pid
        template = [p for p in census.children(supervisor) if census.command_name(p).startswith("kp-tmpl")]
        assert len(template) == 1
        assert census.kill_exactly(template[0])
        assert census.wait_until(lambda: pool.statistics().template_restarts == 1)
        assert pool.schedule(tasks.block, timeout=0.1).outcome(30).cause is Cause.TIMEOUT
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_a_pool_that_was_never_used_and_one_that_was_dropped_leave_nothing(tier: Contain) -> None:
    with census.nothing_left():
        Pool(2, contain=tier).shutdown()
        dropped = Pool(2, contain=tier)
        assert dropped.submit(tasks.add, 1, 2).result(30) == 3
        del dropped


def test_killing_a_pool_ends_what_runs_and_what_waits(tier: Contain, tmp_path: Path) -> None:
    mark = census.new_mark()
    pool = Pool(1, contain=tier)
    running = pool.submit(tasks.daemon, mark)
    waiting = [pool.submit(tasks.append, str(tmp_path / "file"), "x") for _ in range(200)]
    assert len(census.wait_for(2, mark)) == 2
    pool.kill()
    assert census.find(mark) == []
    assert [f.outcome(10).cause for f in (running, *waiting)] == [Cause.CANCELLED] * 201
    assert not (tmp_path / "file").exists()
    pool.kill()
    pool.shutdown()


def test_leaving_the_block_by_an_exception_kills_what_runs(tier: Contain) -> None:
    mark = census.new_mark()
    with pytest.raises(KeyboardInterrupt), Pool(1, contain=tier) as pool:
        future = pool.submit(tasks.bush, mark, 20)
        assert len(census.wait_for(21, mark)) == 21
        raise KeyboardInterrupt
    assert census.find(mark) == []
    assert future.outcome(10).cause is Cause.CANCELLED
