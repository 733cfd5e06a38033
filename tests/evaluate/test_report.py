"""Counts, pass@k, and the tables at the end of a run."""

import itertools
import statistics

import pytest

from killpool.evaluate.formats import Sample
from killpool.evaluate.report import Tally, check_table, pass_at_k, summary
from killpool.evaluate.verdict import Verdict, judge
from killpool.outcome import Cause, Outcome, Usage


def verdict(task: str, cause: Cause, *, wall: float = 0.0, survivors: int = 0) -> Verdict:
    outcome = Outcome(ok=cause is Cause.OK, cause=cause, usage=Usage(wall=wall), survivors=survivors)
    return judge(Sample(task, ""), outcome)


def tally(*verdicts: Verdict) -> Tally:
    counts = Tally()
    for one in verdicts:
        counts.add(one)
    return counts


@pytest.mark.parametrize(
    ("n", "c", "k"), [(n, c, k) for n in range(1, 7) for c in range(n + 1) for k in range(1, n + 1)]
)
def test_pass_at_k_is_the_share_of_draws_that_hold_a_pass(n: int, c: int, k: int) -> None:
    draws = [any(draw) for draw in itertools.combinations([True] * c + [False] * (n - c), k)]
    assert pass_at_k(n, c, k) == pytest.approx(statistics.fmean(draws))


def test_pass_at_k_stays_exact_for_many_samples() -> None:
    assert pass_at_k(100_000, 1, 1) == pytest.approx(1e-5)
    assert pass_at_k(100_000, 50_000, 1000) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 1, 0), (5, 1, 6), (0, 0, 1)])
def test_pass_at_k_refuses_what_has_no_meaning(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass_at_k needs"):
        pass_at_k(n, c, k)


def test_pass_at_1_is_the_mean_over_problems_not_over_samples() -> None:
    counts = tally(verdict("a", Cause.OK), *[verdict("b", Cause.TIMEOUT)] * 3)
    assert counts.pass_at(1) == 0.5


def test_samples_that_were_not_judged_are_in_no_score() -> None:
    counts = tally(
        verdict("a", Cause.OK),
        verdict("a", Cause.INTERNAL),
        verdict("a", Cause.LOST),
        verdict("b", Cause.START_FAILED),
    )
    assert (counts.pass_at(1), counts.unscored, counts.total, counts.passes) == (1.0, 3, 4, 1)


def test_pass_at_k_is_not_given_where_a_problem_has_fewer_samples() -> None:
    counts = tally(verdict("a", Cause.OK), verdict("a", Cause.OK), verdict("b", Cause.OK))
    assert (counts.pass_at(1), counts.pass_at(2)) == (1.0, None)
    assert Tally().pass_at(1) is None


def test_the_summary_has_a_row_a_cause_and_says_what_was_not_judged() -> None:
    counts = tally(
        verdict("a", Cause.OK, wall=0.25),
        verdict("a", Cause.OK, wall=0.5),
        verdict("b", Cause.TIMEOUT, wall=3.0, survivors=2),
        verdict("b", Cause.INTERNAL),
    )
    assert summary(counts, problems=5, elapsed=3.5) == "\n".join(
        [
            "cause     samples   share  longest",
            "--------  -------  ------  -------",
            "ok              2  50.0 %  0.500 s",
            "timeout         1  25.0 %  3.000 s",
            "internal        1  25.0 %  0.000 s",
            "all             4          3.500 s",
            "",
            "pass@1     0.5000  (2 of 5 problems, 3 scored samples, 2 passed)",
            "not judged 1  (our side failed, not the programs: not counted in pass@1)",
            "survivors  2",
        ]
    )


def test_the_check_table_is_in_file_order_and_counts_what_is_wrong() -> None:
    killed = Outcome(ok=False, cause=Cause.TIMEOUT, survivors=1, kill_latency=0.0015)
    text, bad = check_table(
        [
            judge(Sample("b", "", line=2, expect="exit(25)"), Outcome(ok=False, cause=Cause.EXIT, exitcode=25)),
            judge(Sample("a", "", line=1, expect="timeout"), Outcome(ok=True)),
            judge(Sample("c", "", line=3, expect="timeout"), killed),
        ]
    )
    assert [(row[0:4].strip(), row.split("  ")[-1]) for row in text.splitlines()[2:]] == [
        ("1", "WRONG"),
        ("2", "as expected"),
        ("3", "WRONG"),
    ]
    assert bad == 2
    assert "1.5 ms" in text
