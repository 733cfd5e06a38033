"""Sees processes die from outside: a process that polls pidfds and knows nothing of any pool.

    task ── datagram (number, pid, start) ──> observer ── lines "begun|gone NUMBER PID START NOW" ──> benchmark

Times are CLOCK_MONOTONIC nanoseconds, which is one clock for all processes of a machine.
"""

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.child import ROOT
from bench.tasks import REPORT

PATIENCE = 60.0  # seconds until a death that does not come is given up


class Observer:
    """The benchmark's end: starts the observing process, and waits for what it sees."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kp-obs-")
        self.path = str(Path(self._folder.name, "sock"))
        self._begun: dict[int, list[int]] = defaultdict(list)
        self._gone: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.observer", self.path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._text = b""
        self._line(PATIENCE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def begun(self, number: int, processes: int = 1) -> int:
        """Wait until so many processes of a call have reported; return the call's start."""
        self._until(self._begun[number], processes)
        return self._begun[number][0]

    def gone(self, number: int, processes: int = 1) -> tuple[int, int]:
        """Wait until so many processes of a call are dead; return (its start, when the last of them had gone)."""
        self._until(self._gone[number], processes)
        deaths = self._gone[number]
        return deaths[0][0], max(now for _start, now in deaths)

    def _until(self, seen: list[int] | list[tuple[int, int]], count: int) -> None:
        end = time.monotonic() + PATIENCE
        while len(seen) < count:
            kind, number, _pid, start, now = self._line(end - time.monotonic()).split()
            if kind == "begun":
                self._begun[int(number)].append(int(start))
            else:
                self._gone[int(number)].append((int(start), int(now)))

    def _line(self, patience: float) -> str:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._text:
            ready, _, _ = select.select([fd], [], [], max(patience, 0.0))
            chunk = os.read(fd, 65536) if ready else b""
            if not chunk:
                raise RuntimeError(f"the observer saw nothing in {PATIENCE:g} s")
            self._text += chunk
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()


def main(path: str) -> None:
    """Observe until stdin closes."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(path)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(sock, select.POLLIN)
    watched: dict[int, tuple[int, int, int]] = {}
    print("ready", flush=True)
    while True:
        for fd, _event in poll.poll():
            now = time.monotonic_ns()
            if fd == 0:
                return
            if fd in watched:
                print("gone", *watched.pop(fd), now, flush=True)
                poll.unregister(fd)
                os.close(fd)
            elif fd == sock.fileno():
                number, pid, start = REPORT.unpack(sock.recv(REPORT.size))
                pidfd = os.pidfd_open(pid)
                watched[pidfd] = (number, pid, start)
                poll.register(pidfd, select.POLLIN)
                print("begun", number, pid, start, now, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
