"""Descriptors between processes: memfds, socketpairs, fd passing, and length-prefixed JSON frames.

Everything is created close-on-exec.  Nothing here blocks unless its name says `wait`.
"""

import array
import errno
import fcntl
import mmap
import os
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

from killpool.core.wire import LENGTH, PAGE

F_ADD_SEALS = 1033
SEALS = 0x1 | 0x2 | 0x4 | 0x8  # SEAL, SHRINK, GROW, WRITE: the reader's mapping cannot be changed under it
_FD_SPACE = socket.CMSG_SPACE(16 * 4)


def sealed(data: bytes | bytearray | memoryview) -> int:
    """Return a sealed memfd that holds `data`."""
    fd = os.memfd_create("killpool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    return fd


def unsealed(fd: int) -> bytes:
    """Return the content of a memfd and close it."""
    try:
        size = os.fstat(fd).st_size
        parts = bytearray(size)
        view, at = memoryview(parts), 0
        while at < size:
            count = os.preadv(fd, [view[at : at + (1 << 30)]], at)
            if count == 0:
                break
            at += count
        view.release()
        return bytes(parts)
    finally:
        os.close(fd)


def shared_memory(size: int) -> int:
    """Return a memfd of `size` zero bytes that cannot be resized."""
    fd = os.memfd_create("killpool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    # A worker that shrank its page would make its readers die of SIGBUS.
    fcntl.fcntl(fd, F_ADD_SEALS, 0x1 | 0x2 | 0x4)
    return fd


class Page:
    """A mapped worker page: `words` are the board's 64-bit words, `ring` the bytes behind them."""

    def __init__(self, fd: int, size: int) -> None:
        self.map = mmap.mmap(fd, size)
        self._whole = memoryview(self.map)
        self._board = self._whole[:PAGE]
        self.words = self._board.cast("Q")
        self.ring = self._whole[PAGE:]
        self.capacity = size - PAGE

    def close(self) -> None:
        """Unmap."""
        for view in (self.words, self._board, self.ring, self._whole):
            view.release()
        self.map.close()


def send_fds(sock: socket.socket, data: bytes, fds: list[int]) -> int:
    """Send `data` with descriptors attached to its first byte; return the bytes sent."""
    return sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))], socket.MSG_NOSIGNAL)


def recv_fds(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes and the descriptors that came with them, all close-on-exec."""
    data, ancillary, flags, _address = sock.recvmsg(size, _FD_SPACE, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, body in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(body[: len(body) - len(body) % fds.itemsize])
    if flags & socket.MSG_CTRUNC:  # the kernel drops what this process has no room for
        for fd in fds:
            os.close(fd)
        raise OSError(errno.EMFILE, "no descriptor left for what another process sent")
    return data, list(fds)


class FrameSocket:
    """JSON frames with descriptors over a non-blocking stream socket: never blocks, keeps what does not fit.

    `send` queues and tries; `wants_write` says that the loop should wait for EPOLLOUT and call `flush`.  Frames over
    `limit` bytes end the connection: the other side is not ours then.
    """

    def __init__(self, sock: socket.socket, limit: int) -> None:
        import orjson  # noqa: PLC0415  (kept out of `import killpool`)

        self._dumps, self._loads = orjson.dumps, orjson.loads
        sock.setblocking(False)
        self.sock = sock
        self._limit = limit
        self._out: deque[tuple[bytes, list[int], bool]] = deque()
        self._in = bytearray()
        self._fds: deque[int] = deque()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self.sock.fileno()

    @property
    def wants_write(self) -> bool:
        """Say whether frames are waiting for room."""
        return bool(self._out)

    def send(self, message: dict[str, Any], fds: list[int] | None = None, close_fds: bool = False) -> None:
        """Queue one frame, with descriptors (closed once they are sent if `close_fds`), and send what fits."""
        body = self._dumps(message)
        self._out.append((LENGTH.pack(len(body)) + body, fds or [], close_fds))
        self.flush()

    def flush(self) -> None:
        """Send queued frames until the socket is full.  A gone peer is the reader's news, not ours."""
        if self.sock.fileno() < 0:
            self._drop_out()
        while self._out:
            data, fds, close_fds = self._out[0]
            try:
                sent = send_fds(self.sock, data, fds) if fds else self.sock.send(data, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                self._drop_out()
                return
            if close_fds:
                for fd in fds:
                    os.close(fd)
            if sent == len(data):
                self._out.popleft()
            else:
                self._out[0] = (data[sent:], [], False)  # descriptors went with the first byte

    def _drop_out(self) -> None:
        for _data, fds, close_fds in self._out:
            for fd in fds if close_fds else ():
                os.close(fd)
        self._out.clear()

    def receive(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield each whole frame that has arrived, with its descriptors; raise EOFError when the peer is gone."""
        ended = False
        while True:
            try:
                data, fds = recv_fds(self.sock, 65536)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data, fds = b"", []
            self._fds.extend(fds)
            if not data:
                ended = True
                break
            self._in += data
        yield from self._frames()
        if ended:
            raise EOFError

    def _frames(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        while len(self._in) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._in)
            if size > self._limit:
                raise EOFError(f"control frame of {size} bytes is over the limit of {self._limit}")
            if len(self._in) < LENGTH.size + size:
                return
            message = self._loads(memoryview(self._in)[LENGTH.size : LENGTH.size + size])
            del self._in[: LENGTH.size + size]
            yield message, [self._fds.popleft() for _ in range(message.get("fds", 0))]

    def close(self) -> None:
        """Close the socket and every descriptor that is still queued."""
        self._drop_out()
        while self._fds:
            os.close(self._fds.popleft())
        self.sock.close()
