"""The workers of one pool as the host deals with them: which one gets the next call, who retires, who is stuck.

Called with the engine's lock held; sends to workers without blocking.
"""

from dataclasses import dataclass, field

from killpool.core import wire
from killpool.core.scheduling import Depth, Line
from killpool.host.call import Call
from killpool.host.worker import WorkerLink
from killpool.spec import STALL_TIMEOUT, WINDOW

STALL_LEAST = 1.0  # seconds a worker gets to begin a call at the least: a loaded machine is not a dead worker


@dataclass(slots=True)
class Crew:
    """The workers, and the line of calls that wait for them.

    `one_call`: every worker serves a single call.  `initializer`: its pickled (function, args), b"" for none.
    """

    max_workers: int
    one_call: bool
    max_tasks: int | None
    initializer: bytes
    line: Line[Call] = field(default_factory=Line)
    workers: dict[int, WorkerLink] = field(default_factory=dict)
    depth: Depth = field(default_factory=lambda: Depth(WINDOW))
    active: int = 0  # workers that run or may run calls

    def add(self, worker: WorkerLink) -> None:
        """Take a new spare."""
        self.workers[worker.number] = worker

    def remove(self, number: int) -> WorkerLink | None:
        """Forget a worker that is gone."""
        worker = self.workers.pop(number, None)
        if worker is not None and worker.is_active:
            self.active -= 1
            worker.is_active = False
        return worker

    def release(self, worker: WorkerLink) -> None:
        """A one-call worker has its result and only has to end: its slot is free."""
        if worker.is_active:
            self.active -= 1
            worker.is_active = False
            worker.is_retiring = True

    def pick(self, call: Call) -> WorkerLink | None:
        """Return the worker that should get `call` now, None if it has to wait."""
        best: WorkerLink | None = None
        spare: WorkerLink | None = None
        least = WINDOW
        for worker in self.workers.values():
            if worker.is_retiring:
                continue
            if not worker.is_active:
                spare = spare or worker
                continue
            count = len(worker.calls)
            if count < least and worker.last - worker.seen < WINDOW:
                best, least = worker, count
        if best is not None and least == 0 and not self.one_call:
            return best
        if spare is not None and self.active < self.max_workers:
            self._activate(spare)
            return spare
        if best is None or self.one_call or call.expires is not None:
            return None
        return best if least < self.depth.now() else None

    def _activate(self, worker: WorkerLink) -> None:
        worker.is_active = True
        self.active += 1
        if self.initializer:
            # Only a worker that takes a place runs the initializer: a spare beside its predecessor would find the
            # port, the lock or the device still taken.
            worker.is_initializing = True
            worker.queue_control(wire.CALL_INIT, self.initializer)

    def give(self, worker: WorkerLink, call: Call) -> None:
        """Put `call` into the worker's outbox; the last that it may serve makes it retire."""
        worker.queue(call)
        if self.max_tasks is not None and worker.sent >= self.max_tasks:
            worker.is_retiring = True

    def steal(self) -> list[Call]:
        """Take back calls that wait behind others while a worker has nothing to do; ask again until there are none."""
        if self.one_call or self.line or not self._has_idle():
            return []
        for worker in sorted(self.workers.values(), key=lambda w: len(w.calls), reverse=True):
            if len(worker.calls) < 2:
                return []
            started = worker.started()
            waiting = [n for n in worker.calls if n > started]
            taken = worker.withdraw(waiting[len(waiting) // 2 :])
            if taken:
                return taken
        return []

    def _has_idle(self) -> bool:
        spare = any(not w.is_active and not w.is_retiring for w in self.workers.values())
        if spare and self.active < self.max_workers:
            return True
        return any(w.is_active and not w.calls and not w.is_retiring for w in self.workers.values())

    def stalled(self, now: float) -> list[tuple[WorkerLink, Call, float]]:
        """Return (worker, its first call, seconds it had) of workers that do not begin what they were sent."""
        found = []
        for worker in self.workers.values():
            due = self._stall_due(worker, now)
            if due is not None and now >= due:
                call = next(iter(worker.calls.values()))
                if not call.stalled:
                    found.append((worker, call, due - worker.head_since))
        return found

    def next_stall(self, now: float) -> float | None:
        """Return when the next worker would count as stalled, None if none is waited for."""
        return min((d for d in (self._stall_due(w, now) for w in self.workers.values()) if d is not None), default=None)

    def _stall_due(self, worker: WorkerLink, now: float) -> float | None:
        if worker.page is None or not worker.calls or worker.is_initializing:
            return None
        number, call = next(iter(worker.calls.items()))
        if worker.started() >= number or call.stalled:
            return None
        if worker.head_number != number:
            worker.head_number, worker.head_since = number, now
        limit = STALL_TIMEOUT if call.timeout is None else min(max(call.timeout, STALL_LEAST), STALL_TIMEOUT)
        return worker.head_since + limit

    def expired(self, now: float) -> list[Call]:
        """Take out of the line the calls that waited too long."""
        return [c for c in self.line.with_expiry() if c.expires is not None and now >= c.expires]

    def next_expiry(self) -> float | None:
        """Return when the next waiting call expires."""
        return min((c.expires for c in self.line.with_expiry() if c.expires is not None), default=None)

    def lingering(self, since: float) -> list[WorkerLink]:
        """Return untrusted workers that answered before `since` and have not ended."""
        return [worker for worker in self.workers.values() if 0.0 < worker.answered_at <= since]

    def in_flight(self) -> int:
        """Return how many calls are inside workers."""
        return sum(len(worker.calls) for worker in self.workers.values())
