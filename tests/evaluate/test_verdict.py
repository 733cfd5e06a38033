"""From an outcome to HumanEval's words and a line of results."""

import json

import pytest

from killpool.errors import RemoteError, StartFailed
from killpool.evaluate.formats import Sample
from killpool.evaluate.verdict import MESSAGE_MAX, UNSCORED, is_expected, judge, record, tail
from killpool.outcome import Captured, Cause, LimitHit, Outcome, Usage

SAMPLE = Sample("t/0", "    pass", completion_id=2, line=7)


def remote(kind: str, message: str) -> RemoteError:
    return RemoteError(f"{kind}: {message}", type_name=kind, remote_message=message, traceback_text="")


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (Outcome(ok=True), "passed"),
        (Outcome(ok=False, cause=Cause.TIMEOUT), "timed out"),
        (Outcome(ok=False, cause=Cause.CPU_TIME), "timed out"),
        (Outcome(ok=False, cause=Cause.OOM), "failed: oom"),
        (Outcome(ok=False, cause=Cause.EXIT, exitcode=0), "failed: exit(0)"),
        (Outcome(ok=False, cause=Cause.SIGNAL, signal=11), "failed: signal(11)"),
        (
            Outcome(ok=False, cause=Cause.EXCEPTION, error=remote("ValueError", "no good")),
            "failed: exception: ValueError: no good",
        ),
        (
            Outcome(ok=False, cause=Cause.EXCEPTION, error=remote("AssertionError", "")),
            "failed: exception: AssertionError",
        ),
        (
            Outcome(ok=False, cause=Cause.START_FAILED, error=StartFailed("no memory")),
            "failed: start_failed: no memory",
        ),
    ],
)
def test_results_speak_humanevals_words(outcome: Outcome, result: str) -> None:
    verdict = judge(SAMPLE, outcome)
    assert (verdict.result, verdict.passed) == (result, result == "passed")


def test_every_cause_but_ok_is_no_pass() -> None:
    causes = [c for c in Cause if c is not Cause.OK]
    assert not any(judge(SAMPLE, Outcome(ok=False, cause=c)).passed for c in causes)


def test_what_was_our_own_fault_is_not_scored() -> None:
    unscored = {c for c in Cause if not judge(SAMPLE, Outcome(ok=c is Cause.OK, cause=c)).is_scored}
    assert unscored == UNSCORED
    assert {Cause.INTERNAL, Cause.START_FAILED, Cause.LOST} <= unscored


def test_a_killed_program_says_by_what_limit_and_how_fast() -> None:
    outcome = Outcome(
        ok=False,
        cause=Cause.TIMEOUT,
        limit=LimitHit("wall", "pool", 3.0),
        killed_by_us=True,
        signal=9,
        usage=Usage(wall=3.0012345678, user=2.5, system=0.25, peak_rss=9_000_000),
        kill_latency=0.0012345678,
        descendants_killed=4,
        stdout=Captured(b"hello", 5),
    )
    assert record(judge(SAMPLE, outcome)) == {
        "task_id": "t/0",
        "completion_id": 2,
        "passed": False,
        "result": "timed out",
        "cause": "timeout",
        "exit_code": None,
        "signal": 9,
        "wall": 3.001235,
        "cpu": 2.75,
        "peak_rss": 9_000_000,
        "survivors": 0,
        "descendants_killed": 4,
        "kill": {"reason": "timeout", "limit": {"name": "wall", "value": 3.0}, "latency_ms": 1.235},
        "attempt": 1,
        "grading": "in-process",
        "stdout": "hello",
        "stderr": "",
        "stdout_bytes": 5,
        "stderr_bytes": 0,
    }


def test_what_was_not_killed_by_us_has_no_kill() -> None:
    assert record(judge(SAMPLE, Outcome(ok=False, cause=Cause.SIGNAL, signal=9)))["kill"] is None


def test_a_hostile_message_is_bounded_and_still_json() -> None:
    outcome = Outcome(ok=False, cause=Cause.EXCEPTION, error=remote("E", "\ud800" * 100_000))
    verdict = judge(SAMPLE, outcome)
    assert len(verdict.result) <= MESSAGE_MAX + len("failed: exception: ")
    assert json.loads(json.dumps(record(verdict), ensure_ascii=False).encode())["result"] == verdict.result


def test_a_tail_is_the_last_4096_bytes_and_begins_with_a_whole_character() -> None:
    assert tail(Captured(b"a" * 5000 + b"b", 5001)) == "a" * 4095 + "b"
    assert tail(Captured("é".encode() * 3000 + b"b", 6001)) == "é" * 2047 + "b"
    assert tail(Captured(b"\xff\xfe", 2)) == "\\xff\\xfe"


@pytest.mark.parametrize(
    ("expect", "is_right"),
    [("exit", True), ("exit(25)", True), ("exit(2)", False), ("timeout|exit(25)", True), ("ok", False)],
)
def test_an_expectation_names_a_cause_with_or_without_its_number(expect: str, is_right: bool) -> None:
    verdict = judge(Sample("t/0", "", expect=expect), Outcome(ok=False, cause=Cause.EXIT, exitcode=25))
    assert is_expected(verdict) is is_right
