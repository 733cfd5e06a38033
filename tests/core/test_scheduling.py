"""The waiting line and the depth of a worker's window."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from killpool.core.scheduling import LOOK_AHEAD, Depth, Line

FAST = settings(max_examples=60, deadline=None)  # a busy machine is no failure


@dataclass(eq=False)
class Call:
    """As much of a call as the line knows."""

    order: int
    priority: int = 0
    expires: float | None = None
    is_waiting: bool = field(default=False, repr=False)


def line_of(*calls: Call) -> Line[Call]:
    """Return a line with these calls pushed."""
    line: Line[Call] = Line()
    for call in calls:
        line.push(call)
    return line


def drain(line: Line[Call]) -> list[int]:
    """Take all calls; return their orders."""
    taken = []
    while (call := line.pop()) is not None:
        taken.append(call.order)
    return taken


def test_an_empty_line_has_nothing_to_give() -> None:
    line = line_of()
    assert (line.peek(), line.pop(), len(line), bool(line), line.with_expiry()) == (None, None, 0, False, [])


def test_calls_of_one_priority_leave_in_their_order() -> None:
    assert drain(line_of(*(Call(order) for order in range(5)))) == [0, 1, 2, 3, 4]


def test_a_higher_priority_goes_first_and_a_negative_one_last() -> None:
    assert drain(line_of(Call(0), Call(1, -3), Call(2, 7), Call(3), Call(4, 7))) == [2, 4, 0, 3, 1]


def test_a_call_that_is_handed_back_keeps_its_place() -> None:
    first = Call(0)
    line = line_of(first, Call(1), Call(2))
    assert line.pop() is first
    line.push(Call(3))
    line.push(first)
    assert drain(line) == [0, 1, 2, 3]


def test_peek_takes_nothing() -> None:
    call = Call(0)
    line = line_of(call)
    assert (line.peek(), line.peek(), len(line), call.is_waiting) == (call, call, 1, True)


def test_a_removed_call_is_passed_over_and_no_longer_counted() -> None:
    calls = [Call(order) for order in range(4)]
    line = line_of(*calls)
    line.remove(calls[0])
    line.remove(calls[2])
    assert (len(line), calls[0].is_waiting, line.peek()) == (2, False, calls[1])
    assert drain(line) == [1, 3]


def test_a_removed_call_that_is_pushed_again_comes_out_once() -> None:
    call = Call(0)
    line = line_of(call)
    line.remove(call)
    line.push(call)
    assert len(line) == 1
    assert drain(line) == [0]
    assert (len(line), bool(line)) == (0, False)


def test_removing_twice_or_what_was_taken_changes_nothing() -> None:
    taken, removed, last = (Call(order) for order in range(3))
    line = line_of(taken, removed, last)
    line.pop()
    for _ in range(2):
        line.remove(taken)
        line.remove(removed)
    assert (len(line), drain(line)) == (1, [2])


def test_only_waiting_calls_with_an_expiry_are_listed_as_such() -> None:
    never, soon, gone, taken = Call(1), Call(2, expires=5.0), Call(3, expires=6.0), Call(0, expires=7.0)
    line = line_of(never, soon, gone, taken)
    assert sorted(call.order for call in line.with_expiry()) == [0, 2, 3]
    assert line.pop() is taken
    line.remove(gone)
    assert line.with_expiry() == [soon]


def test_the_list_of_expiring_calls_may_be_removed_from_while_it_is_read() -> None:
    line = line_of(*(Call(order, expires=1.0) for order in range(9)))
    for call in line.with_expiry():
        line.remove(call)
    assert (len(line), line.with_expiry(), line.pop()) == (0, [], None)


_ACTIONS = st.lists(st.tuples(st.sampled_from(["push", "pop", "peek", "remove"]), st.integers(0, 11)), max_size=60)


@FAST
@given(actions=_ACTIONS, priorities=st.lists(st.integers(-2, 2), min_size=12, max_size=12))
def test_a_line_behaves_as_a_sorted_list(actions: list[tuple[str, int]], priorities: list[int]) -> None:
    calls = [Call(order, priority, None if order % 3 else 1.0) for order, priority in enumerate(priorities)]
    line: Line[Call] = Line()
    model: list[Call] = []
    for action, which in actions:
        call = calls[which]
        if action == "push" and call not in model:
            line.push(call)
            model.append(call)
            model.sort(key=lambda c: (-c.priority, c.order))
        elif action == "pop":
            assert line.pop() is (model.pop(0) if model else None)
        elif action == "peek":
            assert line.peek() is (model[0] if model else None)
        elif action == "remove":
            line.remove(call)
            model = [c for c in model if c is not call]
        assert (len(line), bool(line)) == (len(model), bool(model))
        assert set(line.with_expiry()) == {c for c in model if c.expires is not None}
        assert [c.is_waiting for c in calls] == [c in model for c in calls]


def depth_after(*seconds: float, most: int = 64) -> int:
    """Return the depth once calls took so long."""
    depth = Depth(most)
    for each in seconds:
        depth.observe(each)
    return depth.now()


def test_nothing_is_queued_inside_a_worker_before_a_call_has_finished() -> None:
    assert Depth(64).now() == 1


def test_as_many_calls_are_queued_as_the_look_ahead_holds() -> None:
    assert [depth_after(LOOK_AHEAD / n) for n in (0.5, 1, 2.5, 10.5)] == [1, 1, 2, 10]


def test_the_window_bounds_the_depth_of_tiny_calls() -> None:
    assert [depth_after(0.0), depth_after(1e-9), depth_after(0.0, most=5)] == [64, 64, 5]


def test_nothing_waits_behind_long_calls() -> None:
    assert [depth_after(0.1), depth_after(3600.0)] == [1, 1]


def test_one_long_call_makes_the_window_of_tiny_ones_shallow_at_once() -> None:
    assert depth_after(*[1e-5] * 100) == 64
    assert depth_after(*[1e-5] * 100, 1.0) == 1


def test_the_mean_follows_the_newest_eighth() -> None:
    depth = Depth(64)
    depth.observe(1.0)
    depth.observe(2.0)
    assert depth.mean == 1.125


@FAST
@given(st.lists(st.floats(0.0, 1e4), max_size=30), st.integers(1, 64))
def test_the_depth_is_always_at_least_one_and_within_the_window(seconds: list[float], most: int) -> None:
    assert 1 <= depth_after(*seconds, most=most) <= most


@FAST
@given(st.floats(1e-7, 10.0), st.floats(1e-7, 10.0))
def test_longer_calls_never_make_a_deeper_window(one: float, other: float) -> None:
    assert depth_after(max(one, other)) <= depth_after(min(one, other))
