"""The call loop of a trusted worker: take a call, run it, commit its result to shared memory, ring who sleeps.

What it promises: one call at a time, in order; STARTED is written before a call is looked at; a result exists from
one store on; nothing here ever blocks on the host but the wait for the next call.
"""

import atexit
import importlib
import os
import pickle
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from killpool.core import wire
from killpool.core.classify import WORKER_CLEAN_EXIT
from killpool.spec import INLINE_MAX, WINDOW
from killpool.system import channel, rlimits, syscalls
from killpool.worker import payload, setup

_ONE = (1).to_bytes(8, sys.byteorder)
_RESERVE = wire.RECORD.size * (WINDOW + 2)  # room that inline values leave, so that a record never has to wait
_MASK = WINDOW - 1
_SPIN = 100_000  # ns a worker looks for its next call before it sleeps, if the last one came as fast


def ring_bell(fd: int) -> None:
    """Write to an eventfd; a task that closed it has made itself unheard, and its death will be told instead."""
    try:
        os.write(fd, _ONE)
    except OSError:
        return


class Calls:
    """The data socket: frames in, with the memfds of large payloads.

    With `words`, the board, a worker whose calls come thick and fast looks at SENT for a bounded time before it sleeps:
    a wake-up across cores costs more than most such calls.
    """

    def __init__(self, sock: socket.socket, words: Any = None) -> None:
        self._sock = sock
        self._words = words
        self._sent = 0
        self._is_busy = False
        self._owes_bell = False
        self._buffer = b""
        self._fds: list[int] = []

    def next(self) -> tuple[int, int, int, int, bytes]:
        """Wait for the next call; return (flags, number, timeout ns, limits id, payload)."""
        while True:
            if len(self._buffer) >= wire.CALL.size:
                size, flags, number, timeout, limits = wire.CALL.unpack_from(self._buffer)
                end = wire.CALL.size + size
                if len(self._buffer) >= end:
                    body, self._buffer = self._buffer[wire.CALL.size : end], self._buffer[end:]
                    return flags, number, timeout, limits, body
            data, fds = self._receive()
            if not data:
                os._exit(WORKER_CLEAN_EXIT)  # the host has closed: nobody is left to work for
            self._buffer += data
            self._fds += fds

    def _receive(self) -> tuple[bytes, list[int]]:
        words = self._words
        if words is None:
            return channel.recv_fds(self._sock, 65536)
        start = time.monotonic_ns()
        if self._is_busy:
            while words[wire.SENT] == self._sent and time.monotonic_ns() < start + _SPIN:
                pass
        if self._owes_bell:
            self._owes_bell = False
            if words[wire.HEAD] != words[wire.TAIL]:
                self.ring_host()
        received = channel.recv_fds(self._sock, 65536)
        self._sent = words[wire.SENT]
        self._is_busy = time.monotonic_ns() - start < _SPIN
        return received

    def ring_host(self) -> None:
        """Wake the host's I/O thread if it sleeps."""
        words = self._words
        if words is not None and words[wire.HOST_ARMED]:
            words[wire.HOST_ARMED] = 0
            ring_bell(setup.HOST_BELL)

    def committed(self) -> None:
        """A result was committed: ring, or leave it to the host's own look while this worker looks for its next call.

        A thread that waits in the host mostly has the result before its I/O thread could wake up; if nobody takes it,
        the bell rings at the end of the look.
        """
        if self._is_busy and len(self._buffer) < wire.CALL.size:
            self._owes_bell = True
        else:
            self.ring_host()

    def big(self) -> bytes:
        """Return the payload of a CALL_BIG frame."""
        return channel.unsealed(self._fds.pop(0))


