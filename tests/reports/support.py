"""Small helpers of the cases' tests: stopwatch, lines of a file, scripts that run as programs of their own."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import census
import stage


class Stopwatch:
    """Seconds of a block; they stand still once it is left."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._stopped: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds until now, or until the end of the block."""
        return (time.monotonic() if self._stopped is None else self._stopped) - self._started

    def stop(self) -> None:
        """Stand still."""
        self._stopped = time.monotonic()


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Measure a block."""
    watch = Stopwatch()
    yield watch
    watch.stop()


def lines(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a file, [] if there is none."""
    try:
        return Path(path).read_text().splitlines()
    except FileNotFoundError:
        return []


def wait_lines(path: str | os.PathLike[str], count: int, limit: float = census.PATIENCE) -> list[str]:
    """Wait until a file has that many lines; return them."""
    assert census.wait_until(lambda: len(lines(path)) >= count, limit), f"{path}: {lines(path)}"
    return lines(path)


@dataclass(frozen=True)
class Ended:
    """How a script ended; `tail` is the seconds from the moment it had written its last word to its end."""

    status: int
    out: str
    err: str
    tail: float


def run_script(code: str, *arguments: str, limit: float = 60.0) -> stage.Finished:
    """Run a program of its own, in a session of its own, given by its text."""
    return stage.OWN.run("-c", code, *arguments, limit=limit)


def run_script_and_time_its_end(code: str, done: Path, *arguments: str, limit: float = 60.0) -> Ended:
    """Run a program that writes "done" into the file `done` as its last act; measure what comes after."""
    mark = census.new_mark()
    process = stage.OWN.popen("-c", code, *arguments, env={"KILLPOOL_SCRIPT_MARK": mark, "DONE": str(done)})
    try:
        census.wait_file(done, limit)
        started = time.monotonic()
        out, err = process.communicate(timeout=limit)
        took = time.monotonic() - started
    except subprocess.TimeoutExpired:
        raise AssertionError(
            f"still running {limit} s after its last word: {census.find_by_environment(mark)}"
        ) from None
    finally:
        stage.end(process, mark)
        process.communicate()
    return Ended(process.returncode, out, err, took)
