"""`killpool eval` from the command line: what it refuses before it runs, and what it leaves."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from killpool.cli import eval_command
from killpool.cli.main import build_parser, main
from killpool.evaluate import Options
from killpool.evaluate.runner import Runs
from killpool.outcome import Cause, Outcome

PROBLEM = {
    "task_id": "t/0",
    "prompt": "def f():\n",
    "test": "def check(candidate):\n    assert candidate() == 1",
    "entry_point": "f",
}
RIGHT = "    return 1\n"


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[str]]:
    """Writes a problem and samples of these completions; returns both paths."""

    def write(*completions: str, **more: str) -> list[str]:
        rows = [{"task_id": "t/0", "completion": text, **more} for text in completions]
        paths = [tmp_path / "problems.jsonl", tmp_path / "samples.jsonl"]
        paths[0].write_text(json.dumps(PROBLEM))
        paths[1].write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [str(path) for path in paths]

    return write


def results(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "killpool", "eval", *arguments]


class Answers:
    """A pool whose calls all end in the given way."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def outcomes(self, fn: object, inputs: Iterable[str], *, ordered: bool = True) -> Iterator[Outcome]:
        for index, _ in enumerate(inputs):
            yield Outcome(ok=self.outcome.ok, cause=self.outcome.cause, error=self.outcome.error, index=index)


def answering(outcome: Outcome) -> Callable[[Options], AbstractContextManager[Runs]]:
    @contextmanager
    def make(options: Options) -> Iterator[Runs]:
        yield Answers(outcome)

    return make


def run_with(make_pool: Callable[[Options], AbstractContextManager[Runs]], *arguments: str) -> int:
    return eval_command.run(build_parser().parse_args(["eval", *arguments]), make_pool)


@pytest.fixture
def _no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a program would have been run")

    monkeypatch.setattr("killpool.evaluate.runner.run_program", refuse)
    monkeypatch.setattr("killpool.cli.eval_command.evaluate", refuse)


