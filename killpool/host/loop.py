"""The I/O thread of one pool: it sleeps until a worker, the supervisor or a caller rings, and tells what it hears.

It holds the engine's lock while it works and never while it sleeps or runs callbacks.  Idle, it makes no system call.
"""

import math
import os
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from killpool.core.budget import GaveUp
from killpool.errors import KillpoolError, StartFailed
from killpool.host import settle
from killpool.host.crew import STALL_LEAST
from killpool.host.link import SupervisorLink
from killpool.host.worker import WorkerLink
from killpool.outcome import Cause
from killpool.system import syscalls

if TYPE_CHECKING:
    from killpool.host.engine import Engine

BURST = 8  # submits between two turns from which on they are batched
_NAP = 0.001  # seconds the I/O thread sleeps with the bells off while a burst lasts
QUIT_GRACE = 1.0  # seconds an idle worker may take to run its exit handlers


class Loop:
    """See the module.  Methods are called in the I/O thread with the lock held, unless they say otherwise."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self._init_error: BaseException | None = None
        self._epoll = select.epoll()
        self._epoll.register(engine.bell, select.EPOLLIN)
        self._watched: dict[int, int] = {}
        self._watch_link()

    def run(self) -> None:
        """The I/O thread's main (without the lock)."""
        try:
            while True:
                with self.engine.lock:
                    self._turn()
                self.engine.settle_done()
                with self.engine.lock:
                    if self._is_over():
                        break
                    timeout = self._sleep_time()
                self._epoll.poll(timeout)
        except OSError as error:  # this process has run out of something, mostly descriptors
            self._fail(str(error), error, Cause.START_FAILED)
        except BaseException as error:  # a loop's edge: nobody may wait for ever because of a fault of ours
            self._fail(f"internal error: {type(error).__name__}: {error}", error, Cause.INTERNAL)
            raise
        finally:
            self._close()
            self.engine.ended.set()

    def _fail(self, reason: str, error: BaseException, cause: Cause) -> None:
        """End the pool from the I/O thread (without the lock): tell every call, kill every process."""
        with self.engine.lock:
            self.engine.give_up(reason, error, cause)
        self.engine.settle_done()
        self.engine.link.destroy()
        self.engine.link.sweep([w.pidfd for w in self.engine.crew.workers.values()])

    def _turn(self) -> None:
        self.engine.is_asleep = False
        try:
            os.eventfd_read(self.engine.bell)
        except BlockingIOError:
            pass
        if self.engine.is_abandoned:
            self.engine.is_closing = True
        self._receive()
        if self.engine.link.pidfd < 0:
            return  # the last supervisor is gone, and the pool is broken
        self.engine.ledger.take_all()
        now = time.monotonic()
        for call in self.engine.crew.expired(now):
            self.engine.crew.line.remove(call)
            self.engine.ledger.settle(call, Cause.EXPIRED)
        for worker, call, seconds in self.engine.crew.stalled(now):
            call.stalled = seconds
            self.engine.send_kill(worker, 0, Cause.SILENT)
        self.engine.dispatch()
        while stolen := self.engine.crew.steal():
            for call in stolen:
                self.engine.ledger.hand_back(call)
            self.engine.dispatch()
        self.engine.retire()
        self.engine.end_lingering(now)
        if self.engine.is_closing and self.engine.ledger.outstanding == 0 and not self.engine.ledger.is_draining:
            self.engine.send_drain(QUIT_GRACE)
        if (
            self.engine.ledger.is_draining
            and time.monotonic() >= self.engine.close_by
            and not self.engine.link.is_dead()
        ):
            self.engine.link.process.kill()
        for worker in self.engine.crew.workers.values():
            if worker.wants_write:
                self.engine.flush(worker)
            reads = worker.page is None and not worker.is_retiring and not worker.answer_is_over
            self._interest(worker.sock.fileno(), worker.wants_write, reads)
        self._interest(self.engine.link.control.fileno(), self.engine.link.control.wants_write, True)

    def _sleep_time(self) -> float | None:
        """Arm the bells; return how long the I/O thread may sleep."""
        if self.engine.ledger.done:
            return 0.0
        burst, self.engine.submits = self.engine.submits, 0
        if burst >= BURST and not self.engine.is_closing:
            for worker in self.engine.crew.workers.values():
                worker.arm(False)
            return _NAP
        workers = list(self.engine.crew.workers.values())
        for worker in workers:
            worker.arm(True)
        if workers and workers[0].page is not None:
            syscalls.membarrier_global()
            if any(worker.has_records() for worker in workers):
                return 0.0
        self.engine.is_asleep = True
        now = time.monotonic()
        times = [t for t in (self.engine.crew.next_expiry(), self.engine.crew.next_stall(now)) if t is not None]
        if self.engine.ledger.is_draining:
            times.append(self.engine.close_by)
        times += [worker.answered_at + QUIT_GRACE for worker in self.engine.crew.lingering(math.inf)]
        if self.engine.has_sent:
            # Calls that are sent while this thread sleeps are looked at once more, so that a worker that does not begin
            # them is noticed; with nothing sent there is nothing to look at, and no wake-up.
            self.engine.has_sent = False
            times.append(now + STALL_LEAST)
        self.engine.wakes_at = min(times, default=math.inf)
        return max(self.engine.wakes_at - now, 0.0) if times else None

    def _interest(self, fd: int, writes: bool, reads: bool) -> None:
        wanted = (select.EPOLLOUT if writes else 0) | (select.EPOLLIN if reads else 0)
        had = self._watched.get(fd)
        if had == wanted or (had is None and not wanted):
            return
        if had is None:
            self._epoll.register(fd, wanted)
        elif wanted:
            self._epoll.modify(fd, wanted)
        else:
            self._epoll.unregister(fd)
        if wanted:
            self._watched[fd] = wanted
        else:
            del self._watched[fd]

    def _unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _watch_link(self) -> None:
        self._epoll.register(self.engine.link.pidfd, select.EPOLLIN)
        self._interest(self.engine.link.control.fileno(), False, True)

    def _is_over(self) -> bool:
        return (
            self.engine.is_closing
            and self.engine.link.is_dead()
            and not self.engine.crew.workers
            and self.engine.ledger.outstanding == 0
        )

    def _close(self) -> None:
        """Close what the engine owns (without the lock: the thread is the last user)."""
        with self.engine.lock:
            self.engine.is_closing = True
            for number in list(self.engine.crew.workers):
                worker = self.engine.crew.remove(number)
                if worker is not None:
                    worker.close()
            self.engine.link.process.wait()
            self.engine.link.close()
            self._epoll.close()
            os.close(self.engine.bell)
            self.engine.bell = -1

    def _receive(self) -> None:
        self.engine.link.control.flush()
        early, self.engine.link.early = self.engine.link.early, []
        for message, fds in early:
            _NEWS[message["op"]](self, message, fds)
        try:
            for message, fds in self.engine.link.control.receive():
                _NEWS[message["op"]](self, message, fds)
        except EOFError:
            self._supervisor_ended()
            return
        if self.engine.link.is_dead():
            self._supervisor_ended()

    def _on_worker(self, message: dict[str, Any], fds: list[int]) -> None:
        try:
            self.engine.crew.add(WorkerLink(message["id"], message["pid"], fds))
        except OSError:  # no descriptor left for its mapping
            for fd in fds:
                os.close(fd)
            raise

    def _on_event(self, message: dict[str, Any], _fds: list[int]) -> None:
        kind = message["event"]
        key = {"template_restarted": "template_restarts", "idle_death": "idle_deaths"}.get(kind)
        if key:
            self.engine.counts[key] += 1

    def _on_broken(self, message: dict[str, Any], _fds: list[int]) -> None:
        self.engine.ledger.take_all()
        for worker in self.engine.crew.workers.values():
            if worker.init_error:
                self._init_error = settle.rebuild_error(worker.init_error)
        cause = self._init_error
        text = message["reason"]
        if cause is not None:
            text += f": {type(cause).__name__}: {cause}"
        self.engine.give_up(text, cause, Cause.START_FAILED)

    def _on_closed(self, _message: dict[str, Any], _fds: list[int]) -> None:
        return

    def _on_exited(self, message: dict[str, Any], _fds: list[int]) -> None:
        """A worker's tree is gone (or said to survive): settle what it ran, hand over what it had not begun."""
        self.engine.counts["survivors"] += message["survivors"]
        worker = self.engine.crew.workers.get(message["id"])
        if worker is None:
            return
        self.engine.ledger.take(worker)
        self._unwatch(worker.sock.fileno())
        self.engine.crew.remove(worker.number)
        if worker.init_error:
            self._init_error = settle.rebuild_error(worker.init_error)
        charged = worker.charged()
        if worker.page is None:
            message["json"], message["bad_frame"] = worker.decode_answer()
            message["has_result"] = message["json"] is not None
            if message["has_result"] and message["planned"] and message["intent_call"] == 0:
                message |= {"intent": "", "status": 0}  # it had answered, and only its end was ours
        for number, call in list(worker.calls.items()):
            if worker.held is not None and number == worker.held.number:
                self.engine.ledger.settle_record(call, worker, worker.held, message)
            elif number == charged or call.stalled:
                self.engine.ledger.charge(call, worker, message)
            else:
                self.engine.ledger.hand_back(call)
        worker.close()

    def _supervisor_ended(self) -> None:
        """The supervisor is dead: be the second killer, tell running calls `lost`, start another."""
        if self.engine.ledger.is_draining or self.engine.ledger.broken is not None:
            self._lose_workers(self.engine.link.sweep([w.pidfd for w in self.engine.crew.workers.values()]))
            return
        self.engine.link.process.kill()
        self.engine.link.process.wait()
        survivors = self.engine.link.sweep([w.pidfd for w in self.engine.crew.workers.values()])
        self.engine.counts["supervisor_restarts"] += 1
        was_idle = self._lose_workers(survivors) == 0
        self._unwatch(self.engine.link.control.fileno())
        self._epoll.unregister(self.engine.link.pidfd)
        self.engine.link.close()
        grant = self.engine.budget.charge(time.monotonic(), failed_start=False) if was_idle else None
        try:
            if isinstance(grant, GaveUp):
                raise StartFailed("the supervisor process kept ending")
            self.engine.link = SupervisorLink(self.engine.settings, self.engine.bell)
            self.engine.link.wait_hello()
        except (KillpoolError, OSError) as error:
            self.engine.give_up(str(error), error, Cause.START_FAILED)
            return
        self._watch_link()
        for limits, number in self.engine.limit_ids.items():
            self.engine.link.send({"op": "limits", "id": number, "limits": limits.supervised()})
        self.engine.target = 0
        self.engine.grow()

    def _lose_workers(self, survivors: int) -> int:
        """Settle the calls of workers whose supervisor is gone; return how many were running."""
        lost = 0
        for worker in list(self.engine.crew.workers.values()):
            self.engine.ledger.take(worker)
            self._unwatch(worker.sock.fileno())
            self.engine.crew.remove(worker.number)
            charged = worker.charged()
            for number, call in list(worker.calls.items()):
                if worker.held is not None and number == worker.held.number:
                    self.engine.ledger.settle_record(
                        call, worker, worker.held, {"descendants": 0, "survivors": survivors}
                    )
                elif number == charged:
                    lost += 1
                    if call.is_cancelled:
                        self.engine.ledger.settle(call, Cause.CANCELLED)
                        continue
                    self.engine.ledger.retry_or_settle(call, settle.from_nothing(call, Cause.LOST))
                else:
                    self.engine.ledger.hand_back(call)
            worker.close()
        return lost


_NEWS: dict[str, Callable[[Loop, dict[str, Any], list[int]], None]] = {
    "worker": Loop._on_worker,
    "event": Loop._on_event,
    "broken": Loop._on_broken,
    "closed": Loop._on_closed,
    "exited": Loop._on_exited,
}
