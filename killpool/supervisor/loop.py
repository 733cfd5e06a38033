"""The supervisor's one loop: it watches children, keeps deadlines, and keeps as many children as its host wants.

Events come from: the control socket, the host's pidfd, the bell that workers ring, SIGCHLD, the template, the
children's pipes, and one timer.  It sleeps in epoll and nowhere else, and it never polls: idle means idle.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from killpool.core import wire
from killpool.core.budget import RestartBudget
from killpool.supervisor import ending, report, template
from killpool.supervisor.births import Births
from killpool.supervisor.child import Armed, Child, Intent, State
from killpool.supervisor.deaths import Deaths
from killpool.supervisor.output import Output
from killpool.supervisor.sampling import Sampler
from killpool.supervisor.staff import Staff
from killpool.system import channel, syscalls, treekill
from killpool.worker import setup

_NS = 1_000_000_000


class Supervisor:
    """All state of one supervisor process; see `run`."""

    def __init__(self, control: channel.FrameSocket, settings: dict[str, Any], births: Births, host_pidfd: int) -> None:
        self.control = control
        self.settings = settings
        self.births = births
        self.children: dict[int, Child] = {}
        self.armed = wire.NEVER
        self.bell = births.bell
        self.is_done = False
        self.preloads: list[str] = []  # modules that the template was asked for on the way
        self.budget_exempt = False
        self.unclaimed: dict[int, tuple[int, tuple[float, float, int]]] = {}
        plan = births.config.plan
        self.deaths = Deaths(
            self.children, settings["contain"], plan.tag_level, plan.nonce, self._known_pids, self._on_gone
        )
        self.staff = Staff(self.children, births, control, RestartBudget(*settings["restart"]), self._on_limit)
        self.sampler = Sampler({0: settings["limits"]}, settings["cores"], self._on_limit)
        self.output = Output(self.sampler.limits_of, self._on_limit, self._unwatch)
        self.timer = syscalls.Timer()
        self.sigchld = syscalls.signalfd({signal.SIGCHLD})
        self.epoll = select.epoll()
        self.handlers: dict[int, Callable[[], None]] = {}
        for fd, handler in (
            (control.fileno(), self._on_control),
            (host_pidfd, self._on_host_death),
            (self.bell, self._on_bell),
            (self.sigchld, self._on_sigchld),
            (self.timer.fd, self.timer.clear),
        ):
            self._watch(fd, handler)
        self._watch_template()

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self.handlers[fd] = handler
        self.epoll.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        if self.handlers.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    # -- the loop

    def run(self) -> None:
        """Work until the host closes or dies; then kill everything and return."""
        self._on_control()  # frames that came with the first one
        self._reap()
        while not self.is_done:
            self._arm()
            self._set_write_interest()
            for fd, _event in self.epoll.poll():
                handler = self.handlers.get(fd)
                if handler is not None:
                    handler()
            now = time.monotonic_ns()
            for child in list(self.children.values()):
                self._due(child, now)
            if self.births.import_by and now >= self.births.import_by:
                self._import_overdue()
            self.staff.maintain(now, self.armed)
            self.is_done = self.is_done or (self.staff.is_closing and not self.children)
        ending.end(self.children, self.births)
        self.control.send({"op": "closed"})

    def _set_write_interest(self) -> None:
        events = select.EPOLLIN | (select.EPOLLOUT if self.control.wants_write else 0)
        self.epoll.modify(self.control.fileno(), events)

    def _due(self, child: Child, now: int) -> None:
        if child.state is State.LIVE:
            deadline = child.board_deadline()
            if child.armed is not None and now >= child.armed.deadline:
                self._timeout(child, child.armed.call, child.armed.deadline, 0)
            elif deadline and now >= deadline:
                running = child.running()
                if running is not None and running[1] == deadline:
                    self._timeout(child, running[0], deadline, deadline)
            elif child.until and now >= child.until:  # a planned end that did not come by itself
                self.deaths.begin(child, Intent("cancelled", 0, now), wants_stack=False)
            elif child.next_sample and now >= child.next_sample:
                self.sampler.sample(child, now)
        elif child.state is State.STARTING and child.until and now >= child.until:
            child.failure = "start: not ready within the start limit"
            self.deaths.begin(child, Intent("start_failed", 0, child.until, "start"), wants_stack=False)
        else:
            self.deaths.due(child, now)

    def _timeout(self, child: Child, call: int, since: int, deadline: int) -> None:
        page = child.page
        phase = page.words[wire.PHASE] if page is not None else wire.PHASE_READY
        if phase in (wire.PHASE_IMPORTING, wire.PHASE_INITIALIZING):
            value = self.settings["start_timeout"]
            intent = Intent("start_failed", call, since, "start", value, deadline)
        else:
            start = page.words[wire.START] if page is not None else child.armed.start if child.armed else since
            intent = Intent("timeout", call, since, "wall", (since - start) / _NS, deadline)
        self.deaths.begin(child, intent, wants_stack=True)

    def _on_limit(self, child: Child, intent: Intent) -> None:
        self.deaths.begin(child, intent, wants_stack=False)

    def _next_wake(self) -> int:
        times = [t for c in self.children.values() for t in (c.wake(), c.board_deadline()) if t]
        if self.staff.not_before and self.staff.wanted() > 0:
            times.append(self.staff.not_before)
        if self.births.import_by:
            times.append(self.births.import_by)
        return min(times, default=wire.NEVER)

    def _arm(self) -> None:
        """Set the timer so that no deadline can pass unseen; publish when it will go off."""
        now = time.monotonic_ns()
        while True:
            wake = self._next_wake()
            if wake >= self.armed > now:
                return  # it goes off early enough; once too often is cheaper than each time
            self.armed = wake
            for child in self.children.values():
                if child.page is not None:
                    child.page.words[wire.ARMED] = wake
            self.timer.set(0 if wake == wire.NEVER else wake)
            # A worker stores its deadline, then loads ARMED; we stored ARMED, and now look at the deadlines again.
            # The barrier makes sure that one of the two sees the other.
            syscalls.membarrier_global()
            if self._next_wake() >= wake:
                return

    # -- events

    def _on_control(self) -> None:
        try:
            self.control.flush()
            for message, fds in self.control.receive():
                for fd in fds:
                    os.close(fd)
                _OPS[message["op"]](self, message)
        except EOFError:
            self._on_host_death()

    def _on_host_death(self) -> None:
        self.staff.is_closing = self.is_done = True

    def _on_bell(self) -> None:
        os.read(self.bell, 8)
        self._on_control()  # limits of the call that rang may be on their way
        now = time.monotonic_ns()
        for child in self.children.values():
            self.sampler.wake(child, now)

    def _on_sigchld(self) -> None:
        try:
            os.read(self.sigchld, 128 * 64)
        except BlockingIOError:
            pass
        for child in list(self.children.values()):
            if child.state is State.STOPPING:
                self.deaths.look_again(child, is_last=False)
        self._on_control()  # that a worker was given its only call is said before the call is sent
        self._reap()
        for child in list(self.children.values()):
            if child.state is State.EMPTYING:
                self.deaths.try_empty(child)

    def _reap(self) -> None:
        """Reap what has ended: ours by name, the orphans we adopted, the template."""
        while True:
            try:
                peek = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if peek is None:
                return
            pid, status, usage = os.wait4(peek.si_pid, os.WNOHANG)
            if pid == 0:
                return
            summary = (usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
            child = next((c for c in self.children.values() if c.pid == pid), None)
            if child is not None:
                self.deaths.on_exit(child, status, summary)
            elif pid == self.births.template_pid:
                self._on_template_end(status)
            elif any(c.state is State.FORKING for c in self.children.values()):
                # It may have ended before the template's answer was read.
                self.unclaimed[pid] = (status, summary)

    def _on_template_end(self, status: int) -> None:
        if os.waitstatus_to_exitcode(status) == template.UNFIT_EXIT and self.preloads:
            self.preloads.pop()  # the module that it cannot have
            self.budget_exempt = True
        self._read_template()
        self._template_lost()

    def _import_overdue(self) -> None:
        """An import in the template does not end: while it lasts nobody can be forked."""
        if not self.births.is_imported:
            self.staff.give_up(f"preload: not imported within {self.settings['start_timeout']:g} s")
        elif self.preloads:
            self.preloads.pop()  # left to the workers that need it, whose own import is limited too
        self.budget_exempt = True
        self.births.kill_template()

    def _watch_template(self) -> None:
        assert self.births.sock is not None
        sock = self.births.sock.fileno()
        # At its end-of-file the template is ending; what it was is told by its wait status, in `_reap`.
        self._watch(sock, lambda: None if self._read_template() else self._unwatch(sock))

    def _read_template(self) -> bool:
        return self.births.sock is not None and self.births.replies(self._on_reply)

    def _on_reply(self, number: int, pid: int, pidfd: int, text: str) -> None:
        if number == 0:
            if text:
                self.staff.give_up(text)
            self.births.imported()
            return
        child = self.children.get(number)
        if child is None:
            if pidfd >= 0:
                os.close(pidfd)
            return
        if pid < 0:
            self._forget_birth(child, f"fork: {os.strerror(-pid)}")
            return
        child.pid, child.pidfd = pid, pidfd
        child.state = State.STARTING
        child.until = time.monotonic_ns() + int(self.settings["start_timeout"] * _NS)
        self._watch_child(child)
        if pid in self.unclaimed:
            status, usage = self.unclaimed.pop(pid)
            self._on_status(child)
            self.deaths.on_exit(child, status, usage)
        elif self.staff.is_closing:
            self.deaths.begin(child, Intent("cancelled", 0, time.monotonic_ns()), wants_stack=False)
        if self.unclaimed and not any(c.state is State.FORKING for c in self.children.values()):
            self.unclaimed.clear()  # orphans' ends; a pid may come again

    def _forget_birth(self, child: Child, failure: str) -> None:
        del self.children[child.number]
        child.close()
        self.staff.charge(failure, failed_start=True)

    def _template_lost(self) -> None:
        """The template died: what it was forking is unknown, so it is swept; then there is a new one."""
        sock, self.births.sock = self.births.sock, None
        if sock is None:
            return
        self._unwatch(sock.fileno())
        sock.close()
        for child in [c for c in self.children.values() if c.state is State.FORKING]:
            del self.children[child.number]
            child.close()
        me, known = os.getpid(), self._known_pids()
        treekill.walk_kill(lambda: self.deaths.strangers(me, known))
        if self.staff.is_broken or self.staff.is_closing:
            return
        is_exempt, self.budget_exempt = self.budget_exempt, False
        if is_exempt or self.staff.charge("the template process ended", failed_start=True):
            self.births.start_template()
            self._watch_template()
            for module in self.preloads:
                self.births.preload(module)
            self.control.send({"op": "event", "event": "template_restarted"})

    def _watch_child(self, child: Child) -> None:
        self._watch(child.status, lambda: self._on_status(child))
        for capture in child.captures:
            self._watch(capture.fd, lambda c=capture: self.output.on_text(child, c))  # type: ignore[misc]
        if child.mark is not None:
            self._watch(child.mark.fileno(), lambda: self.output.on_mark(child))

    def _on_status(self, child: Child) -> None:
        try:
            text = os.read(child.status, 65536)
        except BlockingIOError:
            return
        if not text:
            self._unwatch(child.status)
        elif child.state is State.STARTING and text[:1] == setup.READY_BYTE:
            self._on_ready(child)
        elif child.state is State.STARTING:
            child.failure = text[1:4096].decode(errors="replace")
        else:
            self.deaths.on_stack(child, text)

    def _on_ready(self, child: Child) -> None:
        child.state, child.until, child.was_ready = State.LIVE, 0, True
        if self.settings["contain"] == "pidns":
            self.deaths.find_worker(child)
        if child.memory is not None:
            try:
                child.memory.add(child.worker_pid or child.pid)  # not its init: nothing there grows
            except OSError:  # it has just died; its end is told as any other
                return
        fds, child.host_fds = child.host_fds, []
        message = {"op": "worker", "id": child.number, "pid": child.worker_pid or child.pid, "fds": len(fds) + 1}
        self.control.send(message, [*fds, os.dup(child.pidfd)], close_fds=True)

    def _op_grow(self, message: dict[str, Any]) -> None:
        self.staff.target = message["target"]

    def _op_limits(self, message: dict[str, Any]) -> None:
        self.sampler.limits[message["id"]] = message["limits"]

    def _op_preload(self, message: dict[str, Any]) -> None:
        if message["module"] not in self.preloads and self.births.sock is not None:
            self.preloads.append(message["module"])
            self.births.preload(message["module"])

    def _op_use(self, message: dict[str, Any]) -> None:
        """The host has given a one-call worker its call.  An untrusted one has no board: its clock is ours."""
        child = self.children.get(message["id"])
        if child is None:
            return
        child.is_used = True
        if "timeout" not in message or child.state is not State.LIVE:
            return
        now = time.monotonic_ns()
        timeout = message["timeout"]
        deadline = now + int(timeout * _NS) if timeout else wire.NEVER
        child.armed = Armed(message["call"], min(message["sent"], now), deadline, message["limits"])
        self.sampler.wake(child, now)

    def _op_kill(self, message: dict[str, Any]) -> None:
        child = self.children.get(message["id"])
        if child is not None:
            now = time.monotonic_ns()
            intent = Intent(message["cause"], message["call"], now, message.get("limit", ""), message.get("value", 0.0))
            child.is_planned = child.is_planned or bool(message.get("planned"))
            self.deaths.begin(child, intent, wants_stack=bool(message.get("stack")))

    def _op_retire(self, message: dict[str, Any]) -> None:
        child = self.children.get(message["id"])
        if child is not None:
            child.is_planned = True
            if child.state is State.LIVE:
                child.until = time.monotonic_ns() + int(message["grace"] * _NS)

    def _op_drain(self, message: dict[str, Any]) -> None:
        """Close: children end by themselves within the grace, or are killed; then so do we."""
        self.staff.is_closing, self.staff.target = True, 0
        self.births.kill_template()  # nothing more is forked, and it may be stuck in an import
        now = time.monotonic_ns()
        for child in list(self.children.values()):
            child.is_planned = True  # one that is being forked is killed when it is there
            if message["grace"] <= 0 or child.state is not State.LIVE or child.is_unused():
                self.deaths.begin(child, Intent("cancelled", 0, now), wants_stack=False)
            else:
                child.until = now + int(message["grace"] * _NS)

    # -- keeping the number

    def _known_pids(self) -> set[int]:
        return {c.pid for c in self.children.values()} | {self.births.template_pid}

    # -- the end of a child

    def _on_gone(self, child: Child, survivors: int) -> None:
        if child.state is State.TAINTED and survivors == 0:  # told long ago; now it has really ended
            self._drop(child)
            return
        self.output.take_rest(child)
        message = report.exited(child, survivors)
        # A broken pool is told first: the host would give what it hears of next to another worker.
        is_charged = self.staff.settle_budget(child, message)
        self.control.send(message)
        if child.state is State.TAINTED:
            for fd in (child.status, *(c.fd for c in child.captures)):
                self._unwatch(fd)
        else:
            self._drop(child)
        if self.settings["strategy"] == "one_for_all" and not child.is_planned and not is_charged:
            self.staff.restart_all()

    def _drop(self, child: Child) -> None:
        del self.children[child.number]
        for fd in (child.status, *(c.fd for c in child.captures), child.mark.fileno() if child.mark else -1):
            self._unwatch(fd)
        child.close()


_OPS: dict[str, Callable[[Supervisor, dict[str, Any]], None]] = {
    "grow": Supervisor._op_grow,
    "limits": Supervisor._op_limits,
    "preload": Supervisor._op_preload,
    "use": Supervisor._op_use,
    "kill": Supervisor._op_kill,
    "retire": Supervisor._op_retire,
    "drain": Supervisor._op_drain,
}
