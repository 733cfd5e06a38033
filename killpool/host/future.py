"""`TaskFuture`: a `concurrent.futures.Future` that also has an `Outcome`, and whose `cancel` kills a running call."""

import concurrent.futures
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
        self._build: Callable[[], Outcome] | None = None
        self._outcome: Outcome | None = None

    def settle(self, build: Callable[[], Outcome], kind: str) -> None:
        """Finish: `kind` is "ok", "error" or "cancelled"; `build` makes the outcome when it is asked for."""
        self._build = build
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
        try:
            super().exception(timeout)
        except concurrent.futures.CancelledError:
            pass
        return self._final()

    def result(self, timeout: float | None = None) -> Any:
        """Return the value or raise what the outcome says, as `concurrent.futures.Future.result`."""
        if not self.done():
            self._wait(timeout)
        return self._final().unwrap()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception or None, as `concurrent.futures.Future.exception`."""
        if not self.done():
            self._wait(timeout)
        error = self._final().error
        if isinstance(error, TaskCancelled):
            raise error
        return error

    def _wait(self, timeout: float | None) -> None:
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
                    outcome = self._outcome = self._build()
                    self._build = None
        return outcome