class Worker:
    """One worker's state: its page, its sockets, and the call it runs."""

    def __init__(self, plan: setup.Plan, page: channel.Page, sock: socket.socket) -> None:
        self._plan = plan
        self._page = page
        self._words = page.words
        self._sock = sock
        self._calls = Calls(sock, page.words)

    def serve(self) -> NoReturn:
        """Run calls until told to quit."""
        while True:
            flags, number, timeout, limits, body = self._calls.next()
            if flags & wire.CALL_QUIT:
                self._quit()
            if flags & wire.CALL_INIT:
                self._initialize(self._calls.big() if flags & wire.CALL_BIG else body)
            else:
                self._call(flags, number, timeout, limits, body)
                if self._plan.one_call:
                    os._exit(WORKER_CLEAN_EXIT)

    def _begin(self, deadline: int, rings: bool) -> None:
        if rings or (deadline and deadline < self._words[wire.ARMED]):
            ring_bell(setup.SUPERVISOR_BELL)

    def _prepare(self, phase: int, work: Callable[[], Any]) -> None:
        """Run start-up work under the start limit: its clock is not the call's."""
        words = self._words
        deadline = time.monotonic_ns() + self._plan.start_timeout_ns
        words[wire.DEADLINE] = deadline
        words[wire.PHASE] = phase
        self._begin(deadline, False)
        work()

    def _call(self, flags: int, number: int, timeout: int, limits: int, body: bytes) -> None:
        words = self._words
        if flags & wire.CALL_IMPORT:
            (size,) = wire.MODULE.unpack_from(body)
            module, body = body[wire.MODULE.size : wire.MODULE.size + size].decode(), body[wire.MODULE.size + size :]
            words[wire.STARTED] = number
            self._prepare(wire.PHASE_IMPORTING, lambda: _import(module))
        start = time.monotonic_ns()
        words[wire.START] = start
        words[wire.DEADLINE] = start + timeout if timeout else 0
        words[wire.LIMITS] = limits
        watched = limits or self._plan.samples
        if watched:
            words[wire.CPU0] = _cpu_ns()
        words[wire.STARTED] = number
        words[wire.PHASE] = wire.PHASE_READY
        if words[wire.CANCEL + (number & _MASK)] == number:
            if flags & wire.CALL_BIG:
                self._calls.big()
            self._commit(wire.KIND_SKIPPED, number, b"", start)
            return
        if timeout or watched:
            self._begin(start + timeout if timeout else 0, bool(watched))
        try:
            call = pickle.loads(self._calls.big() if flags & wire.CALL_BIG else body)
            del body
            kind, data = wire.KIND_VALUE, payload.dump(_run(*call))
        except BaseException as error:  # the child's edge: whatever the task raised is its result
            kind, data = wire.KIND_ERROR, payload.dump_error(error)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue  # the task closed or replaced it
        if self._plan.captures:
            kind, data = kind | wire.FLAG_OUTPUT, self._output(number) + data
        self._commit(kind, number, data, start)

    def _output(self, number: int) -> bytes:
        """Ask the supervisor, who drains the pipes, for what this call printed."""
        try:
            os.write(setup.OUTPUT, number.to_bytes(8, sys.byteorder))
            return os.read(setup.OUTPUT, 1 << 20)
        except OSError:
            return wire.OUTPUT.pack(0, 0, 0, 0)

    def _commit(self, kind: int, number: int, data: bytes, start: int) -> None:
        words, ring, capacity = self._words, self._page.ring, self._page.capacity
        words[wire.COMMITTING] = number
        while words[wire.DUE] == number and number:
            # The verdict has fallen.  A C call that the stack signal woke (SA_RESTART does not restart nanosleep,
            # poll and the like) must not bring a result home after its deadline.
            signal.pause()
        head = words[wire.HEAD]
        inline = len(data)
        size = wire.RECORD.size + wire.padded(inline)
        free = capacity - (head - words[wire.TAIL])
        if inline > INLINE_MAX or size + wire.contiguous(head, size, capacity) > free - _RESERVE:
            if inline:
                kind |= wire.FLAG_BIG
                self._send_big(data)
            inline, size = 0, wire.RECORD.size
        pad = wire.contiguous(head, size, capacity)
        if pad >= wire.RECORD.size:
            wire.RECORD.pack_into(ring, head % capacity, wire.KIND_PAD, 0, 0, 0, 0, 0, 0, 0, pad)
        at = (head + pad) % capacity
        usage = resource.getrusage(resource.RUSAGE_SELF)
        wire.RECORD.pack_into(
            ring, at, kind, inline, number, start, time.monotonic_ns(),
            int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6), usage.ru_maxrss, len(data),
        )  # fmt: skip
        if inline:
            ring[at + wire.RECORD.size : at + wire.RECORD.size + inline] = data
        if not syscalls.STRONGLY_ORDERED:
            syscalls.fence()
        words[wire.HEAD] = head + pad + size
        words[wire.COMMITTED] = number
        self._calls.committed()

    def _send_big(self, data: bytes) -> None:
        fd = channel.sealed(data)
        try:
            channel.send_fds(self._sock, b"\0", [fd])
        finally:
            os.close(fd)

    def _initialize(self, body: bytes) -> None:
        number = self._words[wire.COMMITTED]
        start = time.monotonic_ns()

        def work() -> None:
            _run(*pickle.loads(body))

        try:
            self._prepare(wire.PHASE_INITIALIZING, work)
        except BaseException as error:  # the child's edge
            self._commit(wire.KIND_INIT_ERROR, number, payload.dump_error(error), start)
            os._exit(1)
        self._words[wire.DEADLINE] = 0
        self._words[wire.PHASE] = wire.PHASE_READY
        self._commit(wire.KIND_READY, number, b"", start)

    def _quit(self) -> NoReturn:
        try:
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            os._exit(WORKER_CLEAN_EXIT)


def _run(function: Callable[..., Any], args: Any, kwargs: Any, limits: dict[str, int] | None = None) -> Any:
    if not limits:
        return function(*args, **kwargs)
    before = rlimits.current(list(limits))
    rlimits.apply(limits)
    try:
        return function(*args, **kwargs)
    finally:
        rlimits.apply(before)


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except BaseException:  # the same error comes again, with its traceback, when the call is unpickled
        return


def _cpu_ns() -> int:
    times = os.times()
    return int((times.user + times.system + times.children_user + times.children_system) * 1e9)
