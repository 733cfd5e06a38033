"""The engine of one pool: one lock, one I/O thread, and everything that is decided about calls on the host.

    submit ──> line ──> worker's outbox ──> data socket          (in the submitting thread, when a worker has room)
    ring, control socket ──> I/O thread (or a submitter with full windows) ──> futures, settled outside the lock

A call is kept until it is settled.  What had not begun when its worker died is handed over, once, at its old place.
"""

import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from killpool.core import wire
from killpool.core.budget import GaveUp, RestartBudget
from killpool.errors import KillpoolError, PoolBroken, PoolClosed, StartFailed
from killpool.host import settle
from killpool.host.call import Call
from killpool.host.crew import Crew
from killpool.host.link import SupervisorLink
from killpool.host.worker import WorkerLink
from killpool.outcome import Cause, Outcome
from killpool.spec import Limits

_NOT_RETRIED = (Cause.OK, Cause.EXCEPTION, Cause.CANCELLED, Cause.EXPIRED)
_QUIT_GRACE = 1.0  # seconds an idle worker may take to run its exit handlers
_CLOSE_WAIT = 5.0  # seconds a supervisor may take to end before it is killed and swept

Settled = tuple[Any, Callable[[], Outcome], str]
_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


class Engine:
    """See the module.  Every method that starts with an underscore is called with `lock` held, unless it says so."""

    def __init__(self, settings: dict[str, Any], crew: Crew, spares: int, name: str) -> None:
        self.lock = threading.Lock()
        self.crew = crew
        self.name = name
        self.outstanding = 0
        self.finished = 0
        self.counts = {"template_restarts": 0, "supervisor_restarts": 0, "survivors": 0, "idle_deaths": 0}
        self.is_closing = False
        self.ended = threading.Event()
        self.broken: PoolBroken | None = None
        self._settings = settings
        self._spares = spares
        self._budget = RestartBudget(*settings["restart"])
        self._order = 0
        self._target = 0
        self._done: list[Settled] = []
        self._limit_ids: dict[Limits, int] = {}
        self._init_error: BaseException | None = None
        self._drain_sent = False
        self._close_by = 0.0
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self.link = SupervisorLink(settings, self._bell)
            self.link.wait_hello()
        except BaseException:
            os.close(self._bell)
            raise
        self._epoll = select.epoll()
        self._epoll.register(self._bell, select.EPOLLIN)
        self._watched: dict[int, int] = {}
        self._watch_link()
        self._grow()
        self._thread = threading.Thread(target=self._run, name=f"killpool-{name}", daemon=True)
        _engines.add(self)
        self._thread.start()

    # -- the caller's side (without the lock)

    def submit(self, call: Call) -> None:
        """Put a call in line and give workers what they have room for."""
        with self.lock:
            if self.broken is not None:
                raise PoolBroken(str(self.broken), reason=self.broken.reason) from self.broken.__cause__
            if self.is_closing:
                raise PoolClosed(f"pool {self.name!r} is shut down")
            self._order += 1
            call.order = self._order
            self.outstanding += 1
            if call.limits is not None:
                call.limits_id = self._limits_id(call.limits)
            self.crew.line.push(call)
            if call.queue_timeout is not None:
                self.wake()
            self._grow()
            self._dispatch()
            if self.crew.line and self._take_all():
                self._dispatch()
        self.settle_done()

    def settle_done(self) -> None:
        """Finish the futures whose calls are decided; callbacks run here, never under the lock."""
        while self._done:
            with self.lock:
                done, self._done = self._done, []
            for future, build, kind in done:
                future.settle(build, kind)

    def cancel(self, call: Call) -> bool:
        """Withdraw a waiting call, kill a running one; False if it has ended."""
        with self.lock:
            if call.worker is not None:
                self._take(call.worker)
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
                        self._settle(call, Cause.CANCELLED)
                while (call := self.crew.line.pop()) is not None:
                    self._settle(call, Cause.CANCELLED)
        self.settle_done()
        self.wake()

    def kill(self) -> None:
        """Cancel everything and kill every process."""
        with self.lock:
            if self.ended.is_set():
                return
            self.is_closing = True
            while (call := self.crew.line.pop()) is not None:
                self._settle(call, Cause.CANCELLED)
            for worker in self.crew.workers.values():
                for call in worker.calls.values():
                    call.is_cancelled = True
            self._send_drain(0.0)
        self.settle_done()
        self.wake()

    def wake(self) -> None:
        """Make the I/O thread take a turn."""
        if self._bell >= 0:
            os.eventfd_write(self._bell, 1)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the supervisor is gone and the I/O thread has ended."""
        if threading.current_thread() is self._thread:
            return False
        return self.ended.wait(timeout)

    # -- the I/O thread

    def _run(self) -> None:
        """The I/O thread's main (without the lock)."""
        try:
            while True:
                with self.lock:
                    self._turn()
                self.settle_done()
                with self.lock:
                    if self._is_over():
                        break
                    timeout = self._sleep_time()
                self._epoll.poll(timeout)
        except BaseException as error:  # a loop's edge: nobody may wait for ever because of a fault of ours
            with self.lock:
                self._break(f"internal error: {type(error).__name__}: {error}", error, Cause.INTERNAL)
            self.settle_done()
            self.link.destroy()
            self.link.sweep([w.pidfd for w in self.crew.workers.values()])
            raise
        finally:
            self._close()
            self.ended.set()

    def _turn(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        self._receive()
        self._take_all()
        now = time.monotonic()
        for call in self.crew.expired(now):
            self.crew.line.remove(call)
            self._settle(call, Cause.EXPIRED)
        for worker, call, seconds in self.crew.stalled(now):
            call.stalled = seconds
            self._send_kill(worker, 0, Cause.SILENT)
        for call in self.crew.steal():
            self._hand_back(call)
        self._dispatch()
        self._retire()
        if self.is_closing and self.outstanding == 0 and not self._drain_sent:
            self._send_drain(_QUIT_GRACE)
        if self._drain_sent and time.monotonic() >= self._close_by and not self.link.is_dead():
            self.link.process.kill()
        for worker in self.crew.workers.values():
            self._interest(worker.sock.fileno(), worker.wants_write, worker.page is None and not worker.is_retiring)
        self._interest(self.link.control.fileno(), self.link.control.wants_write, True)

    def _sleep_time(self) -> float | None:
        """Arm the bells; return how long the I/O thread may sleep."""
        if self._done:
            return 0.0
        workers = list(self.crew.workers.values())
        for worker in workers:
            worker.arm(True)
        if workers and workers[0].page is not None:
            wire_barrier()
            if any(worker.has_records() for worker in workers):
                return 0.0
        now = time.monotonic()
        times = [t for t in (self.crew.next_expiry(), self.crew.next_stall(now)) if t is not None]
        if self._drain_sent:
            times.append(self._close_by)
        return max(min(times) - now, 0.0) if times else None

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
        self._epoll.register(self.link.pidfd, select.EPOLLIN)
        self._interest(self.link.control.fileno(), False, True)

    def _is_over(self) -> bool:
        return self.is_closing and self.link.is_dead() and not self.crew.workers and self.outstanding == 0

    def _close(self) -> None:
        """Close what the engine owns (without the lock: the thread is the last user)."""
        with self.lock:
            self.is_closing = True
            for number in list(self.crew.workers):
                worker = self.crew.remove(number)
                if worker is not None:
                    worker.close()
            self.link.process.wait()
            self.link.close()
            self._epoll.close()
            os.close(self._bell)
            self._bell = -1

    # -- news

    def _receive(self) -> None:
        self.link.control.flush()
        early, self.link.early = self.link.early, []
        for message, fds in early:
            _NEWS[message["op"]](self, message, fds)
        try:
            for message, fds in self.link.control.receive():
                _NEWS[message["op"]](self, message, fds)
        except EOFError:
            self._supervisor_ended()
            return
        if self.link.is_dead():
            self._supervisor_ended()

    def _on_worker(self, message: dict[str, Any], fds: list[int]) -> None:
        self.crew.add(WorkerLink(message["id"], message["pid"], fds))

    def _on_event(self, message: dict[str, Any], _fds: list[int]) -> None:
        kind = message["event"]
        key = {"template_restarted": "template_restarts", "idle_death": "idle_deaths"}.get(kind)
        if key:
            self.counts[key] += 1

    def _on_broken(self, message: dict[str, Any], _fds: list[int]) -> None:
        cause = self._init_error
        text = message["reason"]
        if cause is not None:
            text += f": {type(cause).__name__}: {cause}"
        self._break(text, cause, Cause.START_FAILED)

    def _on_closed(self, _message: dict[str, Any], _fds: list[int]) -> None:
        return

    def _on_exited(self, message: dict[str, Any], _fds: list[int]) -> None:
        """A worker's tree is gone (or said to survive): settle what it ran, hand over what it had not begun."""
        self.counts["survivors"] += message["survivors"]
        worker = self.crew.workers.get(message["id"])
        if worker is None:
            return
        self._take(worker)
        self._unwatch(worker.sock.fileno())
        self.crew.remove(worker.number)
        if worker.init_error:
            self._init_error = settle.rebuild_error(worker.init_error)
        started = worker.started()
        if worker.page is None:
            message["json"], message["bad_frame"] = worker.decode_answer()
            message["has_result"] = message["json"] is not None
        for number, call in list(worker.calls.items()):
            if worker.held is not None and number == worker.held.number:
                self._settle_record(call, worker, worker.held, message)
            elif number == started or call.stalled:
                self._charge(call, worker, message)
            else:
                self._hand_back(call)
        worker.close()

    def _supervisor_ended(self) -> None:
        """The supervisor is dead: be the second killer, tell running calls `lost`, start another."""
        if self._drain_sent or self.broken is not None:
            self._lose_workers(self.link.sweep([w.pidfd for w in self.crew.workers.values()]))
            return
        self.link.process.kill()
        self.link.process.wait()
        survivors = self.link.sweep([w.pidfd for w in self.crew.workers.values()])
        self.counts["supervisor_restarts"] += 1
        was_idle = self._lose_workers(survivors) == 0
        self._unwatch(self.link.control.fileno())
        self._epoll.unregister(self.link.pidfd)
        self.link.close()
        grant = self._budget.charge(time.monotonic(), failed_start=False) if was_idle else None
        try:
            if isinstance(grant, GaveUp):
                raise StartFailed("the supervisor process kept ending")
            self.link = SupervisorLink(self._settings, self._bell)
            self.link.wait_hello()
        except (KillpoolError, OSError) as error:
            self._break(str(error), error, Cause.START_FAILED)
            return
        self._watch_link()
        for limits, number in self._limit_ids.items():
            self.link.send({"op": "limits", "id": number, "limits": limits_dict(limits)})
        self._target = 0
        self._grow()

    def _lose_workers(self, survivors: int) -> int:
        """Settle the calls of workers whose supervisor is gone; return how many were running."""
        lost = 0
        for worker in list(self.crew.workers.values()):
            self._take(worker)
            self._unwatch(worker.sock.fileno())
            self.crew.remove(worker.number)
            started = worker.started()
            for number, call in list(worker.calls.items()):
                if worker.held is not None and number == worker.held.number:
                    self._settle_record(call, worker, worker.held, {"descendants": 0, "survivors": survivors})
                elif number == started:
                    lost += 1
                    self._retry_or_settle(call, settle.from_nothing(call, Cause.LOST))
                else:
                    self._hand_back(call)
            worker.close()
        return lost

    # -- results

    def _take_all(self) -> bool:
        """Take what workers have committed; return whether there was anything."""
        found = False
        for worker in list(self.crew.workers.values()):
            if worker.page is None:
                if worker.is_active and worker.calls and worker.read_answer():
                    self.crew.release(worker)
                    found = True
            elif worker.has_records():
                self._take(worker)
                found = True
        return found

    def _take(self, worker: WorkerLink) -> None:
        if worker.page is None:
            worker.read_answer()
            return
        for record in worker.drain():
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
                    self._hand_back(call)
                continue
            self.crew.depth.observe((record.end - record.start) / 1e9)
            if call is not None:
                self._settle_record(call, worker, record, None)

    def _settle_record(
        self, call: Call, worker: WorkerLink, record: settle.Record, exited: dict[str, Any] | None
    ) -> None:
        if call.is_cancelled:
            self._settle(call, Cause.CANCELLED)
            return
        kind = "ok" if record.kind & wire.KIND_MASK == wire.KIND_VALUE else "error"
        build = partial(settle.from_record, call, record, worker.pid, self._label(worker), exited)
        self._finish(call, build, kind)

    def _label(self, worker: WorkerLink) -> str:
        return f"{self.name}/{worker.number}"

    def _charge(self, call: Call, worker: WorkerLink, message: dict[str, Any]) -> None:
        if call.is_cancelled:
            message = {**message, "intent": "cancelled"}
        cpu = (0.0, 0.0) if self.crew.one_call else worker.cpu
        self._retry_or_settle(call, settle.from_death(call, message, self._label(worker), cpu))

    def _retry_or_settle(self, call: Call, outcome: Outcome) -> None:
        retries = call.retries >= call.attempts and outcome.cause not in _NOT_RETRIED and not call.is_cancelled
        if retries and self.broken is None and not self._drain_sent:
            call.worker, call.number, call.stalled = None, 0, 0.0
            self.crew.line.push(call)
            return
        kind = "ok" if outcome.ok else "cancelled" if outcome.cause is Cause.CANCELLED else "error"
        self._finish(call, lambda: outcome, kind)

    def _hand_back(self, call: Call) -> None:
        """Put a call that had not begun back in line, at its old place; it has used no attempt."""
        call.worker, call.number = None, 0
        call.attempts -= 1
        if call.is_cancelled:
            self._settle(call, Cause.CANCELLED)
        elif self.broken is not None:
            self._settle(call, Cause.START_FAILED)
        else:
            self.crew.line.push(call)

    def _settle(self, call: Call, cause: Cause, text: str = "") -> None:
        limit = None
        if cause is Cause.EXPIRED and call.queue_timeout is not None:
            limit = settle.LimitHit("queue", "task", call.queue_timeout)
        build = partial(settle.from_nothing, call, cause, limit, text)
        self._finish(call, build, "cancelled" if cause is Cause.CANCELLED else "error")

    def _finish(self, call: Call, build: Callable[[], Outcome], kind: str) -> None:
        if call.is_settled:
            return
        call.is_settled = True
        call.worker = None
        self.outstanding -= 1
        self.finished += 1
        self._done.append((call.future, build, kind))

    # -- work out

    def _dispatch(self) -> None:
        crew = self.crew
        touched: dict[int, WorkerLink] = {}
        while (call := crew.line.peek()) is not None:
            if self._drain_sent:
                return
            worker = crew.pick(call)
            if worker is None:
                break
            crew.line.pop()
            try:
                crew.give(worker, call)
            except OSError as error:  # no descriptor left for a large argument
                self._finish(call, partial(settle.from_exception, call, error), "error")
                worker.calls.pop(worker.last, None)
                continue
            if crew.one_call:
                self._use(worker, call)
            touched[worker.number] = worker
        for worker in touched.values():
            worker.flush()
            if worker.wants_write or worker.page is None:
                self.wake()

    def _use(self, worker: WorkerLink, call: Call) -> None:
        message: dict[str, Any] = {"op": "use", "id": worker.number}
        if worker.page is None:
            limits = self._settings["limits"] if call.limits is None else limits_dict(call.limits)
            message |= {"call": worker.last, "timeout": call.timeout, "limits": limits}
        self.link.send(message)

    def _cancel(self, call: Call) -> None:
        call.is_cancelled = True
        worker = call.worker
        if worker is None:
            self.crew.line.remove(call)
            self._settle(call, Cause.CANCELLED)
        elif call.number > worker.started() and worker.withdraw([call.number]):
            self._settle(call, Cause.CANCELLED)
            self.wake()
        else:
            self._send_kill(worker, call.number, Cause.CANCELLED)

    def _send_kill(self, worker: WorkerLink, number: int, cause: Cause) -> None:
        self.link.send({"op": "kill", "id": worker.number, "call": number, "cause": str(cause)})

    def _retire(self) -> None:
        for worker in self.crew.workers.values():
            if worker.is_retiring and worker.is_active and not worker.calls and not worker.quit_sent:
                worker.quit_sent = True
                worker.queue_control(wire.CALL_QUIT)
                worker.flush()
                self.link.send({"op": "retire", "id": worker.number, "grace": _QUIT_GRACE})

    def _send_drain(self, grace: float) -> None:
        self._drain_sent = True
        self._close_by = time.monotonic() + grace + _CLOSE_WAIT
        self.link.send({"op": "drain", "grace": grace})
        if grace > 0:
            for worker in self.crew.workers.values():
                worker.queue_control(wire.CALL_QUIT)
                worker.flush()

    def _grow(self) -> None:
        """Ask for as many workers as there is work for, plus the spares."""
        wanted = min(self.crew.max_workers, max(self.outstanding, 1)) + self._spares
        if wanted > self._target:
            self._target = wanted
            self.link.send({"op": "grow", "target": wanted})

    def _limits_id(self, limits: Limits) -> int:
        number = self._limit_ids.get(limits)
        if number is None:
            number = self._limit_ids[limits] = len(self._limit_ids) + 1
            self.link.send({"op": "limits", "id": number, "limits": limits_dict(limits)})
        return number

    def preload(self, module: str) -> None:
        """Have a dependency of ours imported before later workers are forked."""
        with self.lock:
            if not self.is_closing and self.broken is None:
                self.link.send({"op": "preload", "module": module})

    def _break(self, reason: str, error: BaseException | None, cause: Cause) -> None:
        """Give up: everything that waits or runs is told why."""
        self.broken = PoolBroken(f"pool {self.name!r} is broken: {reason}", reason=reason)
        self.broken.__cause__ = error
        while (call := self.crew.line.pop()) is not None:
            self._settle(call, cause, reason)
        for worker in self.crew.workers.values():
            for call in list(worker.calls.values()):
                self._settle(call, cause, reason)
            worker.calls.clear()
        if not self._drain_sent:
            self.is_closing = True
            self._send_drain(0.0)


def limits_dict(limits: Limits) -> dict[str, float]:
    """Return the limits that the supervisor keeps, those that are set."""
    names = ("cpu", "memory", "processes", "output")
    return {name: getattr(limits, name) for name in names if getattr(limits, name) is not None}


def wire_barrier() -> None:
    """Order our store of HOST_ARMED before our look at HEAD, against the workers' stores and loads."""
    from killpool.system.syscalls import membarrier_global  # noqa: PLC0415

    membarrier_global()


_NEWS: dict[str, Callable[[Engine, dict[str, Any], list[int]], None]] = {
    "worker": Engine._on_worker,
    "event": Engine._on_event,
    "broken": Engine._on_broken,
    "closed": Engine._on_closed,
    "exited": Engine._on_exited,
}


def _after_fork_in_child() -> None:
    """A forked child of the host has no I/O thread and must not hold the sockets: end-of-file would never come."""
    for engine in list(_engines):
        engine.lock = threading.Lock()
        engine.is_closing = True
        engine.link.control.sock.close()
        for worker in engine.crew.workers.values():
            worker.sock.close()
        engine.ended.set()
    _engines.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
