"""When an outcome arrives its whole process tree is gone, whatever shape it has, whoever runs it."""

from typing import Any

import pytest

import census
import tasks
from killpool import Cause, Pool
from killpool.spec import Contain
from stage import Place

pytestmark = pytest.mark.timeout(120)

KILLED: dict[str, Any] = {
    "cause": "timeout",
    "signal": 9,
    "exitcode": None,
    "killed_by_us": True,
    "survivors": 0,
    "alive after": 0,
    "stopped": True,
    "next call": 3,
}


@pytest.mark.parametrize("shape", list(tasks.SHAPES))
def test_a_tree_is_gone_when_its_timeout_is_told(place: Place, shape: str) -> None:
    seen = place.scenario("shape", shape)
    expected = {**KILLED, "alive before": tasks.SHAPES[shape][1]}
    if shape == "output pipe held by a daemon":
        expected["stdout"] = "before the fork\n"
    assert seen == expected


@pytest.mark.parametrize("shape", ["bush of sessions", "every signal ignored", "C code that holds the GIL"])
def test_a_tree_of_a_fresh_process_is_gone_when_its_timeout_is_told(place: Place, shape: str) -> None:
    seen = place.scenario("shape", shape, "process")
    assert seen == {**KILLED, "alive before": tasks.SHAPES[shape][1]}


@pytest.mark.parametrize("codec", ["pickle", "json"])
def test_a_bush_is_gone_at_its_outcome_at_whatever_moment_of_its_growth_it_is_killed(tier: Contain, codec: str) -> None:
    grown = 0
    with Pool(1, contain=tier, codec=codec, isolation="process") as pool:  # type: ignore[arg-type]
        pool.submit(tasks.add, 1, 2).result(30)
        for moment in range(40):
            mark = census.new_mark()
            outcome = pool.schedule(tasks.bush, (mark,), timeout=0.004 + 0.002 * moment).outcome(60)
            assert (census.find(mark), outcome.survivors) == ([], 0)
            grown += outcome.descendants_killed
    assert grown > 0  # else none had begun to grow


def test_a_task_that_kills_its_group_kills_itself_and_nobody_else(place: Place) -> None:
    assert place.scenario("own_group") == {
        "cause": "signal",
        "signal": 9,
        "exitcode": None,
        "killed_by_us": False,
        "survivors": 0,
        "before": [2, 1],
        "after": [0, 1],
        "neighbour": True,
        "next call": 3,
        "supervisor restarts": 0,
    }


def test_a_task_that_kills_its_parent_is_harmless_in_a_namespace_and_costs_a_supervisor_elsewhere(
    place: Place,
) -> None:
    is_namespaced = place.contain == "pidns"
    assert place.scenario("parent") == {
        "before": [1, 2],
        "early": True,
        "call": "timeout" if is_namespaced else "lost",
        "neighbour": "timeout" if is_namespaced else "lost",
        "survivors": 0,
        "after": [0, 0],
        "waiting": 4,
        "next call": 3,
        "supervisor restarts": 0 if is_namespaced else 1,
    }


def test_a_killed_supervisor_takes_its_workers_and_their_daemons_along_and_the_pool_goes_on(place: Place) -> None:
    assert place.scenario("supervisor_killed") == {
        "before": [2, 21],
        "causes": ["lost", "lost"],
        "survivors": [0, 0],
        "after": [0, 0],
        "machinery gone": True,
        "waiting": 4,
        "next call": 3,
        "supervisor restarts": 1,
    }


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_daemon_that_holds_the_output_of_a_finished_call_holds_nothing_up(place: Place, isolation: str) -> None:
    seen = place.scenario("daemon_left", isolation)
    left = seen.pop("left")
    assert seen == {
        "cause": "ok",
        "signal": None,
        "exitcode": None,
        "killed_by_us": False,
        "survivors": 0,
        "value": "returned",
        "stdout": "from the call\n",
        "next call": 3,
        "after the pool": 0,
    }
    # A fresh process ends with its call and takes all it started along; a worker's daemons live as long as it does.
    assert left == (0 if isolation == "process" else 1)


def test_the_stack_signal_does_not_let_a_call_return_after_its_deadline(tier: Contain) -> None:
    # No sleeping C call is started again after a signal handler (signal(7)), ours for the stack included.
    with Pool(2, contain=tier) as pool:
        futures = [pool.schedule(tasks.in_c_sleep, (census.new_mark(),), timeout=0.2) for _ in range(10)]
        assert [f.outcome(60).cause for f in futures] == [Cause.TIMEOUT] * 10


def test_a_nested_pool_works_and_dies_with_the_call_that_made_it(place: Place) -> None:
    if place.contain == "pidns":
        # The worker sees the host's /proc, not its own namespace's: a pool cannot read trees there, and says so.
        assert "belongs to another PID namespace" in place.scenario("nested")["sum"]
        return
    assert place.scenario("nested") == {
        "sum": 42,
        "before": 2,
        "after": 0,
        "cause": "cancelled",
        "survivors": 0,
        "next call": 3,
    }
