"""How far a long command is: a live bar on a terminal, else a plain line every few seconds and one at the end."""

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TextIO

EVERY = 5.0  # seconds between two plain lines


class Progress(Protocol):
    """Shows how many of `total` things are done."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None: ...
    def show(self, done: int, passed: int) -> None:
        """Tell the present count."""


def progress(total: int, stream: TextIO) -> Progress:
    """Return the progress display that fits `stream`."""
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return Bar(total, stream)
    return Lines(total, stream)


class Lines:
    """Plain lines: at most one every `EVERY` seconds, and one at the end."""

    def __init__(self, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._due = self._began + EVERY
        self._last = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._line(*self._last)

    def show(self, done: int, passed: int) -> None:
        """Tell the present count; it is printed when a line is due."""
        self._last = (done, passed)
        now = self._clock()
        if now >= self._due:
            self._due = now + EVERY
            self._line(done, passed)

    def _line(self, done: int, passed: int) -> None:
        elapsed = self._clock() - self._began
        print(f"{done}/{self._total} judged, {passed} passed, {elapsed:.1f} s", file=self._stream, flush=True)


class Bar:
    """A live bar, drawn by rich."""

    def __init__(self, total: int, stream: TextIO) -> None:
        from rich import progress as rich  # noqa: PLC0415  (a terminal is the only user of it)
        from rich.console import Console  # noqa: PLC0415

        self._bar = rich.Progress(
            rich.BarColumn(bar_width=None),
            rich.MofNCompleteColumn(),
            rich.TextColumn("{task.fields[passed]} passed"),
            rich.TimeElapsedColumn(),
            rich.TextColumn("left"),
            rich.TimeRemainingColumn(),
            console=Console(file=stream),
            expand=True,
        )
        self._task = self._bar.add_task("", total=total, passed=0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | object
    ) -> None:
        self._bar.stop()

    def show(self, done: int, passed: int) -> None:
        """Tell the present count; the bar's own thread draws it, ten times a second at most."""
        self._bar.update(self._task, completed=done, passed=passed)
