"""Group 11: a call may use a pool of its own, of any kind, and takes it along when it dies."""

import os
from collections import Counter
from pathlib import Path

import pytest

import census
from killpool import Cause, Pool
from killpool.spec import Isolation
from reports import tasks
from reports.support import wait_lines

pytestmark = pytest.mark.timeout(120)

_KINDS = ["multiprocessing", "concurrent.futures", "killpool"]


@pytest.mark.parametrize("isolation", ["worker", "process"])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_call_may_open_a_pool(kind: str, isolation: Isolation) -> None:
    """N01."""
    with Pool(1, isolation=isolation) as pool:
        assert pool.submit(tasks.map_in_pool, kind).result(60) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("kind", _KINDS)
def test_an_inner_pool_dies_with_the_call_that_opened_it(kind: str, mark: str, gate: str) -> None:
    """N01."""
    with Pool(1) as pool:
        future = pool.schedule(tasks.hang_in_pool, (kind, mark, gate))
        assert census.wait_until(lambda: len(census.find(mark)) == 2)
        alive = census.find_by_environment(os.environ[census.ENVIRONMENT_MARK])
        future.cancel()
        assert future.outcome(30).cause is Cause.CANCELLED
        assert census.find(mark) == []
        inner = [p for p in alive if p not in (*pool.statistics().worker_pids, pool.statistics().supervisor_pid)]
        assert len([p for p in inner if census.is_alive(p)]) <= 1  # the outer pool's template

        late = pool.schedule(tasks.hang_in_pool, (kind, mark, gate), timeout=5.0)
        assert census.wait_until(lambda: len(census.find(mark)) == 2)
        outcome = late.outcome(30)
        assert (outcome.cause, outcome.survivors) == (Cause.TIMEOUT, 0)
        assert outcome.descendants_killed >= 2
        assert census.find(mark) == []


def test_each_level_of_nesting_has_one_supervisor_and_one_template(gate: str, log: Path) -> None:
    """N02: the two helpers of a pool; all are gone once the outermost call has ended."""
    environment = os.environ[census.ENVIRONMENT_MARK]

    def helpers() -> Counter[str]:
        names = map(census.command_name, census.find_by_environment(environment))
        return Counter(name[:7] for name in names if name.startswith(("kp-sup", "kp-tmpl")))

    with Pool(1) as pool:
        future = pool.submit(tasks.nested_pools, 3, gate, str(log))
        wait_lines(log, 1)
        assert helpers() == {"kp-sup:": 4, "kp-tmpl": 4}  # this pool's, and three below it
        tasks.open_gate(gate)
        assert isinstance(future.result(30), int)
        assert census.wait_until(lambda: helpers() == {"kp-sup:": 1, "kp-tmpl": 1})
    assert helpers() == {}