@pytest.mark.usefixtures("_no_pool")
class TestRefusals:
    def refused(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        assert main(["eval", *arguments]) == 2
        return capsys.readouterr().err

    def test_a_bad_line_is_one_error_with_file_and_line(
        self, files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        problems, samples = files(RIGHT)
        with Path(samples).open("a") as file:
            file.write('{"task_id": "t/7", "completion": ""}\n')
        message = self.refused(capsys, problems, samples)
        assert message == f"killpool: error: {samples}:2: task_id 't/7' is not among the problems\n"
        assert not Path(f"{samples}_results.jsonl").exists()

    def test_a_missing_file_is_named(self, files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
        problems, samples = files(RIGHT)
        message = self.refused(capsys, problems, f"{samples}.gz")
        assert message == f"killpool: error: {samples}.gz: cannot be read: No such file or directory\n"

    def test_check_needs_an_expectation_on_every_line(
        self, files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        problems, samples = files(RIGHT)
        assert f"{samples}:1: key 'expect' is missing" in self.refused(capsys, problems, samples, "--check")

    def test_an_input_is_not_written_over(
        self, files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        problems, samples = files(RIGHT)
        before = Path(samples).read_bytes()
        message = self.refused(capsys, problems, samples, "-o", samples)
        assert "is an input of this run and will not be written over" in message
        assert Path(samples).read_bytes() == before

    def test_results_that_cannot_be_written_are_refused(
        self, files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        message = self.refused(capsys, *files(RIGHT), "-o", str(tmp_path / "none" / "out.jsonl"))
        assert message.endswith("none/out.jsonl: cannot be written: No such file or directory\n")

    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            ("--timeout", "soon", "--timeout must be seconds or a duration such as \"2m\", got 'soon'"),
            ("--timeout", "0", "--timeout must be above 0"),
            ("--timeout", "nan", "--timeout must be seconds or a duration"),
            ("--memory", "lots", "--memory must be bytes or a size"),
            ("--output-limit", "0", "--output-limit must be a whole number from 1"),
            ("--workers", "0", "--workers must be a whole number from 1"),
            ("--workers", "two", "--workers must be a whole number from 1"),
            ("--processes", "-3", "--processes must be a whole number from 1"),
        ],
    )
    def test_an_option_that_means_nothing_is_refused(
        self, files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
    ) -> None:
        assert message in self.refused(capsys, *files(RIGHT), f"{option}={value}")


def test_what_could_not_be_judged_is_no_failure_and_exit_code_1(
    files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    problems, samples = files(RIGHT, RIGHT)
    lost = Outcome(ok=False, cause=Cause.LOST, error=RuntimeError("the supervisor ended"))
    assert run_with(answering(lost), problems, samples) == 1
    out = capsys.readouterr().out
    assert "pass@1     n/a  (0 of 1 problems, 0 scored samples, 0 passed)" in out
    assert "not judged 2" in out
    assert [row["result"] for row in results(f"{samples}_results.jsonl")] == ["failed: lost: the supervisor ended"] * 2


def test_a_check_that_differs_is_exit_code_1(
    files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = files(RIGHT, expect="timeout")
    assert run_with(answering(Outcome(ok=True)), *paths, "--check") == 1
    assert "WRONG" in capsys.readouterr().out
    assert run_with(answering(Outcome(ok=False, cause=Cause.TIMEOUT)), *paths, "--check") == 0
    assert "check      1 of 1 lines as expected" in capsys.readouterr().out


def test_programs_are_judged_and_the_results_are_written(
    files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    problems, samples = files(RIGHT, "    return 2\n", "    print('hi')\n    raise ValueError('no')\n", "    exit(3)\n")
    assert main(["eval", problems, samples, "--timeout", "20", "--workers", "2"]) == 0
    rows = sorted(results(f"{samples}_results.jsonl"), key=lambda row: int(row["completion_id"]))
    assert [(r["task_id"], r["passed"], r["result"], r["cause"], r["exit_code"]) for r in rows] == [
        ("t/0", True, "passed", "ok", rows[0]["exit_code"]),
        ("t/0", False, "failed: exception: AssertionError", "exception", rows[1]["exit_code"]),
        ("t/0", False, "failed: exception: ValueError: no", "exception", rows[2]["exit_code"]),
        ("t/0", False, "failed: exit(3)", "exit", 3),
    ]
    assert [r["stdout"] for r in rows] == ["", "", "hi\n", ""]
    assert all(r["survivors"] == 0 and r["peak_rss"] > 0 and r["wall"] > 0 for r in rows)
    assert "pass@1     0.2500  (1 of 1 problems, 4 scored samples, 1 passed)" in capsys.readouterr().out


def test_results_are_there_while_the_run_goes_on_and_stay_after_ctrl_c(files: Callable[..., list[str]]) -> None:
    problems, samples = files(RIGHT, RIGHT, "    import time\n    time.sleep(600)\n")
    fifo = Path(samples).with_name("results.fifo")
    os.mkfifo(fifo)
    run = subprocess.Popen(
        command(problems, samples, "--timeout", "500", "--workers", "1", "-o", str(fifo)), stderr=subprocess.PIPE
    )
    with run, fifo.open() as written:
        lines = [json.loads(written.readline()) for _ in range(2)]  # comes only if each line is flushed
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=20)
        rest = written.read()
    assert [row["passed"] for row in lines] == [True, True]
    assert (run.returncode, rest) == (130, "")
    assert f"interrupted: 2 of 3 samples judged, kept in {fifo}" in said.decode()


def test_a_reader_that_leaves_ends_the_command_quietly(files: Callable[..., list[str]]) -> None:
    with subprocess.Popen(command(*files(RIGHT)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.close()
        assert run.stderr is not None
        said = run.stderr.read().decode()
    assert run.returncode == 1
    assert "Traceback" not in said
    assert "Exception ignored" not in said


def test_progress_is_plain_lines_on_stderr_where_nobody_watches(
    files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(answering(Outcome(ok=True)), *files(RIGHT)) == 0
    assert capsys.readouterr().err.startswith("1/1 judged, 1 passed, ")
