"""Which call goes to which worker next: the waiting line and the in-flight depth, pure.

The line is FIFO within a priority, higher priorities first; calls that are handed back keep their place.  The depth
says how many calls may wait inside a worker's socket: enough that a worker of tiny calls never idles, one when calls
are long, so that nothing waits behind a slow call while another worker is free.
"""

import heapq
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

LOOK_AHEAD = 0.002  # seconds of work that may be queued inside a worker
_WEIGHT = 0.125  # of the newest duration in the moving average


class Waiting(Protocol):
    """What the line needs to know of a call."""

    priority: int
    order: int
    is_waiting: bool
    expires: float | None


T = TypeVar("T", bound=Waiting)


@dataclass(slots=True)
class Line(Generic[T]):
    """Calls that wait for a worker.  `remove` is lazy: a call whose `is_waiting` is false is passed over."""

    _heap: list[tuple[int, int, T]] = field(default_factory=list)
    _count: int = 0
    _expiring: set[T] = field(default_factory=set)

    def push(self, call: T) -> None:
        """Add a call, at the place that its priority and order give it."""
        call.is_waiting = True
        self._count += 1
        if call.expires is not None:
            self._expiring.add(call)
        heapq.heappush(self._heap, (-call.priority, call.order, call))

    def peek(self) -> T | None:
        """Return the next call without taking it."""
        while self._heap:
            call = self._heap[0][2]
            if call.is_waiting:
                return call
            heapq.heappop(self._heap)
        return None

    def pop(self) -> T | None:
        """Take the next call."""
        call = self.peek()
        if call is not None:
            heapq.heappop(self._heap)
            self._leave(call)
        return call

    def remove(self, call: T) -> None:
        """Take a call out of the line."""
        if call.is_waiting:
            self._leave(call)

    def _leave(self, call: T) -> None:
        call.is_waiting = False
        self._count -= 1
        self._expiring.discard(call)

    def with_expiry(self) -> list[T]:
        """Return the waiting calls that have an expiry."""
        return list(self._expiring)

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0


@dataclass(slots=True)
class Depth:
    """How deep a worker's window may be, from how long calls have taken."""

    most: int
    mean: float | None = None

    def observe(self, seconds: float) -> None:
        """Take the duration of a finished call."""
        self.mean = seconds if self.mean is None else self.mean + (seconds - self.mean) * _WEIGHT

    def now(self) -> int:
        """Return the depth: 1 until a call has finished, then as many calls as `LOOK_AHEAD` holds."""
        if self.mean is None:
            return 1
        return max(1, min(self.most, int(LOOK_AHEAD / max(self.mean, 1e-6))))
