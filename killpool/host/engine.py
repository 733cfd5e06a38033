"""The engine of one pool: one lock, one I/O thread, and everything that is decided about calls on the host.

submit ──> line ──> worker's outbox ──> data socket          (in the submitting thread, when a worker has room)
ring, control socket ──> I/O thread (or a thread that submits or waits) ──> futures, settled outside the lock
"""

import os
import threading
import time
import weakref
from functools import partial
from typing import Any

from killpool.core import wire
from killpool.core.budget import RestartBudget
from killpool.errors import PoolBroken, PoolClosed, StartFailed
from killpool.host import settle
from killpool.host.call import Call
from killpool.host.crew import STALL_LEAST, Crew
from killpool.host.ledger import Ledger
from killpool.host.link import SupervisorLink
from killpool.host.loop import BURST, QUIT_GRACE, Loop
from killpool.host.worker import WorkerLink
from killpool.outcome import Cause
from killpool.spec import Limits
from killpool.system import syscalls

_BATCH = 16  # submits that are sent together in a burst
_SPIN = 150_000  # ns a waiting thread looks at its worker's page before it sleeps
_CLOSE_WAIT = 5.0  # seconds a supervisor may take to end before it is killed and swept

_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


class Engine:
    """See the module.  The methods of the first half are the callers'; the rest is called with `lock` held."""

    def __init__(self, settings: dict[str, Any], crew: Crew, spares: int, name: str) -> None:
        self.lock = threading.Lock()
        self.crew = crew
        self.name = name
        self.ledger = Ledger(crew, name, self._on_bad_worker)
        self.counts = {"template_restarts": 0, "supervisor_restarts": 0, "survivors": 0, "idle_deaths": 0}
        self.is_closing = False
        self.is_abandoned = False
        self.is_foreign = False  # this process is a fork of the one that made it
        self.ended = threading.Event()
        self.settings = settings
        self._spares = spares
        self.budget = RestartBudget(*settings["restart"])
        self._order = 0
        self._least_priority = 0  # of all calls so far: where all are alike, nothing has to make way
        self.submits = 0  # since the last turn
        self.is_asleep = False  # the I/O thread is in epoll with the bells on
        self.has_sent = False  # since it fell asleep
        self.wakes_at = 0.0  # when it then wakes by itself, monotonic seconds
        self.target = 0
        self.limit_ids: dict[Limits, int] = {}
        self.close_by = 0.0
        try:
            self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            raise StartFailed(f"no descriptor for the pool: {error}") from error
        try:
            self.link = SupervisorLink(settings, self.bell)
            self.link.wait_hello()
        except BaseException:
            os.close(self.bell)
            raise
        try:
            loop = Loop(self)
        except OSError as error:
            self.link.destroy()
            os.close(self.bell)
            raise StartFailed(f"no descriptor for the pool: {error}") from error
        self.grow()
        self._thread = threading.Thread(target=loop.run, name=f"killpool-{name}", daemon=True)
        _engines.add(self)
        self._thread.start()

    def submit(self, call: Call) -> None:
        """Put a call in line and give workers what they have room for."""
        with self.lock:
            broken = self.ledger.broken
            if broken is not None:
                raise PoolBroken(str(broken), reason=broken.reason) from broken.__cause__
            if self.is_foreign:
                raise PoolClosed(f"pool {self.name!r} belongs to the parent of this forked process")
            if self.is_closing:
                raise PoolClosed(f"pool {self.name!r} is shut down")
            self._order += 1
            call.order = self._order
            self.ledger.outstanding += 1
            if call.limits is not None:
                call.limits_id = self._limits_id(call.limits)
            self.crew.line.push(call)
            if call.priority > self._least_priority:
                self._make_way(call.priority)
            self._least_priority = min(self._least_priority, call.priority)
            if call.queue_timeout is not None:
                self.wake()
            self.grow()
            self.submits += 1
            # In a burst the submitter is the one with the CPU: it sends in batches and takes results itself, and the
            # I/O thread, which would fight it for the lock and the GIL, only looks in once a millisecond.
            if self.submits < BURST or self.submits % _BATCH == 0:
                self._pump()
        if self.ledger.done:
            self.settle_done()

    def help(self, call: Call | None) -> None:
        """Work in the place of the I/O thread, in a thread that is about to wait: it saves a thread switch.

        With short calls, look at the worker's page for a bounded time before sleeping: a wake-up costs as much.
        """
        with self.lock:
            self.submits = 0
            self._pump()
            worker: WorkerLink | None = call.worker if call is not None else None
            has_page = worker is not None and worker.page is not None
            if not has_page or self.crew.one_call or self.crew.depth.now() <= BURST or self.ledger.done:
                worker = None
            if worker is not None:
                worker.arm(False)
        if worker is not None:
            self._spin(worker)
        self.settle_done()

    def _spin(self, worker: WorkerLink) -> None:
        """Wait for the worker's next record, bounded; then take it, or arm its bell again (without the lock)."""
        end = time.monotonic_ns() + _SPIN
        while time.monotonic_ns() < end and worker.page is not None and not worker.has_records():
            time.sleep(0)  # lets other threads have the GIL
        with self.lock:
            if worker.page is not None and worker.number in self.crew.workers:
                worker.arm(True)
                syscalls.membarrier_global()
                if worker.has_records():
                    self.ledger.take(worker)
            self.dispatch()
            self.retire()

    def _make_way(self, priority: int) -> None:
        """Take back calls of a lower priority that were sent ahead and have not begun; they keep their place."""
        for worker in self.crew.workers.values():
            started = worker.started()
            lower = [n for n, call in worker.calls.items() if n > started and call.priority < priority]
            for call in worker.withdraw(lower):
                self.ledger.hand_back(call)

    def _pump(self) -> None:
        """Take what is committed, give out what fits."""
        self.dispatch()
        if self.ledger.outstanding and self.ledger.take_all():
            self.dispatch()
        self.retire()

    def settle_done(self) -> None:
        """Finish the futures whose calls are decided; callbacks run here, never under the lock."""
        while self.ledger.done:
            with self.lock:
                done, self.ledger.done = self.ledger.done, []
            for future, build, kind, raw in done:
                future.settle(build, kind, raw)

    def cancel(self, call: Call | None) -> bool:
        """Withdraw a waiting call, kill a running one; False if it has ended."""
        if call is None:  # its future is just being settled
            return False
        with self.lock:
            if call.worker is not None:
                self.ledger.take(call.worker)
                self.retire()
            if call.is_settled:
                done = False
            else:
                done = True
                self._cancel(call)
        self.settle_done()
        return done

    def is_running(self, call: Call | None) -> bool:
        """Say whether a call has begun, from its worker's board."""
        with self.lock:
            worker = call.worker if call is not None else None
            return worker is not None and worker.started() >= call.number  # type: ignore[union-attr]

    def shutdown(self, cancel_waiting: bool) -> None:
        """Take no more calls; end when the last one is settled."""
        with self.lock:
            self.is_closing = True
            if cancel_waiting:
                for worker in self.crew.workers.values():
                    started = worker.started()
                    for call in worker.withdraw([n for n in worker.calls if n > started]):
                        self.ledger.settle(call, Cause.CANCELLED)
                while (waiting := self.crew.line.pop()) is not None:
                    self.ledger.settle(waiting, Cause.CANCELLED)
        self.settle_done()
        self.wake()

    def abandon(self) -> None:
        """Shut down when the pool object was collected.  Takes no lock: the collector may run in any thread."""
        self.is_abandoned = True
        self.wake()

    def kill(self) -> None:
        """Cancel everything and kill every process."""
        with self.lock:
            if self.ended.is_set():
                return
            self.is_closing = True
            while (call := self.crew.line.pop()) is not None:
                self.ledger.settle(call, Cause.CANCELLED)
            for worker in self.crew.workers.values():
                for call in worker.calls.values():
                    call.is_cancelled = True
            self.send_drain(0.0)
        self.settle_done()
        self.wake()

    def wake(self) -> None:
        """Make the I/O thread take a turn."""
        if self.bell >= 0:
            os.eventfd_write(self.bell, 1)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the supervisor is gone and the I/O thread has ended."""
        if threading.current_thread() is self._thread:
            return False
        return self.ended.wait(timeout)

    def dispatch(self) -> None:
        """Give waiting calls to workers with room, and send them."""
        crew = self.crew
        touched: dict[int, WorkerLink] = {}
        while (call := crew.line.peek()) is not None:
            if self.ledger.is_draining:
                return
            worker = crew.pick(call)
            if worker is None:
                break
            crew.line.pop()
            try:
                crew.give(worker, call)
            except OSError as error:  # no descriptor left for a large argument
                self.ledger.finish(call, partial(settle.from_exception, call, error), "error")
                worker.calls.pop(worker.last, None)
                continue
            if crew.one_call:
                self._use(worker, call)
            touched[worker.number] = worker
        self.has_sent = self.has_sent or bool(touched)
        if touched and self.is_asleep and self.wakes_at > time.monotonic() + STALL_LEAST:
            # Somebody has to notice a worker that does not begin what it is sent: from now on it sleeps with a timer.
            self.wake()
        for worker in touched.values():
            if self.is_asleep:
                worker.arm(True)  # before the send: the worker sees it with the call
            self.flush(worker)
            if worker.wants_write or worker.page is None:
                self.wake()

    def flush(self, worker: WorkerLink) -> None:
        """Send what waits in a worker's outbox."""
        # The supervisor hears of a one-call worker's use before the worker hears of its call.
        if not (self.crew.one_call and self.link.control.wants_write):
            worker.flush()

    def _use(self, worker: WorkerLink, call: Call) -> None:
        message: dict[str, Any] = {"op": "use", "id": worker.number}
        if worker.page is None:
            limits = self.settings["limits"] if call.limits is None else call.limits.supervised()
            message |= {"call": worker.last, "timeout": call.timeout, "limits": limits, "sent": time.monotonic_ns()}
        self.link.send(message)

    def _cancel(self, call: Call) -> None:
        call.is_cancelled = True
        worker = call.worker
        if worker is None:
            self.crew.line.remove(call)
            self.ledger.settle(call, Cause.CANCELLED)
        elif call.number > worker.started() and worker.withdraw([call.number]):
            self.ledger.settle(call, Cause.CANCELLED)
            self.wake()
        else:
            self.send_kill(worker, call.number, Cause.CANCELLED)

    def send_kill(self, worker: WorkerLink, number: int, cause: Cause) -> None:
        """Have a worker killed if it still runs call `number`; 0: whatever it does."""
        self.link.send({"op": "kill", "id": worker.number, "call": number, "cause": str(cause)})

    def _on_bad_worker(self, worker: WorkerLink, call: int) -> None:
        """Kill a worker that sends what it should not."""
        self.send_kill(worker, call, Cause.PROTOCOL)

    def end_lingering(self, now: float) -> None:
        """Kill untrusted workers that have answered and do not end: their answer stands."""
        for worker in self.crew.lingering(now - QUIT_GRACE):
            worker.answered_at = 0.0
            message = {"op": "kill", "id": worker.number, "call": 0, "cause": str(Cause.CANCELLED), "planned": True}
            self.link.send(message)

    def retire(self) -> None:
        """Let workers that have served their number of calls end."""
        if self.crew.max_tasks is None:
            return
        for worker in self.crew.workers.values():
            if worker.is_retiring and worker.is_active and not worker.calls and not worker.quit_sent:
                worker.quit_sent = True
                worker.queue_control(wire.CALL_QUIT)
                worker.flush()
                self.link.send({"op": "retire", "id": worker.number, "grace": QUIT_GRACE})

    def send_drain(self, grace: float) -> None:
        """Have all workers end: by themselves within `grace` seconds, else killed; then the supervisor ends too."""
        self.ledger.is_draining = True
        self.close_by = time.monotonic() + grace + _CLOSE_WAIT
        self.link.send({"op": "drain", "grace": grace})
        if grace > 0:
            for worker in self.crew.workers.values():
                worker.queue_control(wire.CALL_QUIT)
                worker.flush()

    def grow(self) -> None:
        """Ask for as many workers as there is work for, plus the spares."""
        wanted = min(self.crew.max_workers, max(self.ledger.outstanding, 1)) + self._spares
        if wanted > self.target:
            self.target = wanted
            self.link.send({"op": "grow", "target": wanted})

    def _limits_id(self, limits: Limits) -> int:
        number = self.limit_ids.get(limits)
        if number is None:
            number = self.limit_ids[limits] = len(self.limit_ids) + 1
            self.link.send({"op": "limits", "id": number, "limits": limits.supervised()})
        return number

    def preload(self, module: str) -> None:
        """Have a dependency of ours imported before later workers are forked."""
        with self.lock:
            if not self.is_closing and self.ledger.broken is None:
                self.link.send({"op": "preload", "module": module})

    def give_up(self, reason: str, error: BaseException | None, cause: Cause) -> None:
        """Give up: everything that waits or runs is told why."""
        self.ledger.broken = PoolBroken(f"pool {self.name!r} is broken: {reason}", reason=reason)
        self.ledger.broken.__cause__ = error
        while (call := self.crew.line.pop()) is not None:
            self.ledger.settle(call, cause, reason)
        for worker in self.crew.workers.values():
            for call in list(worker.calls.values()):
                self.ledger.settle(call, cause, reason)
            worker.calls.clear()
        if not self.ledger.is_draining:
            self.is_closing = True
            self.send_drain(0.0)


def _after_fork_in_child() -> None:
    """A forked child of the host has no I/O thread and must not hold the sockets: end-of-file would never come."""
    for engine in list(_engines):
        engine.lock = threading.Lock()
        engine.is_closing = engine.is_foreign = True
        engine.link.control.sock.close()
        for worker in engine.crew.workers.values():
            worker.sock.close()
        engine.ended.set()
    _engines.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
