"""The error tree: who is at fault is told by the type, and each error crosses a process boundary whole."""

import asyncio
import concurrent.futures
import copy
import pickle

import pytest

import killpool
from killpool import errors
from killpool.outcome import Cause, Outcome

CLASSES = [getattr(errors, name) for name in errors.__all__]
FIELDS = {
    "cause": Cause.SIGNAL,
    "signal": 11,
    "exitcode": None,
    "pid": 4711,
    "outcome": Outcome(ok=False, cause=Cause.SIGNAL, signal=11),
    "type_name": "package.module.Class",
    "remote_message": "it said",
    "traceback_text": "Traceback …",
    "reason": "the last failure",
    "limit": 3.5,
}


def test_the_tree_is_complete_and_public() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__.startswith("killpool")
    }
    assert defined == set(errors.__all__)
    assert set(errors.__all__) <= set(killpool.__all__)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_pickles_with_its_message_and_attributes(cls: type[errors.KillpoolError], protocol: int) -> None:
    error = cls("worker 'crawler' was killed by SIGSEGV after 12.3 s", **FIELDS)
    error.add_note("seen by the test")
    twin = pickle.loads(pickle.dumps(error, protocol))
    assert type(twin) is cls
    assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))
    assert vars(twin) == {**FIELDS, "__notes__": ["seen by the test"]}


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_can_be_copied_and_raised_again(cls: type[errors.KillpoolError]) -> None:
    with pytest.raises(cls, match="said") as caught:
        raise copy.copy(cls("said", **FIELDS))
    assert vars(caught.value) == FIELDS


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_can_be_made_with_nothing_but_its_message(cls: type[errors.KillpoolError]) -> None:
    assert [str(cls("a sentence")), str(cls())] == ["a sentence", ""]


@pytest.mark.parametrize(
    ("cls", "bases"),
    [
        (errors.TaskTimeout, (errors.TaskError, TimeoutError, concurrent.futures.TimeoutError, asyncio.TimeoutError)),
        (errors.TaskExpired, (errors.TaskError, TimeoutError)),
        (errors.TaskCancelled, (errors.TaskError, concurrent.futures.CancelledError)),
        (errors.LimitExceeded, (errors.TaskError,)),
        (errors.WorkerLost, (errors.TaskError,)),
        (errors.StartFailed, (errors.TaskError,)),
        (errors.RemoteError, (errors.TaskError,)),
        (errors.PoolBroken, (errors.KillpoolError, concurrent.futures.BrokenExecutor)),
        (errors.PoolClosed, (errors.KillpoolError, RuntimeError)),
        (errors.SpecError, (errors.KillpoolError, ValueError)),
        (errors.UnsupportedPlatform, (errors.KillpoolError, OSError)),
    ],
)
def test_the_words_of_the_standard_library_catch_them(cls: type, bases: tuple[type, ...]) -> None:
    assert [base for base in bases if not issubclass(cls, base)] == []


@pytest.mark.parametrize("cls", CLASSES)
def test_a_refused_spec_or_platform_or_pool_is_no_fault_of_a_task(cls: type) -> None:
    callers = {errors.KillpoolError, errors.SpecError, errors.UnsupportedPlatform, errors.PoolBroken, errors.PoolClosed}
    assert issubclass(cls, errors.TaskError) is (cls not in callers)
