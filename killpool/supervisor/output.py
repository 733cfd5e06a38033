"""What children print, where it is captured: drained without blocking, counted to the byte, given to the right call."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from killpool.core import wire
from killpool.supervisor.capture import Capture
from killpool.supervisor.child import Child, Intent, State


@dataclass(slots=True)
class Output:
    """The reader of all captured streams.  `unwatch` takes a descriptor out of the loop."""

    limits_of: Callable[[Child], dict[str, float]]
    on_limit: Callable[[Child, Intent], None]
    unwatch: Callable[[int], None]

    def on_text(self, child: Child, capture: Capture) -> None:
        """Read what a child printed; one byte over its limit ends it."""
        if self._drain(child, capture) and child.state in (State.LIVE, State.STARTING):
            running = child.running()
            self.on_limit(child, self._intent(child, running[0] if running else 0))
        if capture.is_over:
            self.unwatch(capture.fd)

    def on_mark(self, child: Child) -> None:
        """A call has ended and its worker waits: what is in the pipes now is what that call printed."""
        assert child.mark is not None
        try:
            if len(child.mark.recv(64)) == 0:
                self.unwatch(child.mark.fileno())
                return
        except (BlockingIOError, ConnectionResetError):
            return
        if child.state is not State.LIVE:
            return  # it is being killed, and the text belongs to its outcome
        for capture in child.captures:
            self.on_text(child, capture)
        if child.intent is not None:
            return  # over its limit with its last words
        (out, out_total), (err, err_total) = [capture.take() for capture in child.captures]
        head = wire.OUTPUT.pack(out_total, err_total, len(out), len(err))
        try:
            child.mark.send(head + out + err)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return

    def take_rest(self, child: Child) -> None:
        """Read what a child whose tree is gone has left; the limit is to the byte, though it ended by itself."""
        for capture in child.captures:
            if self._drain(child, capture) and child.intent is None:
                child.intent = self._intent(child, 0)
            capture.drain(None)

    def _drain(self, child: Child, capture: Capture) -> bool:
        limit = self.limits_of(child).get("output")
        return capture.drain(None if limit is None else int(limit))

    def _intent(self, child: Child, call: int) -> Intent:
        return Intent("output_limit", call, time.monotonic_ns(), "output", self.limits_of(child).get("output", 0.0))
