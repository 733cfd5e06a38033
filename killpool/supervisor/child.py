"""One child of the supervisor: what is known of it, and its board."""

import os
import socket
from dataclasses import dataclass, field
from enum import Enum, auto

from killpool.core import wire
from killpool.supervisor.capture import Capture
from killpool.system import channel
from killpool.system.cgroup import Leaf
from killpool.system.memory_cgroup import MemoryLeaf


class State(Enum):
    """Where a child is in its life.  Each has one deadline, `Child.until`."""

    FORKING = auto()  # asked of the template
    STARTING = auto()  # forked, not ready
    LIVE = auto()
    DUMPING = auto()  # its stack was asked for
    STOPPING = auto()  # SIGSTOP was sent, to look again before the kill
    KILLED = auto()  # SIGKILL was sent
    EMPTYING = auto()  # dead and reaped; the rest of its tree is being killed
    TAINTED = auto()  # reported with survivors; kept only to be reaped


@dataclass(slots=True)
class Intent:
    """Why we are about to kill, written down before any signal."""

    cause: str
    call: int  # 0: whatever it does
    since: int  # monotonic ns of the deadline or the request
    limit: str = ""
    value: float = 0.0
    deadline: int = 0  # the board's deadline that was due; looked at again before the kill


@dataclass(slots=True)
class Armed:
    """A call whose clock is the supervisor's own: an untrusted worker has no board."""

    call: int
    start: int
    deadline: int
    limits: dict[str, float]


@dataclass(slots=True)
class Child:
    """A worker as the supervisor sees it."""

    number: int
    page: channel.Page | None
    status: int  # read end, -1 before it is made; carries READY, then stack text
    leaf: Leaf | None = None
    memory: MemoryLeaf | None = None
    stdout: Capture | None = None
    stderr: Capture | None = None
    mark: socket.socket | None = None
    report: int = -1  # read end of the init's report
    host_fds: list[int] = field(default_factory=list)
    state: State = State.FORKING
    until: int = 0
    pid: int = 0
    pidfd: int = -1
    worker_pid: int = 0  # below an init: the worker itself
    worker_pidfd: int = -1
    intent: Intent | None = None
    armed: Armed | None = None
    next_sample: int = 0
    stack: bytes = b""
    failure: str = ""
    wait_status: int | None = None
    usage: tuple[float, float, int] = (0.0, 0.0, 0)
    usage_partial: bool = False
    seen_cpu: float = 0.0  # seconds and bytes that were read while it lived
    seen_rss: int = 0
    oom_before: int = 0  # the kernel's oom kills in its memory cgroup before what runs now
    died: int = 0
    descendants: int = 0
    retry: int = 0
    is_planned: bool = False
    was_ready: bool = False
    is_used: bool = False  # it has been given its only call
    phase: int = wire.PHASE_STARTING
    killed_by_us: bool = False

    def running(self) -> tuple[int, int] | None:
        """Return (call number, its deadline in ns or 0) of what runs now; call 0 is the initializer."""
        if self.armed is not None:
            return self.armed.call, self.armed.deadline
        if self.page is None:
            return None
        words = self.page.words
        if words[wire.PHASE] == wire.PHASE_INITIALIZING:
            return 0, words[wire.DEADLINE]
        started = words[wire.STARTED]
        if started > words[wire.COMMITTED]:
            return started, words[wire.DEADLINE]
        return None

    def board_deadline(self) -> int:
        """Return the deadline of what runs now, 0 for none."""
        if self.state is not State.LIVE or self.page is None:
            return 0
        now = self.running()
        return now[1] if now else 0

    def wake(self) -> int:
        """Return when this child next needs the supervisor by itself, 0 for never."""
        times = [self.until, self.next_sample if self.state in (State.LIVE, State.EMPTYING) else 0]
        if self.armed is not None and self.state is State.LIVE:
            times.append(self.armed.deadline)
        return min((t for t in times if t), default=0)

    def is_unused(self) -> bool:
        """Say whether it has never run anything of the user's."""
        if self.page is None:
            return not self.is_used
        words = self.page.words
        return words[wire.STARTED] == 0 and words[wire.HEAD] == 0 and words[wire.PHASE] <= wire.PHASE_READY

    def is_live(self) -> bool:
        """Say whether it is started and nobody has begun to kill it."""
        return self.state is State.LIVE

    @property
    def captures(self) -> list[Capture]:
        """The captured streams."""
        return [c for c in (self.stdout, self.stderr) if c is not None]

    def close(self) -> None:
        """Close every descriptor and mapping of this child."""
        for fd in (self.status, self.report, self.pidfd, self.worker_pidfd, *self.host_fds):
            if fd >= 0:
                os.close(fd)
        for capture in self.captures:
            capture.close()
        if self.mark is not None:
            self.mark.close()
        if self.leaf is not None:
            self.leaf.close()
        if self.memory is not None:
            self.memory.close()
        if self.page is not None:
            self.page.close()
