"""Specs are checked when they are built: human strings, bounds, and refusals that name field and value."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from killpool.errors import SpecError
from killpool.spec import (
    MAX_TIMEOUT,
    Limits,
    RestartPolicy,
    check_choice,
    check_count,
    check_timeout,
    parse_duration,
    parse_size,
)

K, M, G, T = 1024, 1024**2, 1024**3, 1024**4
NAN, INF = float("nan"), float("inf")

FAST = settings(max_examples=60, deadline=None)  # a busy machine is no failure
TEXTS = st.text("0123456789٣.,-+_ kKmMgGtTbBisdhex\n\0", max_size=12)


def refusal(build: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """Return what the SpecError says that `build` raises."""
    with pytest.raises(SpecError) as caught:
        build(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("512", 512), ("1k", K), ("512M", 512 * M), ("512m", 512 * M), ("2G", 2 * G), ("1T", T),
     ("64KiB", 64 * K), ("64kb", 64 * K), ("1.5G", 3 * G // 2), ("0.5k", 512), (" 10 M ", 10 * M),
     ("7B", 7), ("3 GiB", 3 * G)],
)  # fmt: skip
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size("memory", text) == size
    assert Limits(memory=text, file_size=text, output=text) == Limits(memory=size, file_size=size, output=size)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3.0), ("0.5", 0.5), ("500ms", 0.5), ("30s", 30.0), ("2m", 120.0), ("1.5h", 5400.0), ("1d", 86_400.0),
     (" 2 m ", 120.0)],
)  # fmt: skip
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration("wall", text) == seconds
    assert Limits(wall=text, cpu=text) == Limits(wall=seconds, cpu=seconds)


@pytest.mark.parametrize(
    "text", ["", "M", "-1", "-1M", "1e3", "1X", "1 2", "0x10", "1,5G", "1.M", ".5G", "∞", "nan", "5MM"]
)
def test_what_is_no_size_is_refused_with_its_name_and_value(text: str) -> None:
    said = refusal(Limits, memory=text)
    assert said == f'limits.memory must be bytes or a size such as "512M", got {text!r}'


@pytest.mark.parametrize("text", ["", "s", "-1", "-1s", "1e3", "1w", "1 2", "1:30", "2M", "5S", "nan", "inf", "1.s"])
def test_what_is_no_duration_is_refused_with_its_name_and_value(text: str) -> None:
    said = refusal(Limits, cpu=text)
    assert said == f'limits.cpu must be seconds or a duration such as "2m", got {text!r}'


@pytest.mark.parametrize("value", [-1, 0, -0.0, NAN, INF, -INF, MAX_TIMEOUT * 1.01, 1e300])
def test_a_timeout_that_no_clock_can_keep_is_refused(value: float) -> None:
    assert refusal(check_timeout, "timeout", value) == (
        f"timeout must be above 0 and at most 31622400 seconds, got {value!r}"
    )


@pytest.mark.parametrize("value", ["5", True, False, None, [1], 1j, b"5"])
def test_a_timeout_that_is_no_number_is_refused(value: object) -> None:
    assert refusal(check_timeout, "timeout", value) == f"timeout must be a number of seconds, got {value!r}"


def test_a_timeout_comes_back_as_float_seconds() -> None:
    seconds = check_timeout("timeout", 3)
    assert (seconds, type(seconds)) == (3.0, float)
    assert check_timeout("timeout", MAX_TIMEOUT) == MAX_TIMEOUT


def test_an_int_that_no_float_holds_is_refused_as_any_other_timeout() -> None:
    refusal(check_timeout, "timeout", 10**400)


def test_a_size_of_hundreds_of_digits_is_refused_as_any_other() -> None:
    refusal(parse_size, "memory", "9" * 400)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "3", None, 1_000_001])
def test_a_count_out_of_bounds_is_refused(value: object) -> None:
    assert refusal(check_count, "spares", value) == f"spares must be a whole number from 1 to 1000000, got {value!r}"


def test_a_count_may_be_either_of_its_bounds() -> None:
    assert [check_count("n", value, 2, 5) for value in (2, 3, 5)] == [2, 3, 5]
    assert refusal(check_count, "n", 6, 2, 5) == "n must be a whole number from 2 to 5, got 6"


@pytest.mark.parametrize("value", ["c", "", None, 1, True, ["a"]])
def test_a_choice_that_is_none_of_the_words_is_refused_with_the_list_of_them(value: object) -> None:
    assert refusal(check_choice, "contain", value, ("a", "b")) == f"contain must be one of 'a', 'b', got {value!r}"
    assert check_choice("contain", "b", ("a", "b")) == "b"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("wall", 0, "limits.wall must be above 0 and at most 31622400 seconds, got 0"),
        ("wall", True, "limits.wall must be a number of seconds, got True"),
        ("cpu", NAN, "limits.cpu must be above 0 and at most 31622400 seconds, got nan"),
        ("cpu", "0s", "limits.cpu must be above 0 and at most 31622400 seconds, got 0.0"),
        ("memory", 0, f"limits.memory must be a whole number from 1 to {2**62}, got 0"),
        ("memory", 1.5, f"limits.memory must be a whole number from 1 to {2**62}, got 1.5"),
        ("processes", 0, "limits.processes must be a whole number from 1 to 4000000, got 0"),
        ("processes", "3", "limits.processes must be a whole number from 1 to 4000000, got '3'"),
        ("open_files", 15, "limits.open_files must be a whole number from 16 to 1000000, got 15"),
        ("file_size", -1, f"limits.file_size must be a whole number from 1 to {2**62}, got -1"),
        ("output", True, f"limits.output must be a whole number from 1 to {2**62}, got True"),
    ],
)
def test_a_limit_out_of_bounds_is_refused_with_field_and_value(field: str, value: object, said: str) -> None:
    assert refusal(Limits, **{field: value}) == said


def test_limits_are_unlimited_by_default_and_cannot_be_changed() -> None:
    limits = Limits()
    assert limits == Limits(None, None, None, None, None, None, None)
    with pytest.raises(AttributeError):
        limits.wall = 1.0  # type: ignore[misc]


def test_a_calls_own_limits_go_before_the_pools() -> None:
    base = Limits(wall=10, cpu=5, memory="1G", output="1M")
    own = Limits(cpu=1, processes=4)
    assert own.over(base) == Limits(wall=10, cpu=1, memory="1G", processes=4, output="1M")
    assert Limits().over(base) == base
    assert base.over(Limits()) == base


def test_the_supervisor_is_told_only_what_it_keeps() -> None:
    limits = Limits(wall=1, cpu=2, memory=3, processes=4, open_files=16, file_size=6, output=7)
    assert limits.supervised() == {"cpu": 2.0, "memory": 3, "processes": 4, "output": 7}
    assert Limits(wall=1, open_files=16).supervised() == {}


def test_only_counters_of_the_tree_are_sampled() -> None:
    fields: dict[str, Any] = {
        "wall": 1, "cpu": 2, "memory": 3, "processes": 4, "open_files": 16, "file_size": 6, "output": 7,
    }  # fmt: skip
    assert {name for name, value in fields.items() if Limits(**{name: value}).is_sampled()} == {
        "cpu",
        "memory",
        "processes",
    }


def test_limits_and_policies_pickle() -> None:
    specs = [Limits(wall="2m", memory="512M"), RestartPolicy(3, 5.0), Limits()]
    assert pickle.loads(pickle.dumps(specs)) == specs


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_restarts": -1}, "restart.max_restarts must be a whole number from 0 to 1000000, got -1"),
        ({"max_restarts": True}, "restart.max_restarts must be a whole number from 0 to 1000000, got True"),
        ({"within": 0}, "restart.within must be above 0 and at most 31622400 seconds, got 0"),
        ({"within": INF}, "restart.within must be above 0 and at most 31622400 seconds, got inf"),
        ({"initial_backoff": "1s"}, "restart.initial_backoff must be a number of seconds, got '1s'"),
        ({"max_backoff": -5}, "restart.max_backoff must be above 0 and at most 31622400 seconds, got -5"),
        ({"max_backoff": 0.01}, "restart.max_backoff must be at least initial_backoff (0.05), got 0.01"),
    ],
)
def test_a_restart_policy_that_cannot_be_is_refused_with_field_and_value(fields: dict[str, Any], said: str) -> None:
    assert refusal(RestartPolicy, **fields) == said


def test_the_default_policy_stands_ten_restarts_a_minute() -> None:
    assert RestartPolicy() == RestartPolicy(max_restarts=10, within=60.0, initial_backoff=0.05, max_backoff=5.0)
    assert RestartPolicy(max_restarts=0).max_restarts == 0


@FAST
@given(st.integers(1, 4000), st.sampled_from([("", 1), ("k", K), ("M", M), ("G", G), ("KiB", K), ("mb", M)]))
def test_a_size_with_a_unit_is_the_number_times_the_unit(number: int, unit: tuple[str, int]) -> None:
    assert parse_size("memory", f"{number}{unit[0]}") == number * unit[1]


def answer(parse: Callable[[str, object], float], value: object) -> float | str:
    """Return what `parse` makes of the value, or what its SpecError says."""
    try:
        return parse("field", value)
    except SpecError as error:
        return str(error)


@FAST
@given(TEXTS)
def test_any_text_is_a_size_or_is_refused(text: str) -> None:
    said = answer(parse_size, text)
    assert said.startswith("field must be ") if isinstance(said, str) else 1 <= said <= 2**62


@FAST
@given(st.one_of(TEXTS, st.floats(), st.integers(-(2**70), 2**70), st.booleans(), st.none()))
def test_anything_is_a_duration_or_is_refused(value: object) -> None:
    said = answer(parse_duration, value)
    assert said.startswith("field must be ") if isinstance(said, str) else 0.0 < said <= MAX_TIMEOUT
