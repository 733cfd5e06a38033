"""The benchmark's arithmetic, and that each of its contests can be run; what they measure is for a quiet machine."""

import math

from bench.contest import Contest, Goal, Metric, Reached, Samples, judge, quantile, ratio, values
from bench.contests import ALL, BY_NAME
from bench.table import columns, goals, shown, table

RATE = Metric("rate", "calls", "/s", higher_is_better=True)
WAIT = Metric("wait", "waits", "s")


def _none(contestant: str, *, quick: bool) -> Samples:
    return {}


def contest(*held: Goal) -> Contest:
    """Return a contest of two."""
    return Contest(
        "trial", "a trial", ("killpool", "peer", "slow"), (RATE, WAIT), _none, held, repeats=3, rare=("slow",)
    )


NUMBERS = {"killpool": {RATE.name: 3000.0, WAIT.name: 0.002}, "peer": {RATE.name: 1000.0, WAIT.name: 0.5}}


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert [quantile([4.0, 1.0, 3.0, 2.0], q) for q in (0.0, 0.5, 0.75, 1.0)] == [1.0, 2.5, 3.25, 4.0]
    assert math.isnan(quantile([], 0.5))


def test_contestants_take_turns_and_rare_ones_have_one() -> None:
    assert contest().turns(quick=False) == ["killpool", "peer", "slow", "peer", "killpool", "killpool", "peer"]
    assert contest().turns(quick=True) == ["killpool", "peer", "slow"]


def test_samples_become_numbers_and_what_was_not_measured_is_not_there() -> None:
    samples: dict[str, Samples] = {"killpool": {"rate": [1.0, 9.0, 5.0], "wait": []}}
    assert values(contest(), samples) == {"killpool": {RATE.name: 5.0}}


def test_a_ratio_above_one_means_that_killpool_is_better() -> None:
    assert [ratio(RATE, 3000.0, 1000.0), ratio(WAIT, 0.002, 0.5), ratio(WAIT, 0.0, 1.0), ratio(RATE, None, 1.0)] == [
        3.0,
        250.0,
        None,
        None,
    ]


def test_goals_are_held_against_numbers_and_against_peers() -> None:
    met, missed, unknown = Goal(RATE.name, 3.0, at_least=True, of="peer"), Goal(WAIT.name, 0.001), Goal("else", 1.0)
    reached = judge(contest(met, missed, unknown), NUMBERS)
    assert reached == [Reached(met, 3000.0, 3000.0, is_met=True), Reached(missed, 0.002, 0.001, is_met=False)]
    assert goals(contest(), reached) == (
        "  trial, calls  3,000 /s  at least 3,000 /s = 3 of peer     met\n"
        f"  trial, waits   2.00 ms  {'at most 1.00 ms':>29}  MISSED\n"
    )


def test_the_table_shows_ratios_and_who_is_missing() -> None:
    assert table(contest(), NUMBERS, {"slow": "skipped: not installed"}) == (
        "trial: a trial\n"
        "         killpool                 peer\n"
        "  calls  3,000 /s     1,000 /s (3.00x)\n"
        "  waits   2.00 ms  500.00 ms (250.00x)\n"
        "  slow: skipped: not installed\n"
    )


def test_numbers_are_shown_as_people_read_them() -> None:
    assert [
        shown(0.0000421, "s"),
        shown(3.1, "s"),
        shown(21.04, "s"),
        shown(20259.4, "/s"),
        shown(0.0, ""),
        shown(None, "s"),
    ] == [
        "42 µs",
        "3100.00 ms",
        "21.0 s",
        "20,259 /s",
        "0",
        "-",
    ]
    assert columns([]) == ""


def test_every_contest_names_its_own_metrics_and_contestants_in_its_goals() -> None:
    assert len(BY_NAME) == len(ALL)
    for one in ALL:
        names = {metric.name for metric in one.metrics}
        assert len(names) == len(one.metrics)
        assert [goal for goal in one.goals if goal.metric not in names or goal.contestant not in one.contestants] == []
        assert {goal.of for goal in one.goals} <= {"", *one.contestants}
        assert set(one.rare) <= set(one.contestants)
