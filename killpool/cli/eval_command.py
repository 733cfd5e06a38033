"""`killpool eval PROBLEMS SAMPLES`: judge generated programs by their tests, one fresh process each.

Results are JSON lines, each written and flushed as its verdict comes; the summary ends the run.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from killpool.cli.progress import progress
from killpool.errors import SpecError
from killpool.evaluate.formats import InputError, Problem, Sample, read_problems, read_samples
from killpool.evaluate.report import Tally, check_table, summary
from killpool.evaluate.runner import Options, Runs, evaluate, open_pool
from killpool.evaluate.verdict import Verdict, record
from killpool.spec import check_count, parse_duration, parse_size

_DESCRIPTION = """\
Run each sample's program (prompt + completion + tests) in a fresh process in a PID namespace of its own, and judge it
by whether it came to the end of its tests.  PROBLEMS and SAMPLES are HumanEval's files, .jsonl or .jsonl.gz.
"""
_EPILOG = """\
exit codes: 0 every sample was judged (passed or not); 1 some could not be judged, or --check found a difference;
2 usage or file error, nothing was run; 130 interrupted (the lines already written stay)
"""


def _count(name: str, text: object) -> int:
    return check_count(name, int(text) if isinstance(text, str) and text.isdecimal() else text)


_OPTIONS: tuple[tuple[str, str | None, Callable[[str, object], float], str, str], ...] = (
    (
        "--timeout",
        "3",
        parse_duration,
        "TIME",
        'what a program may take, such as 3, "500ms", "2m" (default: %(default)s)',
    ),
    ("--workers", None, _count, "N", "programs that run at once (default: one a usable CPU)"),
    ("--memory", "2G", parse_size, "SIZE", "memory of a program's whole process tree (default: %(default)s)"),
    ("--output-limit", "1M", parse_size, "SIZE", "bytes of stdout and of stderr, each (default: %(default)s)"),
    ("--processes", "64", _count, "N", "processes of a program's tree, itself included (default: %(default)s)"),
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `eval` to the command's parser."""
    parser = commands.add_parser(
        "eval",
        help="judge generated programs by their tests",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("problems", metavar="PROBLEMS", help="task_id, prompt, test, entry_point a line")
    add("samples", metavar="SAMPLES", help="task_id, completion a line")
    for flag, default, parse, metavar, text in _OPTIONS:
        add(flag, default=default, type=_of(flag, parse), metavar=metavar, help=text)
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="results; an older file is replaced (default: next to SAMPLES)",
    )
    add("--check", action="store_true", help='compare each verdict with the sample\'s own "expect", and show all')
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, make_pool: Callable[[Options], AbstractContextManager[Runs]] = open_pool) -> int:
    """Carry out `killpool eval` and return its exit code."""
    problems = read_problems(arguments.problems)
    samples = read_samples(arguments.samples, problems, needs_expect=arguments.check)
    options = Options(
        timeout=arguments.timeout,
        workers=arguments.workers,
        memory=arguments.memory,
        output=arguments.output_limit,
        processes=arguments.processes,
    )
    path = arguments.output or Path(f"{arguments.samples}_results.jsonl")
    job = _Run(problems, samples, options, make_pool, keeps=arguments.check)
    began = time.monotonic()
    try:
        with _open_results(path, arguments) as file:
            job.judge_all(file)
    except KeyboardInterrupt:
        print(f"\ninterrupted: {job.tally.total} of {len(samples)} samples judged, kept in {path}", file=sys.stderr)
        return 130
    return _report(job, path, time.monotonic() - began)


@dataclass(slots=True)
class _Run:
    problems: dict[str, Problem]
    samples: list[Sample]
    options: Options
    make_pool: Callable[[Options], AbstractContextManager[Runs]]
    keeps: bool
    tally: Tally = field(default_factory=Tally)
    kept: list[Verdict] = field(default_factory=list)

    def judge_all(self, file: IO[bytes]) -> None:
        """Judge every sample; write each verdict as it comes."""
        import orjson  # noqa: PLC0415  (only a run that writes needs it)

        verdicts = evaluate(self.problems, self.samples, self.options, make_pool=self.make_pool)
        # Closing the generator is what ends the pool: left to the garbage collector it could outlive an error here.
        with contextlib.closing(verdicts), progress(len(self.samples), sys.stderr) as display:
            for verdict in verdicts:
                # Counted first: whoever has read the line and interrupts finds it in the count.
                self.tally.add(verdict)
                file.write(orjson.dumps(record(verdict), option=orjson.OPT_APPEND_NEWLINE))
                file.flush()
                if self.keeps:
                    self.kept.append(verdict)
                display.show(self.tally.total, self.tally.passes)


def _report(job: _Run, path: Path, elapsed: float) -> int:
    tally, bad = job.tally, 0
    if job.keeps:
        text, bad = check_table(job.kept)
        print(text, end="\n\n")
    print(summary(tally, problems=len(job.problems), elapsed=elapsed))
    print(f"results    {path}")
    if job.keeps:
        print(f"check      {tally.total - bad} of {tally.total} lines as expected")
    return 1 if bad or tally.unscored else 0


def _open_results(path: Path, arguments: argparse.Namespace) -> IO[bytes]:
    for source in (arguments.problems, arguments.samples):
        if path.exists() and path.samefile(source):
            raise InputError(f"{path}: is an input of this run and will not be written over", path=str(path))
    try:
        return path.open("wb")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}", path=str(path)) from None


def _of(name: str, parse: Callable[[str, object], float]) -> Callable[[str], float]:
    """Return an argparse type that keeps the message of our own parser."""

    def convert(text: str) -> float:
        try:
            return parse(name, text)
        except SpecError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert
