"""The host's end of one worker: its page, its data socket, and the calls that are inside it."""

import os
import socket
import struct
from collections import OrderedDict
from typing import Any

from killpool.core import wire
from killpool.host.call import Call
from killpool.host.settle import Record
from killpool.spec import INLINE_MAX, RING_SIZE, UNTRUSTED_RESULT_MAX, WINDOW
from killpool.system import channel, syscalls

_MASK = WINDOW - 1


class WorkerLink:
    """One worker as the host sees it.

    `calls` are those sent and not settled, in order.  A worker is `is_active` once it has been given work; before
    that it is a spare.
    """

    def __init__(self, number: int, pid: int, fds: list[int]) -> None:
        self.number = number
        self.pid = pid
        self.pidfd = fds[-1]
        self.page: channel.Page | None = None
        if len(fds) == 3:
            self.page = channel.Page(fds[1], wire.PAGE + RING_SIZE)  # first: it is what can fail
            os.close(fds[1])
        self.sock = socket.socket(fileno=fds[0])
        self.sock.setblocking(False)
        self.calls: OrderedDict[int, Call] = OrderedDict()
        self.last = 0  # number of the last call sent
        self.sent = 0
        self.seen = 0  # number of the last call with a record
        self.is_active = False
        self.is_initialized = False
        self.is_initializing = False
        self.is_retiring = False
        self.is_corrupt = False  # its page holds what no worker of ours writes
        self.quit_sent = False
        self.init_error: bytes = b""
        self.head_since = 0.0
        self.head_number = 0
        self.modules: set[str] = set()
        self.held: Record | None = None  # the result of a one-call worker, until its tree is gone
        self.answer = bytearray()  # what an untrusted worker has sent
        self.answer_is_over = False
        self.answered_at = 0.0  # monotonic seconds at which its answer was whole
        self.cpu = (0.0, 0.0)
        self._out: list[tuple[bytes, list[int]]] = []
        self._fds: list[int] = []

    # -- calls out

    def queue(self, call: Call) -> None:
        """Put a call's frame into the outbox."""
        self.last += 1
        self.sent += 1
        call.worker, call.number = self, self.last
        call.attempts += 1
        self.calls[self.last] = call
        encoded = call.encoded
        flags, data = 0, encoded.data
        fds: list[int] = []
        if len(data) > INLINE_MAX:
            fds, data, flags = [channel.sealed(data)], b"", wire.CALL_BIG
        if encoded.module and encoded.module not in self.modules and self.page is not None:
            name = encoded.module.encode()
            self.modules.add(encoded.module)
            flags |= wire.CALL_IMPORT
            data = wire.MODULE.pack(len(name)) + name + data
        timeout = int(call.timeout * 1e9) if call.timeout is not None else 0
        self._out.append((wire.CALL.pack(len(data), flags, self.last, timeout, call.limits_id) + data, fds))

    def queue_control(self, flags: int, data: bytes = b"") -> None:
        """Put a frame that is no call into the outbox."""
        fds: list[int] = []
        if len(data) > INLINE_MAX:
            fds, data, flags = [channel.sealed(data)], b"", flags | wire.CALL_BIG
        self._out.append((wire.CALL.pack(len(data), flags, 0, 0, 0) + data, fds))

    @property
    def wants_write(self) -> bool:
        """Say whether frames wait for room in the socket."""
        return bool(self._out)

    def flush(self) -> None:
        """Send what fits; never blocks.  A dead worker's end is told by its supervisor, not by this socket."""
        while self._out:
            data, fds = self._out[0]
            count = 1
            if not fds:
                while count < len(self._out) and not self._out[count][1] and len(data) < 32768:
                    data += self._out[count][0]
                    count += 1
            try:
                sent = channel.send_fds(self.sock, data, fds) if fds else self.sock.send(data, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                self._drop_out()
                return
            if self.page is not None:
                self.page.words[wire.SENT] += 1
            for fd in fds:
                os.close(fd)
            del self._out[:count]
            if sent < len(data):
                self._out.insert(0, (data[sent:], []))
                return

    def _drop_out(self) -> None:
        for _data, fds in self._out:
            for fd in fds:
                os.close(fd)
        self._out.clear()

    # -- results in

    def drain(self) -> list[Record]:
        """Take the records that are committed and not yet taken.

        The page is memory that the task shares: what makes no sense marks the worker as corrupt and ends the taking.
        """
        if self.page is None or self.is_corrupt:
            return []
        words, capacity = self.page.words, self.page.capacity
        head, tail = words[wire.HEAD], words[wire.TAIL]
        if head == tail:
            return []
        if not syscalls.STRONGLY_ORDERED:
            syscalls.fence()
        records: list[Record] = []
        self.is_corrupt = not 0 < head - tail <= capacity
        while tail < head and not self.is_corrupt:
            at = tail % capacity
            if capacity - at < wire.RECORD.size:
                tail += capacity - at
            else:
                tail += self._take_record(at, records)
        words[wire.TAIL] = tail
        return records

    def _take_record(self, at: int, records: list[Record]) -> int:
        """Read the record at `at`; return its size in the ring."""
        assert self.page is not None
        ring, capacity = self.page.ring, self.page.capacity
        kind, inline, number, start, end, user, system, rss, size = wire.RECORD.unpack_from(ring, at)
        if kind == wire.KIND_PAD:
            self.is_corrupt = not wire.RECORD.size <= size <= capacity
            return int(size)
        body = at + wire.RECORD.size
        if body + inline > capacity or kind & wire.KIND_MASK not in wire.KINDS:
            self.is_corrupt = True
            return 0
        data = self._big() if kind & wire.FLAG_BIG else bytes(ring[body : body + inline])
        if data is None:
            self.is_corrupt = True
            return 0
        cpu = (user / 1e6, system / 1e6)
        spent = (max(cpu[0] - self.cpu[0], 0.0), max(cpu[1] - self.cpu[1], 0.0))
        self.cpu = cpu
        self.seen = number
        records.append(Record(kind, number, start, end, *spent, rss * 1024, data))
        return wire.RECORD.size + wire.padded(inline)

    def _big(self) -> bytes | None:
        """Return the next large value; None if it was not sent, though a record says so."""
        try:
            while not self._fds:
                data, fds = channel.recv_fds(self.sock, 1)
                if not data:
                    return None
                self._fds += fds
        except OSError:  # EAGAIN: a worker of ours sends the descriptor before it commits the record
            return None
        return channel.unsealed(self._fds.pop(0))

    def is_answer_too_long(self) -> bool:
        """Say whether an untrusted worker has sent more than a result may have."""
        return len(self.answer) > UNTRUSTED_RESULT_MAX + wire.LENGTH.size

    def read_answer(self) -> bool:
        """Read what an untrusted worker has sent, bounded; return whether its frame is complete or too long.

        After an end-of-file without a frame there is nothing more to read: what it was, its death will say.
        """
        most = UNTRUSTED_RESULT_MAX + wire.LENGTH.size + 1
        while len(self.answer) < most:
            try:
                data = self.sock.recv(min(65536, most - len(self.answer)))
            except BlockingIOError:
                break
            except OSError:
                self.answer_is_over = True
                break
            if not data:
                self.answer_is_over = True
                break
            self.answer += data
        if len(self.answer) >= most:
            return True
        if len(self.answer) < wire.LENGTH.size:
            return False
        (size,) = wire.LENGTH.unpack_from(self.answer)
        return bool(len(self.answer) >= wire.LENGTH.size + size)

    def decode_answer(self) -> tuple[dict[str, Any] | None, bool]:
        """Return (the answer or None, whether what was sent is no answer): one frame, then end, strict JSON."""
        import orjson  # noqa: PLC0415

        if not self.answer:
            return None, False
        try:
            (size,) = wire.LENGTH.unpack_from(self.answer)
            if size > UNTRUSTED_RESULT_MAX or len(self.answer) != wire.LENGTH.size + size:
                return None, True
            answer = orjson.loads(bytes(self.answer[wire.LENGTH.size :]))
        except (struct.error, ValueError, RecursionError):
            return None, True
        if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
            return None, True
        return answer, False

    # -- the board

    def started(self) -> int:
        """Return the number of the last call that began, as far as this host can know."""
        if self.page is None:
            return self.last
        return int(self.page.words[wire.STARTED])

    def charged(self) -> int:
        """Return the number of the call that a death of this worker is charged to, 0 for none.

        That is the one STARTED names, unless the word cannot be true: then the first that has no result.
        """
        started = self.started()
        if not self.is_corrupt and 0 <= started <= self.last:
            return started
        return next(iter(self.calls), 0)

    def withdraw(self, numbers: list[int]) -> list[Call]:
        """Take back calls that have not begun; return those that surely will not."""
        if self.page is None or not numbers:
            return []
        words = self.page.words
        for number in numbers:
            words[wire.CANCEL + (number & _MASK)] = number
        # The worker stores STARTED, then loads CANCEL; we stored CANCEL, and after the barrier load STARTED.
        syscalls.membarrier_global()
        started = words[wire.STARTED]
        return [self.calls.pop(n) for n in numbers if n > started and n in self.calls]

    def arm(self, is_armed: bool) -> None:
        """Tell the worker whether to ring the host's bell at its next commit."""
        if self.page is not None:
            self.page.words[wire.HOST_ARMED] = 1 if is_armed else 0

    def has_records(self) -> bool:
        """Say whether something is committed and not taken."""
        page = self.page
        try:
            return page is not None and page.words[wire.HEAD] != page.words[wire.TAIL]
        except ValueError:  # unmapped in the middle of a look without the lock
            return False

    def close(self) -> None:
        """Close the descriptors and the mapping."""
        self._drop_out()
        for fd in (*self._fds, self.pidfd):
            os.close(fd)
        self._fds.clear()
        self.sock.close()
        page, self.page = self.page, None  # a thread that looks without the lock sees None, or fails as below
        if page is not None:
            page.close()
