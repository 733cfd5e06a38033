"""Progress: plain lines now and then where nobody watches, a bar on a terminal."""

import io
import os
import pty

import pytest

from killpool.cli.progress import EVERY, Bar, Lines, progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_come_at_most_every_few_seconds_and_at_the_end() -> None:
    clock, stream = Clock(), io.StringIO()
    with Lines(40, stream, clock) as display:
        for done in range(1, 21):
            clock.now += EVERY / 10
            display.show(done, done // 2)
    assert stream.getvalue().splitlines() == [
        "10/40 judged, 5 passed, 5.0 s",
        "20/40 judged, 10 passed, 10.0 s",
        "20/40 judged, 10 passed, 10.0 s",
    ]


def test_a_stream_that_is_no_terminal_gets_plain_lines() -> None:
    assert isinstance(progress(1, io.StringIO()), Lines)


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal:
        display = progress(8, terminal)
        assert isinstance(display, Bar)
        with display:
            display.show(8, 3)
        terminal.flush()
        drawn = os.read(ours, 65536).decode()
    os.close(ours)
    assert "8/8" in drawn
    assert "3 passed" in drawn
