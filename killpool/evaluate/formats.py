"""Problems and samples from HumanEval's files (.jsonl and .jsonl.gz), read strictly.

Everything is checked before anything runs: the first fault ends the reading with an `InputError` that names the file,
the line and the key.  Blank lines are skipped and unknown keys are left alone, as HumanEval does.
"""

import gzip
import io
import json
import keyword
import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from killpool.errors import SpecError
from killpool.outcome import Cause

LINE_MAX = 64 * 1024 * 1024  # bytes of one line; a file without line ends is then an error, not all our memory

_GZIP_MAGIC = b"\x1f\x8b"


class InputError(SpecError):
    """A file of problems or samples cannot be used.  Attributes: `path`, `line` (0: the whole file), `key`."""

    path: str
    line: int
    key: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the program is `prompt` + a completion, and `test` defines `check(candidate)`."""

    task_id: str
    prompt: str
    test: str
    entry_point: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion for a problem.

    `completion_id` counts the samples of one task from 0, in file order.  `line` is the line of the file, 0 for a
    sample made in a program.  `kind` and `expect` are read where they are there: a word on what the sample does, and
    the causes that `--check` accepts ("exit(25)", "process_limit|timeout").
    """

    task_id: str
    completion: str
    completion_id: int = 0
    line: int = 0
    kind: str = ""
    expect: str = ""


def read_problems(path: str | Path) -> dict[str, Problem]:
    """Return the problems of `path` by task_id, in file order."""
    problems: dict[str, Problem] = {}
    for line, fields in _objects(Path(path)):
        row = _Row(str(path), line, fields)
        problem = Problem(row.text("task_id"), row.text("prompt"), row.text("test"), row.text("entry_point"))
        name = problem.entry_point
        if not name.isidentifier() or keyword.iskeyword(name):
            row.refuse("entry_point", f"must be the name of a function, got {name[:80]!r}")
        if problem.task_id in problems:
            row.refuse("task_id", f"{problem.task_id!r} is there twice")
        problems[problem.task_id] = problem
    if not problems:
        _refuse(str(path), 0, "", "has no problems")
    return problems


def read_samples(path: str | Path, known: Container[str], *, needs_expect: bool = False) -> list[Sample]:
    """Return the samples of `path`, each of a task in `known`; with `needs_expect` each must say its `expect`."""
    samples: list[Sample] = []
    counts: dict[str, int] = {}
    for line, fields in _objects(Path(path)):
        row = _Row(str(path), line, fields)
        task_id, completion = row.text("task_id"), row.text("completion")
        if task_id not in known:
            row.refuse("task_id", f"{task_id[:200]!r} is not among the problems")
        expect = row.text("expect") if needs_expect else ""
        if needs_expect and not _is_expectation(expect):
            row.refuse("expect", f"must name causes such as 'ok' or 'exit(25)|timeout', got {expect[:80]!r}")
        kind = row.text("kind") if "kind" in fields else ""
        number = counts.get(task_id, 0)
        counts[task_id] = number + 1
        samples.append(Sample(task_id, completion, number, line, kind, expect))
    if not samples:
        _refuse(str(path), 0, "", "has no samples")
    return samples


@dataclass(frozen=True, slots=True)
class _Row:
    path: str
    line: int
    fields: dict[str, object]

    def text(self, key: str) -> str:
        """Return the string under `key`."""
        if key not in self.fields:
            _refuse(self.path, self.line, key, f"key {key!r} is missing")
        value = self.fields[key]
        if not isinstance(value, str):
            self.refuse(key, f"must be a string, got {type(value).__name__}")
        return value

    def refuse(self, key: str, message: str) -> NoReturn:
        """Raise an InputError about `key` of this line."""
        _refuse(self.path, self.line, key, f"{key} {message}")


def _refuse(path: str, line: int, key: str, message: str) -> NoReturn:
    where = f"{path}:{line}" if line else path
    raise InputError(f"{where}: {message}", path=path, line=line, key=key)


def _is_expectation(text: str) -> bool:
    words = {cause.value for cause in Cause}
    return all(part.partition("(")[0] in words for part in text.split("|"))


def _objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield (line number, JSON object) of every line that is not blank."""
    for number, raw in _lines(path):
        if raw.isspace():
            continue
        try:
            value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
        except UnicodeDecodeError as error:
            _refuse(str(path), number, "", f"is not UTF-8: byte {error.start} of the line: {error.reason}")
        except json.JSONDecodeError as error:
            _refuse(str(path), number, "", f"is not JSON: {error.msg} at column {error.colno}")
        except RecursionError:
            _refuse(str(path), number, "", "is nested too deeply")
        except ValueError as error:  # a key twice, or a number of more digits than Python takes
            _refuse(str(path), number, "", str(error))
        if not isinstance(value, dict):
            _refuse(str(path), number, "", f"must be a JSON object, got {type(value).__name__}")
        yield number, value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is there twice")
    return fields


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with _open(path) as file:
            while raw := file.readline(LINE_MAX + 1):
                number += 1
                if len(raw) > LINE_MAX:
                    _refuse(str(path), number, "", f"is longer than {LINE_MAX} bytes")
                yield number, raw
    except gzip.BadGzipFile as error:
        _refuse(str(path), 0, "", f"ends in .gz but is not gzip data: {error}")
    except (EOFError, zlib.error) as error:
        _refuse(str(path), number + 1, "", f"the gzip data is damaged: {error}")
    except OSError as error:
        _refuse(str(path), 0, "", f"cannot be read: {error.strerror or error}")


def _open(path: Path) -> gzip.GzipFile | io.BufferedReader:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rb")
    file = path.open("rb")
    if file.peek(2)[:2] == _GZIP_MAGIC:
        file.close()
        _refuse(str(path), 0, "", "is gzip data, but its name does not end in .gz")
    return file
