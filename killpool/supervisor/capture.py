"""A captured stream: a pipe that is drained without blocking, of which the head and the tail are kept."""

import os
from typing import Any


class Capture:
    """The read end of one child's stdout or stderr.

    Keeps the first and the last `keep // 2` bytes and counts all.  Never waits for end-of-file: a grandchild may hold
    the other end for ever.
    """

    def __init__(self, fd: int, keep: int) -> None:
        self.fd = fd
        self._half = max(keep // 2, 1)
        self.total = 0
        self.is_over = False  # all writers have closed their end
        self._head = bytearray()
        self._tail = bytearray()

    def drain(self, limit: int | None = None, most: int = 1 << 22) -> bool:
        """Read what is there, at most `most` bytes; return whether the total is over `limit`."""
        for _ in range(max(most >> 16, 1)):
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                break
            if not data:
                self.is_over = True
                break
            self._add(data)
            if limit is not None and self.total > limit:
                return True
        return limit is not None and self.total > limit

    def _add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    def take(self) -> tuple[bytes, int]:
        """Return (kept bytes, total) and begin anew."""
        del self._tail[: -self._half]
        kept, total = bytes(self._head + self._tail), self.total
        self.total = 0
        self._head.clear()
        self._tail.clear()
        return kept, total

    def report(self) -> dict[str, Any]:
        """Return what was kept as a message field; bytes travel as latin-1 text."""
        kept, total = self.take()
        return {"data": kept.decode("latin-1"), "total": total}

    def close(self) -> None:
        """Close the read end."""
        os.close(self.fd)
