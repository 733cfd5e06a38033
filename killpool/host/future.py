"""`TaskFuture`: a `concurrent.futures.Future` that also has an `Outcome`, and whose `cancel` kills a running call."""

import concurrent.futures
import pickle
from collections.abc import Callable
from typing import Any, Protocol

from killpool.errors import TaskCancelled
from killpool.outcome import Outcome


class Canceller(Protocol):
    """What a future needs of its pool."""

    def cancel(self, call: Any) -> bool:
        """Withdraw or kill `call`."""

    def is_running(self, call: Any) -> bool:
        """Say whether `call` has begun."""

    def help(self, call: Any) -> None:
        """Do some of the I/O thread's work in the thread that is about to wait for `call`."""


class _Placeholder(Exception):
    """Stands in `Future._exception` until somebody asks for the real one."""


_PLACEHOLDER = _Placeholder()


class TaskFuture(concurrent.futures.Future[Any]):
    """The future of one call.

    It stays PENDING while the call waits inside a worker's socket, so what has not started can be cancelled for
    nothing; `running()` asks the worker's board.  The result is rebuilt in the thread that asks for it.
    """

    def __init__(self, canceller: Canceller) -> None:
        super().__init__()
        self._canceller = canceller
        self._call: Any = None
        self._build: Callable[..., Outcome] | None = None
        self._outcome: Outcome | None = None
        self._raw: bytes | None = None
        self._value: Any = None
        self._has_value = False

    def settle(self, build: Callable[..., Outcome], kind: str, raw: bytes | None = None) -> None:
        """Finish: `kind` is "ok", "error" or "cancelled"; `build` makes the outcome when it is asked for.

        `raw` is a pickled value, from which `result()` needs no outcome; `build(value)` then takes it as it is.
        """
        self._build = build
        self._raw = raw
        self._call = None
        if kind == "ok":
            self.set_result(None)
        elif kind == "error":
            self.set_exception(_PLACEHOLDER)
        else:
            super().cancel()
            self.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        """Cancel the call.  One that waits is withdrawn; one that runs is killed, with its whole process tree.

        Returns False only if the call had ended already.  After True the call never yields a value; the future is
        done once the tree is gone.
        """
        if self.done():
            return self.cancelled()
        return self._canceller.cancel(self._call)

    def running(self) -> bool:
        """Say whether the call has begun and not ended."""
        return not self.done() and self._canceller.is_running(self._call)

    def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for the end and return the whole story; raises `TimeoutError` only if `timeout` seconds pass first."""
        if not self.done():
            self._wait(timeout)
        return self._final()

    def result(self, timeout: float | None = None) -> Any:
        """Return the value or raise what the outcome says, as `concurrent.futures.Future.result`."""
        if not self.done():
            self._wait(timeout)
        if self._raw is not None:
            self._decode()
        if self._has_value:
            return self._value
        return self._final().unwrap()

    def _decode(self) -> None:
        with self._condition:
            if self._raw is not None:
                try:
                    self._value, self._has_value = pickle.loads(self._raw), True
                except BaseException:  # rebuilding runs the value's own code; the outcome tells the error
                    self._has_value = False
                self._raw = None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception or None, as `concurrent.futures.Future.exception`."""
        if not self.done():
            self._wait(timeout)
        error = self._final().error
        if isinstance(error, TaskCancelled):
            raise error
        return error

    def _wait(self, timeout: float | None) -> None:
        self._canceller.help(self._call)
        try:
            super().exception(timeout)
        except concurrent.futures.CancelledError:
            return

    def _final(self) -> Outcome:
        outcome = self._outcome
        if outcome is None:
            with self._condition:  # values are rebuilt once, by the first who asks
                outcome = self._outcome
                if outcome is None:
                    assert self._build is not None
                    outcome = self._outcome = self._build(self._value) if self._has_value else self._build()
                    self._build = None
        return outcome
