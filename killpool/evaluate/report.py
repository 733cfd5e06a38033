"""What a run says at its end: counts by cause, pass@k, survivors, and the table of a checked run.  Pure text."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from killpool.evaluate.verdict import UNSCORED, Verdict, is_expected
from killpool.outcome import Cause


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k from `c` passes among `n` samples of one problem (Chen et al., 2021).

    It is the chance that k samples drawn from the n without putting back hold at least one pass:
    1 - C(n-c, k) / C(n, k).  ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass_at_k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


@dataclass(slots=True)
class Tally:
    """Counts over the verdicts of a run; keeps none of them."""

    causes: Counter[Cause] = field(default_factory=Counter)
    longest: dict[Cause, float] = field(default_factory=dict)
    scored: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    survivors: int = 0

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        cause = verdict.cause
        self.causes[cause] += 1
        self.longest[cause] = max(self.longest.get(cause, 0.0), verdict.outcome.usage.wall)
        self.survivors += verdict.outcome.survivors
        if verdict.is_scored:
            self.scored[verdict.task_id] += 1
            self.passed[verdict.task_id] += verdict.passed

    @property
    def total(self) -> int:
        """How many verdicts were counted."""
        return self.causes.total()

    @property
    def passes(self) -> int:
        """How many of them passed."""
        return self.passed.total()

    @property
    def unscored(self) -> int:
        """How many could not be judged."""
        return sum(self.causes[cause] for cause in UNSCORED)

    def pass_at(self, k: int) -> float | None:
        """Return pass@k, the mean over the problems with a scored sample; None if any of them has fewer than k."""
        if not self.scored or min(self.scored.values()) < k:
            return None
        return math.fsum(pass_at_k(n, self.passed[task], k) for task, n in self.scored.items()) / len(self.scored)


def summary(tally: Tally, *, problems: int, elapsed: float) -> str:
    """Return the text that ends a run: a table by cause, then pass@1, then what is left to worry about."""
    rows = [
        [cause.value, str(count), f"{100 * count / tally.total:.1f} %", f"{tally.longest[cause]:.3f} s"]
        for cause in Cause
        if (count := tally.causes[cause])
    ]
    rows.append(["all", str(tally.total), "", f"{elapsed:.3f} s"])
    lines = [table(["cause", "samples", "share", "longest"], rows, right={1, 2, 3}), ""]
    score = tally.pass_at(1)
    lines.append(
        f"pass@1     {'n/a' if score is None else f'{score:.4f}'}  "
        f"({len(tally.scored)} of {problems} problems, {tally.scored.total()} scored samples, {tally.passes} passed)"
    )
    if tally.unscored:
        lines.append(f"not judged {tally.unscored}  (our side failed, not the programs: not counted in pass@1)")
    lines.append(f"survivors  {tally.survivors}")
    return "\n".join(lines)


def check_table(verdicts: Iterable[Verdict]) -> tuple[str, int]:
    """Return the table of a checked run, in file order, and how many lines are not as expected.

    A line with a survivor is not as expected, whatever its cause.
    """
    rows, bad = [], 0
    for verdict in sorted(verdicts, key=lambda v: v.sample.line):
        outcome = verdict.outcome
        is_right = is_expected(verdict) and not outcome.survivors
        bad += not is_right
        rows.append(
            [
                str(verdict.sample.line),
                verdict.sample.kind or verdict.task_id,
                verdict.sample.expect,
                verdict.label,
                f"{outcome.usage.wall:.3f} s",
                "" if outcome.kill_latency is None else f"{outcome.kill_latency * 1000:.1f} ms",
                str(outcome.descendants_killed),
                str(outcome.survivors),
                "as expected" if is_right else "WRONG",
            ]
        )
    head = ["line", "what it does", "expected", "judged", "wall", "killed in", "descendants", "survivors", ""]
    return table(head, rows, right={0, 4, 5, 6, 7}), bad


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: set[int]) -> str:
    """Return aligned columns under a ruled head; the columns in `right` are set flush right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
