"""The words a caller describes work with: `Limits`, `RestartPolicy`, and every named bound with its default.

All are frozen and checked when built: an illegal spec cannot exist.  Sizes are bytes (int), times are seconds
(float); human strings such as "512M" and "2m" are accepted and converted here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from killpool.faults import SpecError

Contain = Literal["auto", "cgroup", "pidns", "walk"]
Isolation = Literal["worker", "process"]
Strategy = Literal["one_for_one", "one_for_all"]

# Every limit of the machinery has a name and a default here.
MAX_TIMEOUT = 366 * 86_400.0  # seconds; deadlines are kept as int64 nanoseconds, and a longer one is surely a slip
START_TIMEOUT = 60.0  # seconds a worker may take to be ready: fork, preload, initializer, a function's first import
INLINE_MAX = 64 * 1024  # bytes; larger values cross as a sealed memfd
WINDOW = 64  # calls that may be in flight to one worker
RING_SIZE = 256 * 1024  # bytes of a worker's result ring
CAPTURE_MAX = 64 * 1024  # bytes kept of each captured stream: the first half and the last half
STACK_MAX = 64 * 1024  # bytes kept of the stack text
STACK_WAIT = 0.003  # seconds to wait for the stack text at a deadline
STOP_WAIT = 0.005  # seconds to wait for SIGSTOP to take; a process in D state does not stop
EMPTY_WAIT = 2.0  # seconds to wait for the proof that a tree is gone before survivors are reported
STALL_TIMEOUT = 30.0  # seconds in which an idle worker must begin a call that it was sent
CONTROL_FRAME_MAX = 16 * 1024 * 1024  # bytes of one frame on the control socket
UNTRUSTED_RESULT_MAX = 1024 * 1024  # bytes of a JSON result from an untrusted task

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*$", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_TIME = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*$")
_TIME_UNITS = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def check_timeout(name: str, value: object) -> float:
    """Return `value` as seconds; SpecError unless it is a real number, above 0 and at most `MAX_TIMEOUT`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SpecError(f"{name} must be a number of seconds, got {value!r}")
    if not 0 < value <= MAX_TIMEOUT:  # compared before float(): an int may be too large for one; NaN is never between
        raise SpecError(f"{name} must be above 0 and at most {MAX_TIMEOUT:.0f} seconds, got {value!r:.40}")
    return float(value)


def check_count(name: str, value: object, least: int = 1, most: int = 1_000_000) -> int:
    """Return `value` if it is an int in [least, most]; SpecError names the field otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SpecError(f"{name} must be a whole number from {least} to {most}, got {value!r:.40}")
    return value


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`; SpecError lists them otherwise."""
    if not isinstance(value, str) or value not in choices:
        raise SpecError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def parse_size(name: str, value: object) -> int:
    """Return bytes from an int or a string such as "512M" (1024-based); SpecError otherwise."""
    if isinstance(value, str):
        match = _SIZE.match(value)
        if match is None:
            raise SpecError(f'{name} must be bytes or a size such as "512M", got {value!r}')
        number, unit = match[1], _SIZE_UNITS[match[2].lower()]
        value = int(number) * unit if number.isdigit() and len(number) < 20 else _scaled(name, number, unit)
    return check_count(name, value, 1, 2**62)


def _scaled(name: str, number: str, unit: int) -> int:
    size = float(number) * unit
    if size > 2**62:
        raise SpecError(f"{name} must be at most {2**62} bytes, got {number[:40]!r}")
    return int(size)


def parse_duration(name: str, value: object) -> float:
    """Return seconds from a number or a string such as "500ms", "30s", "2m", "1h"; SpecError otherwise."""
    if isinstance(value, str):
        match = _TIME.match(value)
        if match is None:
            raise SpecError(f'{name} must be seconds or a duration such as "2m", got {value!r}')
        value = float(match[1]) * _TIME_UNITS[match[2]]
    return check_timeout(name, value)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call and its whole process tree may use; None leaves a thing unlimited.

    wall, cpu: seconds (cpu counts user + system of the tree).  memory: bytes resident in the tree.  processes:
    processes of the tree, the worker included.  open_files: descriptors (RLIMIT_NOFILE).  file_size: bytes of any
    one file written (RLIMIT_FSIZE).  output: bytes of stdout and of stderr, each; one byte more kills.
    Strings such as "2m" and "512M" are accepted.
    """

    wall: float | None = None
    cpu: float | None = None
    memory: int | None = None
    processes: int | None = None
    open_files: int | None = None
    file_size: int | None = None
    output: int | None = None

    def __init__(
        self,
        wall: float | str | None = None,
        cpu: float | str | None = None,
        memory: int | str | None = None,
        processes: int | None = None,
        open_files: int | None = None,
        file_size: int | str | None = None,
        output: int | str | None = None,
    ) -> None:
        def given(name: str, parse: Callable[..., Any], value: object, *bounds: int) -> None:
            object.__setattr__(self, name, None if value is None else parse(f"limits.{name}", value, *bounds))

        given("wall", parse_duration, wall)
        given("cpu", parse_duration, cpu)
        given("memory", parse_size, memory)
        given("processes", check_count, processes, 1, 4_000_000)
        given("open_files", check_count, open_files, 16, 1_000_000)
        given("file_size", parse_size, file_size)
        given("output", parse_size, output)

    def over(self, base: "Limits") -> "Limits":
        """Return these limits with what is None here taken from `base`."""
        mine = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(base, **mine)

    def supervised(self) -> dict[str, float]:
        """Return, by name, the limits that are set and that the supervisor keeps."""
        names = ("cpu", "memory", "processes", "output")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def is_sampled(self) -> bool:
        """Say whether the supervisor has to watch the tree's counters while a call runs."""
        return any(x is not None for x in (self.cpu, self.memory, self.processes))


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How many failed starts and idle deaths of workers a pool stands, and how it waits between failed starts.

    At most `max_restarts` in any `within` seconds (OTP's intensity and period: exactly `within` old still
    counts); one more and the pool is broken.  The n-th failed start in a row waits
    min(initial_backoff * 2**(n-1), max_backoff) seconds.
    """

    max_restarts: int = 10
    within: float = 60.0
    initial_backoff: float = 0.05
    max_backoff: float = 5.0

    def __post_init__(self) -> None:
        check_count("restart.max_restarts", self.max_restarts, 0)
        check_timeout("restart.within", self.within)
        check_timeout("restart.initial_backoff", self.initial_backoff)
        check_timeout("restart.max_backoff", self.max_backoff)
        if self.max_backoff < self.initial_backoff:
            raise SpecError(
                f"restart.max_backoff must be at least initial_backoff ({self.initial_backoff:g}), "
                f"got {self.max_backoff:g}"
            )
