"""Group 6: what cannot be pickled fails its own call, at once, and by name; what is untrusted is not unpickled."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import stage
from killpool import Cause, Pool, RemoteError
from killpool.spec import Isolation
from reports import tasks
from reports.support import lines, stopwatch

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("isolation", ["worker", "process"])
@pytest.mark.parametrize(
    ("task", "words"),
    [
        (tasks.lock_result, "result is a _thread.lock"),
        (tasks.nested_lock_result, "result['rows'][1].inside is a _thread.lock"),
        (tasks.generator_result, "result is a builtins.generator"),
    ],
)
def test_a_result_that_cannot_be_pickled_fails_at_once_and_says_where(
    task: Any, words: str, isolation: Isolation
) -> None:
    """P02."""
    with Pool(1, isolation=isolation) as pool:
        pool.submit(tasks.nothing).result(30)
        with stopwatch() as watch:
            outcome = pool.submit(task).outcome(30)
        assert watch.seconds < 2.0
        assert (outcome.cause, type(outcome.error)) == (Cause.EXCEPTION, TypeError)
        assert words in str(outcome.error)
        assert pool.submit(tasks.square, 3).result(30) == 9


def test_an_error_that_cannot_be_pickled_is_told_in_words() -> None:
    """P02."""
    with Pool(1) as pool:
        outcome = pool.submit(tasks.lock_error).outcome(30)
        assert outcome.cause is Cause.EXCEPTION
        assert isinstance(outcome.error, RemoteError)
        assert (outcome.error.type_name, outcome.error.remote_message) == ("ValueError", "holds a lock")
        assert pool.submit(tasks.square, 3).result(30) == 9


@pytest.mark.parametrize("argument", [tasks.RaisesInState(), threading.Lock()], ids=["raises", "lock"])
def test_arguments_that_cannot_be_pickled_are_named_and_close_is_quick(argument: Any) -> None:
    """P03."""
    pool = Pool(1)
    pool.submit(tasks.nothing).result(30)
    futures = [pool.submit(tasks.echo, argument) for _ in range(10)]
    with stopwatch() as watch:
        pool.shutdown(wait=True, cancel_futures=True)
    assert watch.seconds < 1.0
    outcomes = [f.outcome(1) for f in futures]
    assert [(o.cause, type(o.error)) for o in outcomes] == [(Cause.EXCEPTION, TypeError)] * 10
    assert all(str(o.error).startswith("argument 0 of ") for o in outcomes)
    if isinstance(argument, tasks.RaisesInState):
        assert "state is not ready" in str(outcomes[0].error)


@pytest.mark.parametrize(
    "options",
    [{}, {"isolation": "process"}, {"isolation": "process", "codec": "json"}],
    ids=["worker", "process", "json"],
)
def test_lambdas_and_nested_functions_work(options: dict[str, Any]) -> None:
    """P04."""
    factor = 3

    def nested(n: int) -> int:
        return n * factor

    with Pool(1, **options) as pool:
        assert pool.submit(nested, 5).result(30) == 15
        assert pool.submit(lambda n: n + factor, 5).result(30) == 8
        assert pool.submit(lambda: nested(2)).result(30) == 6


def test_an_untrusted_result_runs_no_code_in_the_host(tmp_path: Path) -> None:
    """P05."""
    marker = tmp_path / "marker"
    with Pool(1, isolation="process", codec="json") as pool:
        outcome = pool.submit(tasks.hook_result, str(marker)).outcome(30)
        assert outcome.cause is Cause.EXCEPTION
        assert "Hook" in str(outcome.error)
        assert not marker.exists()
    with Pool(1) as pool:  # the control: where results are trusted, the same value does run
        assert pool.submit(tasks.hook_result, str(marker)).result(30) == "rebuilt"
        assert lines(marker) == ["rebuilt"]


_FORGES = """
import json, sys
from reports import tasks
from killpool import Pool
captures, options = json.loads(sys.argv[1])
told = open(sys.argv[2], "w")   # stdout is written to by the forgers
with Pool(2, capture_output=captures, **options) as pool:
    neighbours = [pool.submit(tasks.sleep_then, 0.2, n) for n in range(2)]
    forged = [pool.submit(tasks.forge_result, 666) for _ in range(5)]
    after = [pool.submit(tasks.echo, "x" * n) for n in (1, 10, 100_000, 500_000)]
    outcomes = [f.outcome(30) for f in forged]
    json.dump({
        "forged": [[o.cause, o.value] for o in outcomes],
        "neighbours": [f.outcome(30).value for f in neighbours],
        "after": [len(f.outcome(30).value or "") for f in after],
        "restarts": pool.statistics().supervisor_restarts,
    }, told)
told.close()
"""


@pytest.mark.parametrize("captures", [True, False], ids=["captured", "let through"])
@pytest.mark.parametrize(
    "options",
    [{}, {"isolation": "process"}, {"isolation": "process", "codec": "json"}],
    ids=["worker", "process", "json"],
)
def test_a_result_cannot_be_forged_by_writing_to_descriptors(
    options: dict[str, Any], captures: bool, tmp_path: Path
) -> None:
    """P06: in a program of its own, since who can be made to hang here is the host."""
    file = tmp_path / "told"
    done = stage.OWN.run("-c", _FORGES, json.dumps([captures, options]), str(file), limit=30, stdout=subprocess.DEVNULL)
    told = json.loads(file.read_text())
    assert all(value in (5, None) for _cause, value in told["forged"])
    assert {cause for cause, _value in told["forged"]} <= {"ok", "protocol", "signal", "exit"}
    assert (told["neighbours"], told["after"], told["restarts"]) == ([0, 1], [1, 10, 100_000, 500_000], 0)
    assert (done.status, done.err) == (0, "")
