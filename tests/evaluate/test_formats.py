"""Reading problems and samples: HumanEval's files come in, every fault is named with its file, line and key."""

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from killpool.evaluate import InputError, Problem, Sample, read_problems, read_samples

PROBLEM = {"task_id": "t/0", "prompt": "def f():\n", "test": "def check(c):\n    pass", "entry_point": "f"}
SAMPLE = {"task_id": "t/0", "completion": "    return 1"}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*rows: object, name: str = "in.jsonl") -> Path:
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        data = b"".join(line + b"\n" for line in lines)
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def without(row: dict[str, str], key: str) -> dict[str, str]:
    return {k: v for k, v in row.items() if k != key}


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
def test_problems_and_samples_are_read_plain_and_compressed(write: Write, name: str) -> None:
    assert read_problems(write(PROBLEM, name=name)) == {"t/0": Problem(**PROBLEM)}
    assert read_samples(write(SAMPLE, name=name), {"t/0"}) == [Sample("t/0", "    return 1", 0, 1)]


def test_completion_ids_count_within_each_task_in_file_order(write: Write) -> None:
    other = SAMPLE | {"task_id": "t/1"}
    samples = read_samples(write(SAMPLE, other, SAMPLE, SAMPLE, other), {"t/0", "t/1"})
    assert [(s.task_id, s.completion_id, s.line) for s in samples] == [
        ("t/0", 0, 1),
        ("t/1", 0, 2),
        ("t/0", 1, 3),
        ("t/0", 2, 4),
        ("t/1", 1, 5),
    ]


def test_blank_lines_are_skipped_and_still_counted(write: Write) -> None:
    assert read_samples(write(b"", b"  ", SAMPLE), {"t/0"})[0].line == 3


def test_unknown_keys_are_left_alone(write: Write) -> None:
    assert list(read_problems(write(PROBLEM | {"canonical_solution": 5}))) == ["t/0"]


def test_kind_and_expect_are_read_where_asked_for(write: Write) -> None:
    path = write(SAMPLE | {"kind": "loop", "expect": "timeout|exit(3)"})
    assert read_samples(path, {"t/0"}, needs_expect=True) == [
        Sample("t/0", "    return 1", 0, 1, kind="loop", expect="timeout|exit(3)")
    ]
    assert read_samples(path, {"t/0"}) == [Sample("t/0", "    return 1", 0, 1, kind="loop")]


@pytest.mark.parametrize("key", ["task_id", "prompt", "test", "entry_point"])
def test_a_missing_key_of_a_problem_is_named_with_its_line(write: Write, key: str) -> None:
    path = write(PROBLEM | {"task_id": "t/9"}, without(PROBLEM, key))
    with pytest.raises(InputError) as caught:
        read_problems(path)
    assert str(caught.value) == f"{path}:2: key '{key}' is missing"
    assert (caught.value.path, caught.value.line, caught.value.key) == (str(path), 2, key)


PROBLEM_FAULTS = [
    ([PROBLEM, PROBLEM], ":2: task_id 't/0' is there twice"),
    ([PROBLEM | {"entry_point": "f()"}], ":1: entry_point must be the name of a function, got 'f()'"),
    ([PROBLEM | {"entry_point": "class"}], ":1: entry_point must be the name of a function, got 'class'"),
    ([PROBLEM | {"task_id": 7}], ":1: task_id must be a string, got int"),
    ([PROBLEM | {"test": None}], ":1: test must be a string, got NoneType"),
    ([b"[1]"], ":1: must be a JSON object, got list"),
    ([b'{"task_id": "a", "task_id": "b"}'], ":1: key 'task_id' is there twice"),
    ([PROBLEM, b"{'a': 1}"], ":2: is not JSON: Expecting property name enclosed in double quotes at column 2"),
    ([b'{"task_id": "\xff"}'], ":1: is not UTF-8: byte 13 of the line: invalid start byte"),
    ([b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"], ":1: is nested too deeply"),
    ([b'{"a": 1' + b"0" * 5000 + b"}"], ":1: Exceeds the limit"),
    ([], ": has no problems"),
]


@pytest.mark.parametrize(("rows", "message"), PROBLEM_FAULTS, ids=[m for _, m in PROBLEM_FAULTS])
def test_a_faulty_problem_file_is_refused_with_its_line(write: Write, rows: list[object], message: str) -> None:
    path = write(*rows)
    with pytest.raises(InputError) as caught:
        read_problems(path)
    assert str(caught.value).startswith(f"{path}{message}")


SAMPLE_FAULTS = [
    ([SAMPLE | {"expect": "ok"}, without(SAMPLE, "completion")], ":2: key 'completion' is missing"),
    ([SAMPLE | {"task_id": "t/1"}], ":1: task_id 't/1' is not among the problems"),
    ([SAMPLE | {"completion": ["x"]}], ":1: completion must be a string, got list"),
    ([SAMPLE], ":1: key 'expect' is missing"),
    ([SAMPLE | {"expect": "ok|fine"}], ":1: expect must name causes such as 'ok' or 'exit(25)|timeout', got 'ok|fine'"),
    ([], ": has no samples"),
]


@pytest.mark.parametrize(("rows", "message"), SAMPLE_FAULTS, ids=[m for _, m in SAMPLE_FAULTS])
def test_a_faulty_sample_file_is_refused_with_its_line(write: Write, rows: list[object], message: str) -> None:
    path = write(*rows)
    with pytest.raises(InputError) as caught:
        read_samples(path, {"t/0"}, needs_expect=True)
    assert str(caught.value) == f"{path}{message}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: cannot be read: No such file or directory"):
        read_problems(tmp_path / "none.jsonl")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_problems(tmp_path)


def test_text_named_gz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_text(json.dumps(PROBLEM))
    with pytest.raises(InputError, match=r"in\.jsonl\.gz: ends in \.gz but is not gzip data"):
        read_problems(path)


def test_gzip_data_without_the_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(gzip.compress(json.dumps(PROBLEM).encode()))
    with pytest.raises(InputError, match=r"in\.jsonl: is gzip data, but its name does not end in \.gz"):
        read_problems(path)


@pytest.mark.parametrize("cut", [-4, -12, 15])
def test_gzip_data_that_ends_early_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(PROBLEM).encode())[:cut])
    with pytest.raises(InputError, match="the gzip data is damaged"):
        read_problems(path)


def test_a_line_without_end_is_bounded(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("killpool.evaluate.formats.LINE_MAX", 20)
    with pytest.raises(InputError, match=r":1: is longer than 20 bytes"):
        read_problems(write(PROBLEM))


def test_an_input_error_keeps_its_attributes_over_a_pickle(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_problems(tmp_path / "none.jsonl")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.path, copy.line) == (str(caught.value), str(tmp_path / "none.jsonl"), 0)


def test_the_real_humaneval_file_has_164_problems(shared_data: Path) -> None:
    problems = read_problems(shared_data / "humaneval" / "HumanEval.jsonl.gz")
    assert (len(problems), next(iter(problems))) == (164, "HumanEval/0")


def test_the_real_example_samples_are_read(shared_data: Path) -> None:
    problems = read_problems(shared_data / "humaneval" / "example_problem.jsonl")
    samples = read_samples(shared_data / "humaneval" / "example_samples.jsonl", problems)
    assert [s.completion_id for s in samples] == [0, 1, 2, 3, 4, 5]
