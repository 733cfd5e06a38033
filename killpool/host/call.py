"""`Call`: one submitted call, kept by the host until it is settled."""

from dataclasses import dataclass, field
from typing import Any

from killpool.host.future import TaskFuture
from killpool.host.payload import Encoded
from killpool.spec import Limits


@dataclass(slots=True, eq=False)
class Call:
    """What the host knows of a call.

    `timeout` is the seconds it may run (the pool's default filled in), `owns_timeout` whether the caller gave it.
    `order` is its place in the line; `number` its number within the worker it was sent to.
    """

    future: TaskFuture
    encoded: Encoded
    order: int
    timeout: float | None = None
    owns_timeout: bool = False
    limits: Limits | None = None
    limits_id: int = 0
    queue_timeout: float | None = None
    expires: float | None = None  # monotonic seconds
    retries: int = 0
    tag: str | None = None
    index: int | None = None
    priority: int = 0
    attempts: int = 0
    is_waiting: bool = False
    is_settled: bool = False
    is_cancelled: bool = False  # cancel() has returned True: a later result does not count
    worker: Any = field(default=None, repr=False)
    number: int = 0
    stalled: float = 0.0  # seconds it was given to begin, when it did not
