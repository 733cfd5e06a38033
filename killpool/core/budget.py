"""A pool's restart budget: OTP's intensity and period, with a backoff between failed starts.  Pure.

One window a pool, sliding: a start that works for a moment does not empty it.
"""

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Grant:
    """Start again after `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The budget is spent: `count` failures in the window were one too many."""

    count: int


@dataclass(slots=True)
class RestartBudget:
    """At most `max_restarts` charges in any `within` seconds (exactly `within` old still counts, as in OTP)."""

    max_restarts: int
    within: float
    initial_backoff: float
    max_backoff: float
    _charged: deque[float] = field(default_factory=deque)
    _failed_in_a_row: int = 0
    _gave_up: int = 0

    def charge(self, now: float, failed_start: bool = True) -> Grant | GaveUp:
        """Charge one failure.  The n-th failed start in a row waits min(initial * 2**(n-1), max)."""
        if self._gave_up:
            return GaveUp(self._gave_up)
        while self._charged and now - self._charged[0] > self.within:
            self._charged.popleft()
        self._charged.append(now)
        if len(self._charged) > self.max_restarts:
            self._gave_up = len(self._charged)
            return GaveUp(self._gave_up)
        if not failed_start:
            return Grant(0.0)
        self._failed_in_a_row += 1
        return Grant(min(self.initial_backoff * 2.0 ** min(self._failed_in_a_row - 1, 62), self.max_backoff))

    def healthy(self, now: float) -> None:
        """A start became ready: the next failed one waits the least again.  The window stays."""
        self._failed_in_a_row = 0
