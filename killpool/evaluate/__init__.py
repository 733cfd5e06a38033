"""Batch evaluation: generated programs against their tests, one fresh process each, one verdict each.

    for verdict in evaluate(read_problems(path), samples, Options(timeout=3.0)):
        print(verdict.task_id, verdict.result)

Grading happens inside the program's own process, so a program that sets out to forge a pass can: see docs/eval.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from killpool.evaluate.formats import InputError, Problem, Sample, read_problems, read_samples
    from killpool.evaluate.runner import Options, evaluate
    from killpool.evaluate.verdict import Verdict

__all__ = [
    "InputError",
    "Options",
    "Problem",
    "Sample",
    "Verdict",
    "evaluate",
    "read_problems",
    "read_samples",
]

_HOMES = {"Options": "runner", "evaluate": "runner", "Verdict": "verdict"}


def __getattr__(name: str) -> object:
    # Late, because candidates are forked from a process that imports `killpool.evaluate.program` and with it this file:
    # readers, runner and report have no business in there.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'formats')}"), name)
