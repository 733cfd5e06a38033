"""Killing a child's tree and proving it gone: a state machine without a wait in it.

    LIVE -> (sealed) DUMPING -> KILLED -> EMPTYING -> gone        DUMPING: its stack is asked for
         -> STOPPING, look again -> KILLED, or LIVE               when its result was just being committed

Every state has a deadline, so that several trees can be emptied at once while other deadlines are kept.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from killpool.core import wire
from killpool.spec import EMPTY_WAIT, STACK_MAX, STACK_WAIT, STOP_WAIT
from killpool.supervisor.child import Child, Intent, State
from killpool.system import procfs, syscalls, treekill
from killpool.worker import setup

_REPORT_WAIT = 0.005  # seconds an init may take to report its worker's usage before it is killed
_RETRY_FIRST, _RETRY_MOST = 200_000, 20_000_000  # ns between two looks at a tree that is not yet empty
_NS = 1_000_000_000


@dataclass(slots=True)
class Deaths:
    """The killer of one supervisor.  `children` is the supervisor's own table; `on_gone` gets each emptied child."""

    children: dict[int, Child]
    contain: str
    tag_level: int
    nonce: int
    known_pids: Callable[[], set[int]]
    on_gone: Callable[[Child, int], None]

    # -- towards the SIGKILL

    def begin(self, child: Child, intent: Intent, wants_stack: bool) -> None:
        """Start to kill `child` for a written-down reason; a child that is being killed already stays as it is.

        A call that ended in the meantime is left alone, and so is the next one.
        """
        if child.state not in (State.LIVE, State.STARTING):
            return
        child.intent, child.stack = intent, b""
        if child.page is not None and intent.call and not self._is_sealed(child, intent):
            self._stop(child)
            return
        can_dump = wants_stack and child.state is State.LIVE
        if can_dump and procfs.state_of(child.worker_pid or child.pid) not in ("T", "t", "Z", ""):
            child.state = State.DUMPING
            child.until = time.monotonic_ns() + int(STACK_WAIT * _NS)
            treekill.signal_pidfd(self._leader(child), setup.STACK_SIGNAL)
        else:
            self.kill(child)

    def _is_sealed(self, child: Child, intent: Intent) -> bool:
        """Seal the fate of the call that runs: say that it is due; return whether it can surely not commit any more."""
        assert child.page is not None
        words = child.page.words
        words[wire.DUE] = intent.call
        # The worker stores COMMITTING, then loads DUE; we stored DUE, and after the barrier load COMMITTING.
        syscalls.membarrier_global()
        now = child.running()
        return now is not None and now[0] == intent.call and words[wire.COMMITTING] != intent.call

    def on_stack(self, child: Child, text: bytes) -> None:
        """Take a piece of the stack text; the worker's own frames are its end."""
        if len(child.stack) < STACK_MAX:
            child.stack += text
        if child.state is State.DUMPING and (b"/worker/serve.py" in text or b"/worker/untrusted.py" in text):
            self.kill(child)

    def _stop(self, child: Child) -> None:
        child.state = State.STOPPING
        child.until = time.monotonic_ns() + int(STOP_WAIT * _NS)
        treekill.signal_pidfd(self._leader(child), signal.SIGSTOP)
        # Mostly it has stopped by the time the call returns; then no wake-up is needed.
        self.look_again(child, is_last=False)

    def look_again(self, child: Child, is_last: bool) -> None:
        """Once the child has stopped (or will not), kill it if the call still runs, else let it go on."""
        if not is_last and not self._has_stopped(child):
            return
        intent, now = child.intent, child.running()
        assert intent is not None
        is_due = not intent.deadline or (now is not None and now[1] == intent.deadline)
        if now is not None and now[0] == intent.call and is_due:
            self.kill(child)
            return
        # The call ended, and the next one may have begun: an innocent one is not charged.
        child.intent, child.stack = None, b""
        child.state, child.until = State.LIVE, 0
        if child.page is not None:
            child.page.words[wire.DUE] = 0
        treekill.signal_pidfd(self._leader(child), signal.SIGCONT)

    def _has_stopped(self, child: Child) -> bool:
        if child.worker_pid:  # below an init: not our child, so the kernel tells us nothing
            return procfs.state_of(child.worker_pid) in ("T", "t", "Z", "")
        try:
            flags = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PIDFD, child.pidfd, flags) is not None
        except ChildProcessError:
            return True

    def _leader(self, child: Child) -> int:
        return child.worker_pidfd if child.worker_pidfd >= 0 else child.pidfd

    def kill(self, child: Child) -> None:
        """SIGKILL the whole tree, as far as this containment can in one step."""
        now = time.monotonic_ns()
        child.killed_by_us = True
        child.phase = child.page.words[wire.PHASE] if child.page is not None else child.phase
        child.state, child.until = State.KILLED, now + int(EMPTY_WAIT * _NS)
        if self.contain == "cgroup" and child.leaf is not None:
            child.descendants = max(len(child.leaf.pids()) - 1, 0)
            child.leaf.kill()
        elif self.contain == "pidns":
            members = procfs.descendants_of([child.pid])
            child.descendants = max(len(members) - 1, 0)
            # Read before the kill: an init that is killed too takes what its tree used with it.
            child.seen_cpu = procfs.cpu_seconds(members)
            child.seen_rss = max(child.seen_rss, procfs.resident_bytes(members))
            if child.worker_pidfd >= 0 and treekill.signal_pidfd(child.worker_pidfd, signal.SIGKILL):
                # The init reports and ends by itself, else it is killed.  One process alone cannot starve it, and
                # may take long to give its memory back.
                child.until = now + int((_REPORT_WAIT if child.descendants else EMPTY_WAIT / 2) * _NS)
                return
            treekill.signal_pidfd(child.pidfd, signal.SIGKILL)
        else:
            child.descendants = max(treekill.walk_kill(lambda: {child.pid: os.getpid()}) - 1, 0)
            treekill.signal_pidfd(child.pidfd, signal.SIGKILL)

    # -- after the death

    def on_exit(self, child: Child, status: int, usage: tuple[float, float, int]) -> None:
        """The child (or its init) was reaped: take the truth about its end, then empty its tree."""
        if child.state is State.TAINTED:
            self.on_gone(child, 0)
            return
        child.died = time.monotonic_ns()
        child.wait_status, child.usage = status, usage
        if child.page is not None and not child.killed_by_us:
            child.phase = child.page.words[wire.PHASE]
        if self.contain == "pidns":
            self._read_report(child)
        if self.contain == "cgroup" and child.leaf is not None:
            if not child.killed_by_us:
                child.descendants = len(child.leaf.pids())
            child.leaf.kill()
        child.state, child.until = State.EMPTYING, child.died + int(EMPTY_WAIT * _NS)
        self.try_empty(child)

    def _read_report(self, child: Child) -> None:
        """Take the worker's status from its init; without one, the init's own end is all that is known."""
        try:
            fields = os.read(child.report, 4096).split()
        except BlockingIOError:
            fields = []
        if len(fields) == 5:
            child.wait_status = int(fields[0])
            child.usage = (float(fields[1]), float(fields[2]), int(fields[3]))
            child.descendants = max(child.descendants, int(fields[4]))
        else:
            child.usage_partial = True
            child.usage = (child.seen_cpu, 0.0, child.seen_rss // 1024)

    def try_empty(self, child: Child) -> None:
        """Look whether the tree is gone; else kill what is left and come back."""
        left = self._left(child)
        now = time.monotonic_ns()
        if left == 0 or now >= child.until:
            child.next_sample = 0
            self.on_gone(child, left)
            return
        child.retry = min(child.retry * 2 or _RETRY_FIRST, _RETRY_MOST)
        child.next_sample = now + child.retry

    def _left(self, child: Child) -> int:
        if self.contain == "pidns":
            return 0  # zap_pid_ns_processes(): the init was reapable only when every member was gone
        if self.contain == "cgroup" and child.leaf is not None:
            if not child.leaf.is_populated():
                return 0
            child.leaf.kill()
            return max(len(child.leaf.pids()), 1)
        count = treekill.walk_kill(lambda: self._orphans())
        if count and not child.killed_by_us:
            child.descendants += count
        return count

    def _orphans(self) -> dict[int, int]:
        """Return our adopted children that were this child's, or nobody's who lives."""
        return self.strangers(os.getpid(), self.known_pids())

    def strangers(self, me: int, known: set[int]) -> dict[int, int]:
        """Return {pid: our pid} of children we did not start whose tag is not that of a living child."""
        found = [pid for pid in procfs.children_of(me) if pid not in known]
        if not found:
            return {}
        tags = {self._tag(c) for c in self.children.values() if c.state is not State.EMPTYING}
        newborn = procfs.make_tag(self.tag_level, self.nonce, procfs.TEMPLATE_CHILD)
        is_forking = any(c.state in (State.FORKING, State.STARTING) for c in self.children.values())
        members = {}
        for pid in found:
            tag = procfs.tag_of(pid, self.tag_level)
            # A child that is just being born has the template's tag, and its pid is not known before the answer.
            if tag not in tags and not (is_forking and tag in (0, newborn)):
                members[pid] = me
        return members

    def find_worker(self, child: Child) -> None:
        """Note the worker below an init while nothing untrusted runs in it yet: its only child."""
        for pid in procfs.children_of(child.pid):
            try:
                child.worker_pidfd, child.worker_pid = os.pidfd_open(pid), pid
            except OSError:
                continue

    def _tag(self, child: Child) -> int:
        return procfs.make_tag(self.tag_level, self.nonce, child.number)

    # -- the deadlines of the states

    def due(self, child: Child, now: int) -> None:
        """Act on a child whose state's deadline has passed."""
        if child.state is State.EMPTYING and (now >= child.next_sample or now >= child.until):
            self.try_empty(child)
        elif not child.until or now < child.until:
            return
        elif child.state is State.DUMPING:
            self.kill(child)
        elif child.state is State.STOPPING:
            self.look_again(child, is_last=True)
        elif child.state is State.KILLED:
            self._overdue(child)

    def _overdue(self, child: Child) -> None:
        """The SIGKILL did not end it in time: a slow init is killed, an unkillable process is reported."""
        if self.contain == "pidns" and child.until < _kill_limit(child):
            treekill.signal_pidfd(child.pidfd, signal.SIGKILL)
            child.until = _kill_limit(child)
            return
        child.until = 0
        child.state = State.TAINTED
        self.on_gone(child, 1 + child.descendants)


def _kill_limit(child: Child) -> int:
    """Return when a kill counts as failed, in monotonic ns."""
    since = child.intent.since if child.intent is not None else time.monotonic_ns()
    return since + int((EMPTY_WAIT + _REPORT_WAIT) * _NS)
