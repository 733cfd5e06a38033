"""What the cases share: a mark to be found by, a gate to wait at and a file to write into."""

import os
from pathlib import Path

import pytest

import census


@pytest.fixture
def mark() -> str:
    """A unique word that a process may wear as its command name."""
    return census.new_mark()


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """A FIFO at which tasks wait until `tasks.open_gate` is called."""
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A file that does not exist yet, for tasks to append lines to."""
    return tmp_path / "log"
