"""The runner between samples and pool: programs go in, each outcome finds its sample."""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

import pytest

from killpool.errors import SpecError
from killpool.evaluate import InputError, Options, Problem, Sample, evaluate
from killpool.evaluate.program import run_program
from killpool.evaluate.runner import assemble
from killpool.outcome import Cause, Outcome

PROBLEM = Problem("t/0", "def f():\n", "def check(candidate):\n    assert candidate() == 1\n", "f")
OTHER = Problem("t/1", "def g():\n", "def check(candidate):\n    pass\n", "g")


class FakePool:
    """Takes `ahead` inputs before it answers, the newest first; remembers how it was left."""

    def __init__(self, ahead: int = 2) -> None:
        self.ahead = ahead
        self.given: list[str] = []
        self.left: list[type[BaseException] | None] = []

    def __call__(self, options: Options) -> Self:
        self.options = options
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.left.append(kind)

    def outcomes(self, fn: Callable[[str], None], inputs: Iterable[str], *, ordered: bool = True) -> Iterator[Outcome]:
        assert fn is run_program
        assert not ordered
        flight: list[Outcome] = []
        for index, source in enumerate(inputs):
            self.given.append(source)
            is_right = "return 1" in source
            flight.append(Outcome(ok=is_right, cause=Cause.OK if is_right else Cause.EXCEPTION, index=index))
            if len(flight) > self.ahead:
                yield flight.pop()
        yield from reversed(flight)


def test_a_program_is_prompt_completion_test_and_call() -> None:
    assert assemble(PROBLEM, Sample("t/0", "    return 1")) == (
        "def f():\n    return 1\ndef check(candidate):\n    assert candidate() == 1\n\ncheck(f)"
    )


def test_each_outcome_finds_its_sample_whatever_the_order() -> None:
    samples = [Sample("t/0", f"    return {n % 2}", completion_id=n) for n in range(7)]
    pool = FakePool()
    verdicts = list(evaluate([PROBLEM], samples, make_pool=pool))
    assert [v.completion_id for v in verdicts] != list(range(7))
    assert sorted((v.completion_id, v.passed) for v in verdicts) == [(n, n % 2 == 1) for n in range(7)]
    assert pool.given == [assemble(PROBLEM, s) for s in samples]
    assert pool.left == [None]


def test_an_endless_stream_of_samples_is_read_only_as_far_as_needed() -> None:
    def endless() -> Iterator[Sample]:
        while True:
            yield Sample("t/0", "    return 1")

    pool = FakePool(ahead=3)
    verdicts = evaluate([PROBLEM], endless(), make_pool=pool)
    assert [next(verdicts).passed for _ in range(5)] == [True] * 5
    verdicts.close()
    assert (len(pool.given), pool.left) == (8, [GeneratorExit])


def test_a_sample_of_an_unknown_task_ends_the_run() -> None:
    pool = FakePool()
    with pytest.raises(InputError, match="task_id 't/1' is not among the problems"):
        list(evaluate([PROBLEM], [Sample("t/1", "")], make_pool=pool))
    assert pool.left == [InputError]


def test_a_problem_twice_is_refused() -> None:
    with pytest.raises(InputError, match="task_id 't/0' is there twice"):
        list(evaluate([PROBLEM, OTHER, PROBLEM], [], make_pool=FakePool()))


def test_problems_may_come_as_a_mapping() -> None:
    verdicts = evaluate({"t/1": OTHER}, [Sample("t/1", "    return 1")], make_pool=FakePool())
    assert [v.result for v in verdicts] == ["passed"]


@pytest.mark.parametrize(
    ("field", "value"), [("timeout", 0), ("timeout", float("nan")), ("workers", 0), ("memory", -1), ("processes", 0)]
)
def test_options_that_mean_nothing_are_refused(field: str, value: float) -> None:
    with pytest.raises(SpecError, match=field):
        Options(**{field: value})  # type: ignore[arg-type]
