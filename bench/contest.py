"""What a contest is: contestants that are measured in turn, metrics made of the samples, goals held against them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Samples = dict[str, list[float]]  # by metric key
OURS = "killpool"


class Skip(Exception):
    """This contestant cannot be measured here; the message says why."""


class Measure(Protocol):
    """Measures one contestant once."""

    def __call__(self, contestant: str, *, quick: bool) -> Samples:
        """Return samples by metric key; raise Skip if it cannot be done here."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table: a quantile of the samples `key`, in `unit`; seconds are shown in ms."""

    key: str
    label: str
    unit: str
    quantile: float = 0.5
    higher_is_better: bool = False

    @property
    def name(self) -> str:
        """The metric's name in the JSON file."""
        return f"{self.key} p{self.quantile * 100:g}"


@dataclass(frozen=True, slots=True)
class Goal:
    """What killpool should reach: `metric` at most (at least) `bound`, times the value of `of` if that is given."""

    metric: str
    bound: float
    at_least: bool = False
    of: str = ""
    contestant: str = OURS


@dataclass(frozen=True, slots=True)
class Contest:
    """A benchmark.  `repeats` how often each contestant is measured; `rare`: contestants measured once at most."""

    name: str
    title: str
    contestants: tuple[str, ...]
    metrics: tuple[Metric, ...]
    measure: Measure
    goals: tuple[Goal, ...] = ()
    repeats: int = 5
    rare: tuple[str, ...] = ()
    patience: float = 180.0  # seconds one measurement may take

    def turns(self, quick: bool) -> list[str]:
        """Return who is measured when: interleaved, and each round begins with another one."""
        rounds = 1 if quick else self.repeats
        order = []
        for number in range(rounds):
            shift = number % len(self.contestants)
            turn = self.contestants[shift:] + self.contestants[:shift]
            order += [who for who in turn if number == 0 or who not in self.rare]
        return order


def quantile(samples: Sequence[float], q: float) -> float:
    """Return the q-quantile by linear interpolation; NaN of nothing."""
    if not samples:
        return math.nan
    ordered = sorted(samples)
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def values(contest: Contest, samples: Mapping[str, Samples]) -> dict[str, dict[str, float]]:
    """Return, by contestant and metric name, the numbers of the table; what was not measured is not there."""
    return {
        who: {m.name: quantile(found[m.key], m.quantile) for m in contest.metrics if found.get(m.key)}
        for who, found in samples.items()
    }


def ratio(metric: Metric, ours: float | None, theirs: float | None) -> float | None:
    """Return how many times better we are than they, None if that cannot be said."""
    if ours is None or theirs is None:
        return None
    above, below = (ours, theirs) if metric.higher_is_better else (theirs, ours)
    return above / below if below > 0 else None


@dataclass(frozen=True, slots=True)
class Reached:
    """A goal and what came of it."""

    goal: Goal
    value: float
    bound: float
    is_met: bool


def judge(contest: Contest, numbers: Mapping[str, Mapping[str, float]]) -> list[Reached]:
    """Hold the numbers against the goals; a goal whose numbers are missing is left out."""
    reached = []
    for goal in contest.goals:
        value = numbers.get(goal.contestant, {}).get(goal.metric)
        base = numbers.get(goal.of, {}).get(goal.metric) if goal.of else 1.0
        if value is None or base is None:
            continue
        bound = goal.bound * base
        reached.append(Reached(goal, value, bound, value >= bound if goal.at_least else value <= bound))
    return reached


def timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds that `work` took by `clock`."""
    start = clock()
    work()
    return clock() - start
