"""The host's link to its supervisor process: start it, talk to it, know that it died, kill what it left."""

import os
import select
import socket
import subprocess
import sys
import time
from typing import Any

from killpool.errors import StartFailed, UnsupportedPlatform
from killpool.spec import CONTROL_FRAME_MAX
from killpool.system import cgroup, channel, memory_cgroup, treekill

_HELLO_TIMEOUT = 60.0  # seconds an exec'd Python may take to answer on a loaded machine
_SWEEP_TIMEOUT = 2.0  # seconds for the sweep after a supervisor's death

_CODE = (
    "import sys, json; a = sys.argv; sys.path[:] = json.loads(a[1]); "
    "from killpool.supervisor.main import main; sys.exit(main(*map(int, a[2:5])))"
)


def python_path() -> list[str]:
    """Return this process's sys.path with relative entries made absolute: a worker may be elsewhere."""
    return [os.path.abspath(entry) if entry else os.getcwd() for entry in map(str, sys.path)]


class SupervisorLink:
    """One supervisor process and the socket to it."""

    def __init__(self, settings: dict[str, Any], host_bell: int) -> None:
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise StartFailed(f"no socket for the supervisor process: {error}") from error
        path = channel_json(python_path())
        # -S: no .pth files, 10 ms saved; sys.path comes from us.  -P and -s: nothing is added to it.
        flags = [f for f in subprocess._args_from_interpreter_flags() if f in ("-O", "-OO", "-Xutf8")]  # type: ignore[attr-defined]
        argv = [sys.executable, *flags, "-S", "-s", "-P", "-c", _CODE, path]
        argv += [str(theirs.fileno()), str(host_bell), str(os.getpid())]
        started: subprocess.Popen[bytes] | None = None
        try:
            # A session of its own: Ctrl-C in a terminal reaches the host alone.
            started = subprocess.Popen(
                argv, pass_fds=(theirs.fileno(), host_bell), stdin=subprocess.DEVNULL, start_new_session=True
            )
            self.pidfd = os.pidfd_open(started.pid)
        except OSError as error:
            ours.close()
            if started is not None:
                started.kill()
                started.wait()
            raise StartFailed(f"the supervisor process could not be started: {error}") from error
        finally:
            theirs.close()
        self.process = started
        self.pid = started.pid
        self.control = channel.FrameSocket(ours, CONTROL_FRAME_MAX)
        self.contain, self.group, self.memory_group, self.tag_level, self.nonce = "", "", "", 0, 0
        self.early: list[tuple[dict[str, Any], list[int]]] = []
        self.control.send(settings)

    def wait_hello(self) -> None:
        """Wait for the supervisor's answer; raise UnsupportedPlatform with its reason, or StartFailed."""
        deadline = time.monotonic() + _HELLO_TIMEOUT
        while time.monotonic() < deadline:
            poll = select.poll()  # select.select() refuses descriptors from 1024 up
            poll.register(self.control.fileno(), select.POLLIN | (select.POLLOUT if self.control.wants_write else 0))
            poll.poll(1000)
            self.control.flush()
            frames, ended = self._frames()
            for index, (message, _fds) in enumerate(frames):
                if message["op"] == "refused":
                    self.destroy()
                    raise UnsupportedPlatform(message["reason"])
                if message["op"] == "hello":
                    self.contain = message["contain"]
                    self.group, self.memory_group = message["groups"]
                    self.tag_level, self.nonce = message["tag_level"], message["nonce"]
                    self.early = frames[index + 1 :]
                    return
            if ended:
                break
        self.destroy()
        raise StartFailed(f"the supervisor process ended before it was ready (exit status {self.process.returncode})")

    def _frames(self) -> tuple[list[tuple[dict[str, Any], list[int]]], bool]:
        """Return (the frames that are there, whether the supervisor has ended): the last ones may come with its end."""
        frames = []
        try:
            for frame in self.control.receive():
                frames.append(frame)  # list() would lose them at EOFError
        except EOFError:
            return frames, True
        return frames, False

    def send(self, message: dict[str, Any]) -> None:
        """Send one frame; never blocks."""
        self.control.send(message)

    def is_dead(self) -> bool:
        """Say whether the process has ended."""
        if self.pidfd < 0:
            return True
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def sweep(self, worker_pidfds: list[int]) -> int:
        """Kill what a dead supervisor left; return how many workers could not be proven dead within 2 s.

        Its workers have a parent-death signal; their trees are found by the pool's cgroup or by their tag.
        """
        for pidfd in worker_pidfds:
            treekill.signal_pidfd(pidfd, 9)
        cgroup.kill_group(self.group)
        deadline = time.monotonic() + _SWEEP_TIMEOUT
        poll = select.poll()
        for pidfd in worker_pidfds:
            poll.register(pidfd, select.POLLIN)
        left = set(worker_pidfds)
        while left and time.monotonic() < deadline:
            for fd, _event in poll.poll(max((deadline - time.monotonic()) * 1000, 0)):
                left.discard(fd)
                poll.unregister(fd)
        while time.monotonic() < deadline and treekill.kill_tagged(self.tag_level, self.nonce):
            os.sched_yield()
        while self.group and time.monotonic() < deadline and cgroup.is_populated(self.group):
            cgroup.kill_group(self.group)
            os.sched_yield()
        cgroup.remove_group(self.group)
        memory_cgroup.remove_group(self.memory_group)
        return len(left)

    def destroy(self) -> None:
        """Make sure that the process is dead and reaped, and close the link."""
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the descriptors."""
        self.control.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def channel_json(value: object) -> str:
    """Return `value` as JSON text."""
    import orjson  # noqa: PLC0415

    return orjson.dumps(value).decode()
