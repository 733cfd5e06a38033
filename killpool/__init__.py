"""Killable workers: a pool whose calls have deadlines that hold, and outcomes that say what happened.

The names below are the public ones.  They are loaded when they are first used, so that the supervisor process and
every worker, which import parts of this package, stay small.
"""

TYPE_CHECKING = False  # as typing's, whose import would be most of this module's time
if TYPE_CHECKING:
    from killpool.errors import (
        KillpoolError,
        LimitExceeded,
        PoolBroken,
        PoolClosed,
        RemoteError,
        SpecError,
        StartFailed,
        TaskCancelled,
        TaskError,
        TaskExpired,
        TaskTimeout,
        UnsupportedPlatform,
        WorkerLost,
    )
    from killpool.host.future import TaskFuture
    from killpool.outcome import Captured, Cause, LimitHit, Outcome, Usage
    from killpool.pool import Pool, PoolStatistics
    from killpool.spec import Limits, RestartPolicy

__version__ = "0.1.0"

_HOME = {
    "Captured": "outcome", "Cause": "outcome", "LimitHit": "outcome", "Outcome": "outcome", "Usage": "outcome",
    "Limits": "spec", "RestartPolicy": "spec", "Pool": "pool", "PoolStatistics": "pool", "TaskFuture": "host.future",
    "KillpoolError": "errors", "LimitExceeded": "errors", "PoolBroken": "errors", "PoolClosed": "errors",
    "RemoteError": "errors", "SpecError": "errors", "StartFailed": "errors", "TaskCancelled": "errors",
    "TaskError": "errors", "TaskExpired": "errors", "TaskTimeout": "errors", "UnsupportedPlatform": "errors",
    "WorkerLost": "errors",
}  # fmt: skip

__all__ = [
    "Captured",
    "Cause",
    "KillpoolError",
    "LimitExceeded",
    "LimitHit",
    "Limits",
    "Outcome",
    "Pool",
    "PoolBroken",
    "PoolClosed",
    "PoolStatistics",
    "RemoteError",
    "RestartPolicy",
    "SpecError",
    "StartFailed",
    "TaskCancelled",
    "TaskError",
    "TaskExpired",
    "TaskFuture",
    "TaskTimeout",
    "UnsupportedPlatform",
    "Usage",
    "WorkerLost",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'killpool' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value = getattr(import_module(f"killpool.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
