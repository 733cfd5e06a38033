"""The restart budget: one sliding window for a pool, and a backoff between failed starts."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from killpool.core.budget import GaveUp, Grant, RestartBudget

FAST = settings(max_examples=60, deadline=None)  # a busy machine is no failure


def budget(most: int = 3, within: float = 10.0, initial: float = 0.05, ceiling: float = 5.0) -> RestartBudget:
    """Return a budget; times are seconds."""
    return RestartBudget(most, within, initial, ceiling)


def idle_deaths(of: RestartBudget, *times: float) -> list[Grant | GaveUp]:
    """Charge a death at each time."""
    return [of.charge(now, failed_start=False) for now in times]


def failed_starts(of: RestartBudget, *times: float) -> list[Grant | GaveUp]:
    """Charge a failed start at each time."""
    return [of.charge(now) for now in times]


def test_one_failure_more_than_the_budget_gives_up_and_says_how_many_there_were() -> None:
    assert idle_deaths(budget(3), 0.0, 1.0, 2.0, 3.0) == [Grant(0.0), Grant(0.0), Grant(0.0), GaveUp(4)]


def test_a_budget_of_none_gives_up_at_the_first_failure() -> None:
    assert idle_deaths(budget(0), 5.0) == [GaveUp(1)]


def test_a_failure_older_than_the_period_is_forgotten() -> None:
    assert idle_deaths(budget(2, 10.0), 0.0, 5.0, 10.25, 15.5) == [Grant(0.0)] * 4


def test_a_failure_exactly_as_old_as_the_period_still_counts() -> None:
    assert idle_deaths(budget(2, 10.0), 0.0, 5.0, 10.0) == [Grant(0.0), Grant(0.0), GaveUp(3)]


def test_failures_at_one_instant_are_counted_one_by_one() -> None:
    assert idle_deaths(budget(2), 7.0, 7.0, 7.0) == [Grant(0.0), Grant(0.0), GaveUp(3)]


def test_what_has_given_up_does_not_come_back_however_long_one_waits() -> None:
    of = budget(1)
    assert idle_deaths(of, 0.0, 1.0) == [Grant(0.0), GaveUp(2)]
    of.healthy(2.0)
    assert idle_deaths(of, 1e6, 2e6) == [GaveUp(2), GaveUp(2)]
    assert failed_starts(of, 3e6) == [GaveUp(2)]


def test_living_a_little_longer_than_the_minimum_does_not_reset_the_window() -> None:
    of = budget(10, within=60.0)
    decisions: list[Grant | GaveUp] = []
    for life in range(20):
        of.healthy(life * 1.0)  # each start becomes ready and dies a moment later
        decisions += failed_starts(of, life * 1.0 + 0.9)
        if isinstance(decisions[-1], GaveUp):
            break
    assert decisions == [Grant(0.05)] * 10 + [GaveUp(11)]


def test_the_wait_doubles_with_each_failed_start_up_to_its_ceiling() -> None:
    assert failed_starts(budget(9, 1e9, 0.05, 1.0), *range(7)) == [
        Grant(0.05),
        Grant(0.1),
        Grant(0.2),
        Grant(0.4),
        Grant(0.8),
        Grant(1.0),
        Grant(1.0),
    ]


def test_a_start_that_became_ready_makes_the_next_wait_the_least_again() -> None:
    of = budget(9, 1e9)
    assert failed_starts(of, 0.0, 1.0, 2.0) == [Grant(0.05), Grant(0.1), Grant(0.2)]
    of.healthy(3.0)
    assert failed_starts(of, 4.0, 5.0) == [Grant(0.05), Grant(0.1)]


def test_a_death_while_idle_is_replaced_at_once_and_leaves_the_backoff_alone() -> None:
    of = budget(9, 1e9)
    assert failed_starts(of, 0.0, 1.0) == [Grant(0.05), Grant(0.1)]
    assert idle_deaths(of, 2.0, 3.0) == [Grant(0.0), Grant(0.0)]
    assert failed_starts(of, 4.0) == [Grant(0.2)]


def test_both_kinds_of_failure_share_one_window() -> None:
    of = budget(2)
    assert [of.charge(0.0), of.charge(0.0, failed_start=False), of.charge(0.0)] == [Grant(0.05), Grant(0.0), GaveUp(3)]


def test_thousands_of_failed_starts_do_not_overflow_the_wait() -> None:
    of = budget(10_000, 1e9)
    assert failed_starts(of, *map(float, range(5000)))[-1] == Grant(5.0)


@FAST
@given(
    gaps=st.lists(st.integers(0, 8), max_size=60),
    kinds=st.lists(st.booleans(), min_size=60, max_size=60),
    most=st.integers(0, 6),
    within=st.integers(1, 20),
)
def test_no_period_ever_holds_more_grants_than_the_budget(
    gaps: list[int], kinds: list[bool], most: int, within: int
) -> None:
    of = budget(most, float(within))
    granted: list[float] = []
    now = 0.0
    for gap, failed_start in zip(gaps, kinds, strict=False):
        now += gap
        in_window = sum(1 for at in granted if now - at <= within)
        decision = of.charge(now, failed_start)
        if isinstance(decision, GaveUp):
            assert decision == GaveUp(most + 1)
            assert in_window == most
            return
        granted.append(now)
        assert in_window < most
        assert 0.0 <= decision.delay <= 5.0


@FAST
@given(count=st.integers(2, 80), initial=st.floats(0.001, 1.0), factor=st.floats(1.0, 1000.0))
def test_waits_never_shrink_and_never_exceed_their_ceiling(count: int, initial: float, factor: float) -> None:
    of = budget(100, 1e9, initial, initial * factor)
    delays = [grant.delay for grant in failed_starts(of, *map(float, range(count))) if isinstance(grant, Grant)]
    assert len(delays) == count
    assert delays[0] == initial
    assert all(a <= b <= min(2 * a, initial * factor) for a, b in pairwise(delays))
