"""Making children: their descriptors, the request to the template, and what its answer means."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from killpool.core import wire
from killpool.spec import RING_SIZE
from killpool.supervisor import template
from killpool.supervisor.capture import Capture
from killpool.supervisor.child import Child
from killpool.system import cgroup, channel
from killpool.worker import setup

MARK_SIZE = 8


@dataclass(slots=True)
class Births:
    """The factory of one pool's children."""

    config: template.Config
    captures: bool
    capture_keep: int
    group: str
    keep: dict[int, int]
    bell: int
    has_page: bool
    number: int = 0
    template_pid: int = 0
    sock: socket.socket | None = None

    def start_template(self) -> None:
        """Fork a (new) template."""
        self.template_pid, self.sock = template.start(self.config, self.keep)

    def create(self, armed: int) -> Child:
        """Make the descriptors of the next child and ask the template to fork it; may raise OSError."""
        opened: list[int] = []
        try:
            return self._create(armed, opened)
        except OSError:
            # Half of a start must not leak: this is where descriptors run out.
            for fd in opened:
                os.close(fd)
            raise

    def _create(self, armed: int, opened: list[int]) -> Child:
        def pipe(flags: int) -> tuple[int, int]:
            ends = os.pipe2(flags | os.O_CLOEXEC)
            opened.extend(ends)
            return ends

        host, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        opened += [host.detach(), worker.detach()]
        theirs = {setup.DATA: opened[1]}
        status, theirs[setup.STATUS] = pipe(0)
        os.set_blocking(status, False)
        child = Child(number=self.number + 1, page=None, status=status, host_fds=[opened[0]])
        if self.captures:
            for name, number in (("stdout", 1), ("stderr", 2)):
                read, theirs[number] = pipe(0)
                os.set_blocking(read, False)
                setattr(child, name, Capture(read, self.capture_keep))
            ours, mark = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            child.mark = ours
            theirs[setup.OUTPUT] = mark.detach()
            opened.append(theirs[setup.OUTPUT])
        if self.config.plan.is_namespaced:
            child.report, theirs[setup.REPORT] = pipe(0)
            os.set_blocking(child.report, False)
        if self.has_page:
            board = channel.shared_memory(wire.PAGE + RING_SIZE)
            opened.append(board)
            child.page = channel.Page(board, wire.PAGE + RING_SIZE)
            child.page.words[wire.ARMED] = armed
            theirs[setup.BOARD] = board
            child.host_fds.append(board)
        if self.group:
            # Never reused: a cgroup that was once killed remembers it (kill_seq), and Linux 6.18 kills at birth what
            # is cloned into it from a cgroup with another count.  mkdir + rmdir are about 40 us.
            child.leaf = cgroup.Leaf(f"{self.group}/w{child.number}")
        self._ask(child, theirs)
        self.number += 1
        for fd in theirs.values():
            if fd not in child.host_fds:
                os.close(fd)
        return child

    def _ask(self, child: Child, theirs: dict[int, int]) -> None:
        assert self.sock is not None
        numbers = sorted(theirs)
        mask = sum(1 << n for n in numbers)
        fds = [theirs[n] for n in numbers]
        if child.leaf is not None:
            mask |= template.CGROUP_BIT
            fds.append(child.leaf.fd)
        channel.send_fds(self.sock, template.REQUEST.pack(child.number, mask), fds)

    def preload(self, module: str) -> None:
        """Ask the template to import `module`, a dependency of ours, for the children to come."""
        assert self.sock is not None
        self.sock.send(template.REQUEST.pack(0, 0) + module.encode())

    def replies(self, on_reply: Callable[[int, int, int, str], None]) -> bool:
        """Hand each answer of the template to `on_reply(child, pid or -errno, pidfd, text)`; False at its end."""
        assert self.sock is not None
        while True:
            try:
                data, fds = channel.recv_fds(self.sock, 4096)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                return False
            if not data:
                return False
            number, pid = template.REPLY.unpack_from(data)
            on_reply(number, pid, fds[0] if fds else -1, data[template.REPLY.size :].decode(errors="replace"))
