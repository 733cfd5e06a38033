"""The error tree: the type says who is at fault, the attributes carry the data, the message is one sentence.

Every class pickles, with its attributes, so an error can cross any process boundary.  Nothing here
starts a process.
"""

from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any

from killpool.faults import KillpoolError, SpecError, UnsupportedPlatform


class TaskError(KillpoolError):
    """A task ended without a value.  `outcome` is the whole story, `cause` its one-word name."""

    cause: str
    outcome: Any


class TaskTimeout(TaskError, TimeoutError):
    """The call's deadline came and its process tree was killed.  Attributes: `limit`, `cause`, `outcome`."""


class TaskExpired(TaskError, TimeoutError):
    """The call waited longer than its `queue_timeout` and was never started."""


class TaskCancelled(TaskError, CancelledError):
    """The call was cancelled; `concurrent.futures.CancelledError` catches it."""


class LimitExceeded(TaskError):
    """A limit other than the wall clock ended the call: CPU, memory, output, processes, file size."""


class WorkerLost(TaskError):
    """The worker process died under the call.  Attributes: `cause`, `signal`, `exitcode`, `pid`, `outcome`."""

    signal: int | None
    exitcode: int | None
    pid: int | None


class StartFailed(TaskError):
    """A process could not be started or prepared (fork, initializer, import); the task itself did not fail."""


class RemoteError(TaskError):
    """The task raised, and its exception could not be rebuilt here.

    Attributes: `type_name` ("package.module.Class"), `remote_message`, `traceback_text`.
    """

    type_name: str
    remote_message: str
    traceback_text: str


class PoolBroken(KillpoolError, BrokenExecutor):
    """The pool gave up, for example when its restart budget was spent; `reason` holds the last failure."""

    reason: str


class PoolClosed(KillpoolError, RuntimeError):
    """Work was given to a pool that was shut down, or that belongs to the parent of this forked process."""


__all__ = [
    "KillpoolError",
    "LimitExceeded",
    "PoolBroken",
    "PoolClosed",
    "RemoteError",
    "SpecError",
    "StartFailed",
    "TaskCancelled",
    "TaskError",
    "TaskExpired",
    "TaskTimeout",
    "UnsupportedPlatform",
    "WorkerLost",
]
