"""Keeping the number of children that the host wants, within the restart budget."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from killpool.core import wire
from killpool.core.budget import GaveUp, RestartBudget
from killpool.core.classify import WORKER_CLEAN_EXIT
from killpool.supervisor.births import Births
from killpool.supervisor.child import Child, Intent, State
from killpool.system.channel import FrameSocket

_NS = 1_000_000_000
_MAX_STARTING = 4  # forks under way at once: more only wait for each other on the template


@dataclass(slots=True)
class Staff:
    """The number keeper.  `target` counts children that are neither planned to end nor used up by their only call."""

    children: dict[int, Child]
    births: Births
    control: FrameSocket
    budget: RestartBudget
    kill: Callable[[Child, Intent], None]
    target: int = 0
    is_broken: bool = False
    is_closing: bool = False
    not_before: int = 0  # monotonic ns before which nothing is started: backoff
    restarting: bool = False  # a one_for_all restart waits for its last death

    def wanted(self) -> int:
        """Return how many children are missing."""
        return self.target - sum(1 for c in self.children.values() if not c.is_planned and not c.is_used)

    def maintain(self, now: int, armed: int) -> None:
        """Start what is missing; `armed` is when the supervisor will wake by itself."""
        if self.is_closing:
            return
        if self.restarting and any(c.is_planned for c in self.children.values()):
            return
        self.restarting = False
        while self.wanted() > 0 and now >= self.not_before and self.births.sock is not None and not self.is_broken:
            if sum(1 for c in self.children.values() if c.state is State.FORKING) >= _MAX_STARTING:
                return
            try:
                child = self.births.create(armed)
            except (BlockingIOError, BrokenPipeError):
                return  # the template is busy or ending; its answer or its end brings us back
            except OSError as error:
                self.charge(f"{error.strerror or error}", failed_start=True)
                continue
            self.children[child.number] = child
        if self.not_before and now >= self.not_before:
            self.not_before = 0

    def charge(self, failure: str, failed_start: bool, message: dict[str, Any] | None = None) -> bool:
        """Charge the restart budget; return whether the pool may go on."""
        now = time.monotonic()
        if any(c.page is not None and c.page.words[wire.HEAD] for c in self.children.values() if c.is_live()):
            self.budget.healthy(now)
        grant = self.budget.charge(now, failed_start=failed_start)
        if isinstance(grant, GaveUp):
            self.give_up(failure, message)
            return False
        self.control.send({"op": "event", "event": "start_failed" if failed_start else "idle_death", "text": failure})
        self.not_before = time.monotonic_ns() + int(grant.delay * _NS) if grant.delay else self.not_before
        return True

    def give_up(self, reason: str, message: dict[str, Any] | None = None) -> None:
        """Tell the host that the pool is broken, and start nothing more."""
        self.is_broken, self.target = True, 0
        self.control.send({"op": "broken", "reason": reason, "last": message})

    def settle_budget(self, child: Child, message: dict[str, Any]) -> bool:
        """Charge a failed start or an idle death; return whether the pool broke."""
        if child.is_planned or message["call"] or self.is_closing or message["status"] == WORKER_CLEAN_EXIT << 8:
            return False
        is_start = not child.was_ready or child.phase == wire.PHASE_INITIALIZING
        text = child.failure or ("the initializer failed" if child.was_ready else "a worker ended before it was ready")
        if not is_start and child.is_used:
            return False  # the end of its only call
        return not self.charge(text if is_start else "a worker died while idle", is_start, message)

    def restart_all(self) -> None:
        """one_for_all: kill the others now; `maintain` starts all when the last of them is gone."""
        now = time.monotonic_ns()
        self.restarting = True
        for other in list(self.children.values()):
            if other.state in (State.LIVE, State.STARTING) and not other.is_planned:
                other.is_planned = True
                self.kill(other, Intent("lost", 0, now))
