"""Making children: their descriptors, the request to the template, and what its answer means."""

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from killpool.core import wire
from killpool.spec import RING_SIZE
from killpool.supervisor import template
from killpool.supervisor.capture import Capture
from killpool.supervisor.child import Child
from killpool.system import cgroup, channel, memory_cgroup
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
    memory: tuple[str, str, int] | None = None  # memory cgroup of the pool, its limit file, bytes
    number: int = 0
    import_limit: int = 0  # ns that one import in the template may take
    importing: int = 0  # imports the template has been asked for and has not answered
    import_by: int = 0  # monotonic ns by which it has to answer the next, 0 for none
    is_imported: bool = False  # its first imports, `preload` among them, are done
    template_pid: int = 0
    sock: socket.socket | None = None

    def start_template(self) -> None:
        """Fork a (new) template; the modules that calls have named are asked for again as they come."""
        self.template_pid, self.sock = template.start(self.config, self.keep)
        self.is_imported, self.importing = False, 1
        self.import_by = time.monotonic_ns() + self.import_limit

    def create(self, armed: int) -> Child:
        """Make the descriptors of the next child and ask the template to fork it; may raise OSError."""
        opened: list[int] = []
        child = Child(number=self.number + 1, page=None, status=-1)
        try:
            self._create(child, armed, opened)
        except OSError:
            # Half of a start must not leak: this is where descriptors run out.
            child.close()
            raise
        finally:
            for fd in opened:
                os.close(fd)
        self.number += 1
        return child

    def _create(self, child: Child, armed: int, opened: list[int]) -> None:
        """Fill `child`; `opened` gets the descriptors that are only the worker's."""
        host, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        child.host_fds.append(host.detach())
        opened.append(worker.detach())
        theirs = {setup.DATA: opened[0]}

        def pipe(number: int) -> int:
            read, write = os.pipe2(os.O_CLOEXEC)
            opened.append(write)
            theirs[number] = write
            os.set_blocking(read, False)
            return read

        child.status = pipe(setup.STATUS)
        if self.captures:
            child.stdout = Capture(pipe(1), self.capture_keep)
            child.stderr = Capture(pipe(2), self.capture_keep)
        if self.captures and self.has_page:  # an untrusted child's text is taken when its tree is gone
            child.mark, mark = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            child.mark.setblocking(False)
            theirs[setup.OUTPUT] = mark.detach()
            opened.append(theirs[setup.OUTPUT])
        if self.config.plan.is_namespaced:
            child.report = pipe(setup.REPORT)
        if self.has_page:
            board = channel.shared_memory(wire.PAGE + RING_SIZE)
            child.host_fds.append(board)
            child.page = channel.Page(board, wire.PAGE + RING_SIZE)
            child.page.words[wire.ARMED] = armed
            theirs[setup.BOARD] = board
        if self.group:
            # Never reused: a cgroup that was once killed remembers it (kill_seq), and Linux 6.18 kills at birth what
            # is cloned into it from a cgroup with another count.  mkdir + rmdir are about 40 us.
            child.leaf = cgroup.Leaf(f"{self.group}/w{child.number}")
        if self.memory is not None:
            folder, name, limit = self.memory
            child.memory = memory_cgroup.MemoryLeaf(f"{folder}/w{child.number}", name, limit)
        self._ask(child, theirs)

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
        try:
            self.sock.send(template.REQUEST.pack(0, 0) + module.encode())
        except (BlockingIOError, BrokenPipeError):
            return  # only speed is lost
        self.importing += 1
        self.import_by = self.import_by or time.monotonic_ns() + self.import_limit

    def imported(self) -> None:
        """The template has answered one import."""
        self.is_imported = True
        self.importing = max(self.importing - 1, 0)
        self.import_by = time.monotonic_ns() + self.import_limit if self.importing else 0

    def kill_template(self) -> None:
        """End the template; its wait status comes as of any child."""
        if self.sock is not None and self.template_pid:
            os.kill(self.template_pid, signal.SIGKILL)  # our own child and not reaped: the pid is nobody else's
        self.import_by = 0

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
