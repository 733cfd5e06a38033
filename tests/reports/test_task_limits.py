"""Group 23, as far as a trusted pool goes; sandboxes are a later part."""

from pathlib import Path

import pytest

import census
from killpool import Cause, Limits, Pool
from reports import tasks

pytestmark = pytest.mark.timeout(120)


def test_a_fork_bomb_is_ended_with_all_that_it_forked(mark: str) -> None:
    """U01: the call is killed; a fork error inside the task needs a sandbox."""
    with Pool(1, limits=Limits(processes=20)) as pool:
        outcome = pool.schedule(tasks.fork_bomb, (mark, 200), timeout=10.0).outcome(30)
        assert (outcome.cause, outcome.limit and outcome.limit.value) == (Cause.PROCESS_LIMIT, 20)
        assert outcome.descendants_killed >= 20  # they did live
        assert (census.find(mark), outcome.survivors) == ([], 0)
        assert pool.submit(tasks.square, 3).result(30) == 9


def test_a_fresh_process_finds_the_original_state(tmp_path: Path) -> None:
    """U03."""
    with Pool(1, isolation="process") as pool:
        before = pool.submit(tasks.report_state).result(30)
        for _ in range(3):
            pool.submit(tasks.change_state, str(tmp_path)).result(30)
            assert pool.submit(tasks.report_state).result(30) == before
    assert before[1:] == (False, False)
    with Pool(1) as pool:  # the control: a reused worker keeps what a call changes
        pool.submit(tasks.change_state, str(tmp_path)).result(30)
        assert pool.submit(tasks.report_state).result(30) == (str(tmp_path), True, True)
