"""The ledger of one pool: which calls are open, what became of them, and what is to be told to their futures.

A call is kept until it is settled, once.  What had not begun when its worker died is handed back to the line, at its
old place, before any retry policy applies.  Called with the engine's lock held; futures are settled outside it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from killpool.core import wire
from killpool.errors import PoolBroken
from killpool.host import settle
from killpool.host.call import Call
from killpool.host.crew import Crew
from killpool.host.worker import WorkerLink
from killpool.outcome import Cause, LimitHit, Outcome

_NOT_RETRIED = (Cause.OK, Cause.EXCEPTION, Cause.CANCELLED, Cause.EXPIRED)

Settled = tuple[Any, Callable[..., Outcome], str, bytes | None]


@dataclass(slots=True)
class Ledger:
    """The open calls' book; `done` is what `Engine.settle_done` has yet to tell."""

    crew: Crew
    name: str
    on_bad_worker: Callable[[WorkerLink, int], None]  # (worker, number of the call)
    outstanding: int = 0
    finished: int = 0
    done: list[Settled] = field(default_factory=list)
    broken: PoolBroken | None = None
    is_draining: bool = False

    def take_all(self) -> bool:
        """Take what workers have committed; return whether there was anything."""
        found = False
        for worker in list(self.crew.workers.values()):
            if worker.page is None:
                if worker.is_active and worker.calls and worker.read_answer():
                    self.crew.release(worker)
                    worker.answered_at = time.monotonic()
                    if worker.is_answer_too_long():
                        self.on_bad_worker(worker, worker.last)
                    found = True
            elif worker.has_records():
                self.take(worker)
                found = True
        return found

    def take(self, worker: WorkerLink) -> None:
        if worker.page is None:
            worker.read_answer()
            return
        records = worker.drain()
        if worker.is_corrupt and not worker.is_retiring:
            worker.is_retiring = True
            self.on_bad_worker(worker, 0)
        for record in records:
            kind = record.kind & wire.KIND_MASK
            if kind == wire.KIND_READY:
                worker.is_initializing = False
                continue
            if kind == wire.KIND_INIT_ERROR:
                worker.init_error = record.data
                continue
            if self.crew.one_call:
                worker.held = record
                self.crew.release(worker)
                continue
            call = worker.calls.pop(record.number, None)
            if kind == wire.KIND_SKIPPED:
                if call is not None:
                    self.hand_back(call)
                continue
            self.crew.depth.observe((record.end - record.start) / 1e9)
            if call is not None:
                self.settle_record(call, worker, record, None)

    def settle_record(
        self, call: Call, worker: WorkerLink, record: settle.Record, exited: dict[str, Any] | None
    ) -> None:
        if call.is_cancelled:
            self.settle(call, Cause.CANCELLED)
            return
        kind = "ok" if record.kind & wire.KIND_MASK == wire.KIND_VALUE else "error"
        build = partial(settle.from_record, call, record, worker.pid, self.label(worker), exited)
        self.finish(call, build, kind, record.data if record.kind == wire.KIND_VALUE else None)

    def label(self, worker: WorkerLink) -> str:
        return f"{self.name}/{worker.number}"

    def charge(self, call: Call, worker: WorkerLink, message: dict[str, Any]) -> None:
        if call.is_cancelled:
            message = {**message, "intent": "cancelled"}
        cpu = (0.0, 0.0) if self.crew.one_call else worker.cpu
        self.retry_or_settle(call, settle.from_death(call, message, self.label(worker), cpu))

    def retry_or_settle(self, call: Call, outcome: Outcome) -> None:
        retries = call.retries >= call.attempts and outcome.cause not in _NOT_RETRIED and not call.is_cancelled
        if retries and self.broken is None and not self.is_draining:
            call.worker, call.number, call.stalled = None, 0, 0.0
            self.crew.line.push(call)
            return
        kind = "ok" if outcome.ok else "cancelled" if outcome.cause is Cause.CANCELLED else "error"
        self.finish(call, lambda *_decoded: outcome, kind)

    def hand_back(self, call: Call) -> None:
        """Put a call that had not begun back in line, at its old place; it has used no attempt."""
        call.worker, call.number = None, 0
        call.attempts -= 1
        if call.is_cancelled:
            self.settle(call, Cause.CANCELLED)
        elif self.broken is not None:
            self.settle(call, Cause.START_FAILED)
        else:
            self.crew.line.push(call)

    def settle(self, call: Call, cause: Cause, text: str = "") -> None:
        limit = None
        if cause is Cause.EXPIRED and call.queue_timeout is not None:
            limit = LimitHit("queue", "task", call.queue_timeout)
        build = partial(settle.from_nothing, call, cause, limit, text)
        self.finish(call, build, "cancelled" if cause is Cause.CANCELLED else "error")

    def finish(self, call: Call, build: Callable[..., Outcome], kind: str, raw: bytes | None = None) -> None:
        if call.is_settled:
            return
        call.is_settled = True
        call.worker = None
        self.outstanding -= 1
        self.finished += 1
        self.done.append((call.future, build, kind, raw))
