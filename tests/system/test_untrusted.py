"""codec="json": what an untrusted program sends is data, and its deadline is not in its hands."""

from pathlib import Path
from typing import Any

import pytest

import census
import tasks
from killpool import Cause, Outcome, Pool, RemoteError, SpecError
from killpool.spec import Contain

pytestmark = pytest.mark.timeout(120)


def _pool(tier: Contain, **options: Any) -> Pool:
    return Pool(1, contain=tier, codec="json", isolation="process", **options)


def test_values_are_data(tier: Contain) -> None:
    value = {"a": [1, 2.5, "x", None, True], "b": {"c": []}}
    with _pool(tier) as pool:
        assert pool.submit(tasks.echo, value).result(30) == value


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object, 1 << 70, complex(1, 2)])
def test_a_value_that_json_cannot_say_fails_its_call(value: object) -> None:
    with _pool("auto") as pool:
        outcome = pool.submit(tasks.echo, value).outcome(30)
        assert (outcome.ok, outcome.cause) == (False, Cause.EXCEPTION)
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_an_exception_is_told_as_name_message_and_traceback() -> None:
    with _pool("auto") as pool:
        error = pool.submit(tasks.odd_error).outcome(30).error
        assert isinstance(error, RemoteError)
        assert (error.type_name, error.remote_message) == ("tasks.OddError", "7: seven")
        assert "in odd_error" in error.traceback_text


def test_a_deadline_is_kept_though_the_program_rewrites_everything_it_can_reach(tier: Contain) -> None:
    with _pool(tier) as pool:
        outcome = pool.schedule(tasks.rewrite_everything, timeout=1.0).outcome(60)
        assert (outcome.cause, outcome.survivors, outcome.signal) == (Cause.TIMEOUT, 0, 9)
        assert outcome.usage.wall >= 1.0
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


@pytest.mark.parametrize("shape", ["bush of sessions", "daemon with an empty environment", "every descriptor closed"])
def test_the_tree_of_an_untrusted_call_is_gone_at_its_deadline(tier: Contain, shape: str) -> None:
    function, size = tasks.SHAPES[shape]
    with _pool(tier) as pool:
        pool.submit(tasks.add, 1, 2).result(30)
        for timeout in (0.5, 2.0, 8.0):  # the first that lets the whole tree come to life before it is killed
            mark = census.new_mark()
            future = pool.schedule(function, (mark,), timeout=timeout)
            before = census.wait_for(size, mark, unless=future.done)
            is_proven = not future.done()
            outcome = future.outcome(60)
            assert (outcome.cause, outcome.survivors, census.find(mark)) == (Cause.TIMEOUT, 0, [])
            if is_proven:
                break
        assert len(before) == size


def _cause(outcome: Outcome) -> tuple[str, Any]:
    return str(outcome.cause), outcome.value


@pytest.mark.parametrize(
    "kind",
    [
        "garbage",
        "no JSON",
        "no object",
        "ok is no bool",
        "too deep",
        "cut short",
        "too long",
        "more bytes than allowed",
        "followed by more",
        "duplicate",
    ],
)
def test_what_is_no_single_answer_is_a_protocol_error(tier: Contain, kind: str) -> None:
    with _pool(tier) as pool:
        assert _cause(pool.schedule(tasks.forge, (kind,), timeout=30).outcome(60)) == ("protocol", None)
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_an_answer_does_not_buy_a_program_more_time(tier: Contain) -> None:
    mark = census.new_mark()
    with _pool(tier) as pool:
        late = pool.schedule(tasks.forge, ("and stays", mark), timeout=0.3).outcome(60)
        assert (late.survivors, census.find(mark)) == (0, [])
        assert late.usage.wall < 3.0
        endless = pool.schedule(tasks.forge, ("and stays", mark)).outcome(60)  # no deadline: it must end all the same
        assert (endless.survivors, census.find(mark)) == (0, [])
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_a_reduce_hook_never_runs_in_the_host(tmp_path: Path) -> None:
    path = tmp_path / "ran"
    with _pool("auto") as pool:
        returned = pool.schedule(tasks.hook_result, (str(path),), timeout=30).outcome(60)
        assert (returned.ok, returned.cause) == (False, Cause.EXCEPTION)
        sent = pool.schedule(tasks.forge_pickle, (str(path),), timeout=30).outcome(60)
        assert _cause(sent) == ("protocol", None)
    assert not path.exists()


def test_deaths_of_untrusted_calls_are_rightly_named(tier: Contain) -> None:
    with _pool(tier) as pool:
        outcomes = [pool.submit(tasks.die_in_way, way).outcome(60) for way in range(len(tasks.WAYS_TO_DIE))]
        told = [(w[0], (str(o.cause), o.exitcode, o.signal)) for w, o in zip(tasks.WAYS_TO_DIE, outcomes, strict=True)]
        assert told == [(way[0], way[2]) for way in tasks.WAYS_TO_DIE]


def test_output_of_an_untrusted_call_is_kept() -> None:
    with _pool("auto", capture_output=True) as pool:
        outcome = pool.submit(tasks.print_bytes, 100_000).outcome(30)
        assert (outcome.value, outcome.stdout.total, outcome.stderr.total) == (100_000, 100_000, 0)


def test_what_an_untrusted_pool_cannot_have_is_refused() -> None:
    with pytest.raises(SpecError, match="isolation"):
        Pool(1, codec="json")
    with pytest.raises(SpecError, match="initializer"):
        Pool(1, codec="json", isolation="process", initializer=tasks.block)
