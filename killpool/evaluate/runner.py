"""Drives the pool: programs in, verdicts out, as they come.

One fresh process in a PID namespace of its own per sample, which gets the program's text and can answer nothing but
"it came to its end".  Deadline, limits, exit status and usage are the supervisor's own knowledge.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from killpool.evaluate.formats import InputError, Problem, Sample
from killpool.evaluate.program import run_program
from killpool.evaluate.verdict import Verdict, judge
from killpool.outcome import Outcome
from killpool.spec import Limits, check_count, check_timeout

# Standard modules that such programs import often: once in the template instead of in each process (12 % of a run).
_COMMON = ("typing", "math", "collections", "itertools", "functools", "re", "string", "copy", "heapq", "bisect")


class Runs(Protocol):
    """The part of a Pool that is used here."""

    def outcomes(self, fn: Callable[[str], None], inputs: Iterable[str], *, ordered: bool = True) -> Iterable[Outcome]:
        """Yield one Outcome an input, with its `index`."""


@dataclass(frozen=True, slots=True)
class Options:
    """How programs are run.

    timeout: seconds a program may take.  workers: how many run at once, None for one a usable CPU.  memory: bytes of
    a program's whole process tree.  output: bytes of its stdout and of its stderr, each.  processes: how many its
    tree may have, itself included.
    """

    timeout: float = 3.0
    workers: int | None = None
    memory: int = 2 * 1024**3
    output: int = 1024**2
    processes: int = 64

    def __post_init__(self) -> None:
        check_timeout("timeout", self.timeout)
        if self.workers is not None:
            check_count("workers", self.workers)
        Limits(memory=self.memory, output=self.output, processes=self.processes)


def open_pool(options: Options) -> AbstractContextManager[Runs]:
    """Return the pool that untrusted programs run in."""
    from killpool import Pool  # noqa: PLC0415  (reading and judging need no pool)

    return Pool(
        max_workers=options.workers,
        name="eval",
        isolation="process",
        contain="pidns",
        codec="json",
        capture_output=True,
        timeout=options.timeout,
        limits=Limits(memory=options.memory, processes=options.processes, output=options.output),
        preload=["killpool.evaluate.program", *_COMMON],
    )


def evaluate(
    problems: Mapping[str, Problem] | Iterable[Problem],
    samples: Iterable[Sample],
    options: Options | None = None,
    *,
    make_pool: Callable[[Options], AbstractContextManager[Runs]] = open_pool,
) -> Generator[Verdict, None, None]:
    """Yield one Verdict a sample, in the order in which they end.

    `samples` may be an endless generator: the pool looks only so far ahead.  A sample of an unknown task raises
    InputError.  Leaving the loop early kills what runs.
    """
    known = _by_task(problems)
    waiting: dict[int, Sample] = {}

    def programs() -> Iterator[str]:
        for index, sample in enumerate(samples):
            if sample.task_id not in known:
                raise InputError(f"task_id {sample.task_id!r} is not among the problems", key="task_id")
            waiting[index] = sample
            yield assemble(known[sample.task_id], sample)

    with make_pool(options or Options()) as pool:
        for outcome in pool.outcomes(run_program, programs(), ordered=False):
            if outcome.index is None:
                raise RuntimeError("the pool gave an outcome without its input's index")
            yield judge(waiting.pop(outcome.index), outcome)


def assemble(problem: Problem, sample: Sample) -> str:
    """Return the program: prompt and completion, then the tests, then the call that runs them."""
    return f"{problem.prompt}{sample.completion}\n{problem.test}\ncheck({problem.entry_point})"


def _by_task(problems: Mapping[str, Problem] | Iterable[Problem]) -> dict[str, Problem]:
    if isinstance(problems, Mapping):
        return dict(problems)
    known: dict[str, Problem] = {}
    for problem in problems:
        if problem.task_id in known:
            raise InputError(f"task_id {problem.task_id!r} is there twice", key="task_id")
        known[problem.task_id] = problem
    return known
