"""What became of a call: `Outcome`, with the one named `Cause` of its end and what it used.

Plain frozen data.  An `Outcome` that says the call is over is only ever made after its process tree is gone, or
it says in `survivors` how many processes could not be proven dead.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """Why a call ended.  One of these, always; `signal` and `exit` have their number beside them."""

    OK = "ok"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    CPU_TIME = "cpu_time"
    OOM = "oom"
    OUTPUT_LIMIT = "output_limit"
    FILE_LIMIT = "file_limit"
    PROCESS_LIMIT = "process_limit"
    SIGNAL = "signal"
    EXIT = "exit"
    NO_RESULT = "no_result"
    PROTOCOL = "protocol"
    DENIED = "denied"
    TRIPWIRE = "tripwire"
    SILENT = "silent"
    RATE_LIMITED = "rate_limited"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    START_FAILED = "start_failed"
    LOST = "lost"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class LimitHit:
    """The limit that ended a call: its `name` as in `Limits`, whose it was, and its value (seconds, bytes, count)."""

    name: str
    whose: str  # "task" | "pool"
    value: float

    def __str__(self) -> str:
        owner = "pool default" if self.whose == "pool" else "the call's own"
        unit = " s" if self.name in ("wall", "cpu", "queue", "start") else ""
        return f"{owner} {self.name} limit of {self.value:g}{unit}"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call used.  Seconds and bytes.

    `wall` runs from the call's start to its commit or death.  `user` and `system` are CPU seconds.  `peak_rss` is
    getrusage(2)'s ru_maxrss: of the call when it had a fresh process, else of its worker so far
    (`scope == "worker"`).  `partial` is true when a killed tree left only a lower bound.
    """

    wall: float = 0.0
    user: float = 0.0
    system: float = 0.0
    peak_rss: int = 0
    scope: str = "task"  # "task" | "worker"
    partial: bool = False

    @property
    def cpu(self) -> float:
        """User plus system seconds."""
        return self.user + self.system


@dataclass(frozen=True, slots=True)
class Captured:
    """Captured text of one stream: the head and the tail that were kept, and the true byte count."""

    data: bytes = b""
    total: int = 0
    truncated: bool = False

    def __str__(self) -> str:
        return self.data.decode("utf-8", "backslashreplace")

    def __contains__(self, text: str) -> bool:
        return text in str(self)

    def __bool__(self) -> bool:
        return self.total > 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole story of one call.

    `ok` is true exactly when `cause` is `Cause.OK`; then `value` is the function's result.  Otherwise `error` is
    the exception that `future.result()` raises.  `exitcode` and `signal` are the worker's own, where it ended.
    `killed_by_us` says that we sent the SIGKILL, for the reason in `cause`.  `kill_latency` is seconds from the
    deadline (or cancel) to the proof that the tree is gone; `descendants_killed` counts processes of the tree other
    than the worker; `survivors` counts those we could not prove dead (0 is the promise).  `stack` is the worker's
    Python stack at its deadline, best effort.  `started_at` is wall-clock seconds since the epoch, None when the
    call never started.
    """

    ok: bool
    value: Any = None
    cause: Cause = Cause.OK
    error: BaseException | None = None
    exitcode: int | None = None
    signal: int | None = None
    limit: LimitHit | None = None
    killed_by_us: bool = False
    usage: Usage = field(default_factory=Usage)
    stdout: Captured = field(default_factory=Captured)
    stderr: Captured = field(default_factory=Captured)
    stack: str = ""
    pid: int | None = None
    worker: str = ""
    attempts: int = 1
    started_at: float | None = None
    kill_latency: float | None = None
    descendants_killed: int = 0
    survivors: int = 0
    tag: str | None = None
    index: int | None = None

    def unwrap(self) -> Any:
        """Return the value, or raise `error`."""
        if self.error is not None:
            raise self.error
        return self.value
