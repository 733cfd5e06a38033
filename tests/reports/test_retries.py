"""Group 16, as far as a pool's `retries` go: never twice at once, never for somebody else's death, never by default."""

from pathlib import Path

import pytest

from killpool import Cause, Limits, Pool
from killpool.spec import Isolation
from reports import tasks
from reports.support import lines

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_second_attempt_starts_when_the_first_is_dead(isolation: Isolation, log: Path, tmp_path: Path) -> None:
    """Y02."""
    with Pool(2, isolation=isolation) as pool:
        outcome = pool.schedule(tasks.stamp_then_hang, (str(log),), timeout=1.0, retries=1).outcome(30)
        assert (outcome.cause, outcome.attempts) == (Cause.TIMEOUT, 2)
        first, second = (line.split() for line in lines(log))
        assert [first[0], second[0]] == ["start", "start"]
        assert first[1] != second[1]
        assert float(second[2]) - float(first[2]) >= 1.0
        assert second[3] == "alive=[]"

        once = tmp_path / "once"
        outcome = pool.schedule(tasks.stamp_then_hang, (str(once),), timeout=1.0).outcome(30)
        assert (outcome.cause, outcome.attempts) == (Cause.TIMEOUT, 1)
        assert len(lines(once)) == 1


def test_calls_that_wait_behind_a_death_are_not_charged_for_it() -> None:
    """Y03."""
    with Pool(1) as pool:
        pool.schedule(tasks.square, (1,)).result(30)
        for _ in range(50):
            pool.submit(tasks.square, 1).result(30)  # short calls: many are now sent ahead into the worker
        killer = pool.schedule(tasks.die, retries=0)
        bystanders = [pool.schedule(tasks.square, (n,), retries=0) for n in range(50)]
        assert killer.outcome(30).cause is Cause.SIGNAL
        outcomes = [f.outcome(30) for f in bystanders]
    assert [(o.value, o.attempts) for o in outcomes] == [(n * n, 1) for n in range(50)]


def test_a_death_is_retried_and_an_answer_is_not(log: Path, tmp_path: Path) -> None:
    """Y04: the fixed rule of a pool; a predicate of one's own, with back-off, is a later part."""
    with Pool(1) as pool:
        outcome = pool.schedule(tasks.die_first_time, (str(log),), retries=1).outcome(30)
        assert (outcome.value, outcome.attempts, len(lines(log))) == (7, 2, 2)
        raised = tmp_path / "raised"
        outcome = pool.schedule(tasks.append_then_raise, (str(raised),), retries=3).outcome(30)
        assert (outcome.cause, outcome.attempts, len(lines(raised))) == (Cause.EXCEPTION, 1, 1)


@pytest.mark.parametrize(("retries", "runs"), [(0, 1), (2, 3)], ids=["at most once", "at least once"])
def test_a_deadly_call_runs_as_often_as_was_asked_for_and_no_more(retries: int, runs: int, tmp_path: Path) -> None:
    """Y05."""
    died, hogged = tmp_path / "died", tmp_path / "hogged"
    with Pool(1, limits=Limits(memory="96M")) as pool:
        first = pool.schedule(tasks.append_then_die, (str(died),), retries=retries)
        second = pool.schedule(tasks.append_then_hog, (str(hogged), 400_000_000), retries=retries)
        outcomes = [first.outcome(60), second.outcome(60)]
        assert pool.submit(tasks.square, 3).result(30) == 9
    assert [(o.cause, o.attempts) for o in outcomes] == [(Cause.SIGNAL, runs), (Cause.OOM, runs)]
    assert (len(lines(died)), len(lines(hogged))) == (runs, runs)
