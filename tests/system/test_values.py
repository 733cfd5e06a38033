"""What does not pickle, or not back: one clear failed outcome, and the next call works."""

import pickle
import threading
from collections.abc import Callable

import pytest

import census
import tasks
from killpool import Cause, Pool, RemoteError
from killpool.spec import Contain

pytestmark = pytest.mark.timeout(120)


def _fails(function: Callable[..., object], *args: object) -> BaseException:
    with Pool(1) as pool:
        before = pool.submit(tasks.pid).result(30)
        outcome = pool.schedule(function, args, timeout=30).outcome(60)
        assert (outcome.ok, outcome.cause, outcome.value) == (False, Cause.EXCEPTION, None)
        assert pool.submit(tasks.pid).result(30) == before  # the worker lived on
        assert outcome.error is not None
        assert type(pickle.loads(pickle.dumps(outcome.error))) is type(outcome.error)
        return outcome.error


def test_an_argument_that_does_not_pickle_fails_its_call_and_names_itself() -> None:
    error = _fails(tasks.echo, threading.Lock())
    assert "lock" in str(error)


def test_a_result_that_does_not_pickle_fails_its_call_and_names_itself() -> None:
    error = _fails(tasks.unpicklable_result)
    assert "generator" in str(error)


def test_an_exception_that_does_not_pickle_is_described() -> None:
    error = _fails(tasks.unpicklable_error)
    assert isinstance(error, RemoteError)
    assert (error.type_name, error.remote_message) == ("ValueError", "holds a generator")
    assert "in unpicklable_error" in error.traceback_text


def test_an_exception_with_an_odd_constructor_is_described() -> None:
    error = _fails(tasks.odd_error)
    assert isinstance(error, RemoteError)
    assert (error.type_name, error.remote_message) == ("tasks.OddError", "7: seven")


def test_an_exception_with_a_keyword_constructor_is_described() -> None:
    error = _fails(tasks.keyword_error)
    assert isinstance(error, RemoteError)
    assert (error.type_name, error.remote_message) == ("tasks.KeywordError", "code 3")


def test_an_exception_that_cannot_be_printed_is_described() -> None:
    with Pool(1) as pool:
        outcome = pool.schedule(tasks.unprintable_error, timeout=30).outcome(60)
        assert (outcome.cause, type(outcome.error).__name__ in ("UnprintableError", "RemoteError")) == (
            Cause.EXCEPTION,
            True,
        )
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_a_plain_exception_comes_back_as_itself_with_its_remote_traceback() -> None:
    error = _fails(tasks.plain_error)
    assert (type(error), error.args) == (ValueError, ("plain",))
    assert "in plain_error" in str(error.__cause__)


def test_a_result_that_fails_to_rebuild_fails_its_call_only() -> None:
    error = _fails(tasks.fails_to_rebuild)
    assert isinstance(error, RemoteError)
    assert "rebuilt badly" in str(error)


def test_system_exit_and_keyboard_interrupt_are_exceptions_of_the_call() -> None:
    assert [type(_fails(f)) for f in (tasks.raise_system_exit, tasks.raise_keyboard_interrupt)] == [
        SystemExit,
        KeyboardInterrupt,
    ]


def test_a_result_of_a_local_class_either_comes_back_or_fails_clearly() -> None:
    with Pool(1) as pool:
        outcome = pool.schedule(tasks.local_class_result, timeout=30).outcome(60)
        assert outcome.ok or (outcome.cause is Cause.EXCEPTION and "Local" in str(outcome.error))
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


def test_a_result_hook_that_sleeps_is_killed_at_the_deadline(tier: Contain) -> None:
    mark = census.new_mark()
    with Pool(1, contain=tier, isolation="process") as pool:
        future = pool.schedule(tasks.slow_result, (mark,), timeout=1.0)
        assert len(census.wait_for(1, mark)) == 1
        assert future.outcome(60).cause is Cause.TIMEOUT
        assert census.find(mark) == []
        assert pool.submit(tasks.add, 1, 2).result(30) == 3


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 262_144, 5_000_000])
def test_values_of_every_size_cross_both_ways(size: int) -> None:
    with Pool(2) as pool:
        values = [bytes([n]) * size for n in range(8)]
        assert list(pool.map(tasks.echo, values)) == values
