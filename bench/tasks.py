"""Task functions of the benchmarks: importable by name, and importing next to nothing themselves."""

import os
import signal
import socket
import struct
import time
from typing import NoReturn

REPORT = struct.Struct("=QQq")  # number of the call, pid, monotonic ns at the task's first line


def noop() -> None:
    """Return."""


def report(observer: str, number: int, start: int) -> None:
    """Tell the observer who we are."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(REPORT.pack(number, os.getpid(), start), observer)


def spin(observer: str, number: int) -> NoReturn:
    """Loop in Python for ever."""
    report(observer, number, time.monotonic_ns())
    while True:
        pass


def stubborn(observer: str, number: int) -> NoReturn:
    """Ignore SIGTERM and sleep for ever."""
    start = time.monotonic_ns()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report(observer, number, start)
    while True:
        time.sleep(1000)


def sleeper(observer: str, number: int) -> NoReturn:
    """Sleep for ever."""
    report(observer, number, time.monotonic_ns())
    while True:
        time.sleep(1000)


def family(observer: str, number: int) -> NoReturn:
    """Fork a child that flees into a session of its own; both sleep, the child for 20 s if nobody ends it."""
    start = time.monotonic_ns()
    if os.fork() == 0:
        os.setsid()
        report(observer, number, start)
        time.sleep(20)
        os._exit(0)
    report(observer, number, start)
    while True:
        time.sleep(1000)
