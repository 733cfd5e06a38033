"""The verdict on one sample: pure functions from an `Outcome` to HumanEval's words and to a line of results."""

from dataclasses import dataclass
from typing import Any

from killpool.errors import RemoteError
from killpool.evaluate.formats import Sample
from killpool.outcome import Captured, Cause, Outcome

TAIL_MAX = 4096  # bytes of each stream that a line of results keeps
MESSAGE_MAX = 300  # characters of a program's own error message in `result`

GRADING = "in-process"  # tests and program share a process: a pass can be forged

# The program was not judged: no fault of its own is known, so it is neither a pass nor a failure.
UNSCORED = frozenset({Cause.INTERNAL, Cause.START_FAILED, Cause.LOST, Cause.CANCELLED, Cause.EXPIRED})

_TIMED_OUT = frozenset({Cause.TIMEOUT, Cause.CPU_TIME})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one sample.

    `result` speaks HumanEval's words: "passed", "timed out" or "failed: ...".  `is_scored` is false where the program
    could not be judged (`UNSCORED`).  `outcome` is the whole story.
    """

    sample: Sample
    outcome: Outcome
    result: str

    @property
    def task_id(self) -> str:
        """The problem's name."""
        return self.sample.task_id

    @property
    def completion_id(self) -> int:
        """The sample's number within its problem, from 0."""
        return self.sample.completion_id

    @property
    def passed(self) -> bool:
        """Whether the program came to the end of its tests."""
        return self.outcome.ok

    @property
    def cause(self) -> Cause:
        """Why the program ended."""
        return self.outcome.cause

    @property
    def is_scored(self) -> bool:
        """Whether the sample counts in pass@k."""
        return self.cause not in UNSCORED

    @property
    def label(self) -> str:
        """The cause with its number: "exit(25)", "signal(11)", "timeout"."""
        return label(self.outcome)


def judge(sample: Sample, outcome: Outcome) -> Verdict:
    """Return the verdict on `sample`."""
    if outcome.ok:
        return Verdict(sample, outcome, "passed")
    if outcome.cause in _TIMED_OUT:
        return Verdict(sample, outcome, "timed out")
    said = _message(outcome)
    return Verdict(sample, outcome, f"failed: {label(outcome)}{': ' if said else ''}{said}")


def label(outcome: Outcome) -> str:
    """Return the cause's word, with the number of an exit or a signal."""
    if outcome.cause is Cause.EXIT and outcome.exitcode is not None:
        return f"exit({outcome.exitcode})"
    if outcome.cause is Cause.SIGNAL and outcome.signal is not None:
        return f"signal({outcome.signal})"
    return outcome.cause.value


def is_expected(verdict: Verdict) -> bool:
    """Say whether the sample's `expect` names this end, with or without its number."""
    return bool({verdict.label, verdict.cause.value} & set(verdict.sample.expect.split("|")))


def record(verdict: Verdict) -> dict[str, Any]:
    """Return the line of results: JSON data, seconds and bytes."""
    outcome = verdict.outcome
    return {
        "task_id": verdict.task_id,
        "completion_id": verdict.completion_id,
        "passed": verdict.passed,
        "result": verdict.result,
        "cause": verdict.cause.value,
        "exit_code": outcome.exitcode,
        "signal": outcome.signal,
        "wall": round(outcome.usage.wall, 6),
        "cpu": round(outcome.usage.cpu, 6),
        "peak_rss": outcome.usage.peak_rss,
        "survivors": outcome.survivors,
        "descendants_killed": outcome.descendants_killed,
        "kill": _kill(outcome),
        "attempt": outcome.attempts,
        "grading": GRADING,
        "stdout": tail(outcome.stdout),
        "stderr": tail(outcome.stderr),
        "stdout_bytes": outcome.stdout.total,
        "stderr_bytes": outcome.stderr.total,
    }


def tail(stream: Captured) -> str:
    """Return the last `TAIL_MAX` bytes of a stream as text that any JSON reader takes."""
    data = stream.data[-TAIL_MAX:]
    if len(data) < len(stream.data):
        start = next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)  # not amid a character
        data = data[start:]
    return data.decode("utf-8", "backslashreplace")


def _kill(outcome: Outcome) -> dict[str, Any] | None:
    if not outcome.killed_by_us:
        return None
    limit = outcome.limit
    return {
        "reason": outcome.cause.value,
        "limit": None if limit is None else {"name": limit.name, "value": limit.value},
        "latency_ms": None if outcome.kill_latency is None else round(outcome.kill_latency * 1000, 3),
    }


def _message(outcome: Outcome) -> str:
    """Return what the program's own exception said, or why it could not be judged; else nothing."""
    error = outcome.error
    if isinstance(error, RemoteError):
        text = f"{error.type_name}: {error.remote_message}" if error.remote_message else error.type_name
    elif outcome.cause in UNSCORED | {Cause.PROTOCOL, Cause.EXCEPTION} and error is not None:
        text = str(error)
    else:
        return ""
    clean = text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is no JSON text
    return clean if len(clean) <= MESSAGE_MAX else clean[: MESSAGE_MAX - 3] + "..."
