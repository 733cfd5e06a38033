"""Evidence in, one cause out: the order of judgement as a table, held against every combination there is."""

import itertools
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

import pytest

from killpool.core.classify import WORKER_CLEAN_EXIT, Evidence, Phase, Verdict, classify
from killpool.outcome import Cause

SIGKILL, SIGSEGV, SIGTERM, SIGXCPU, SIGXFSZ, SIGSYS = 9, 11, 15, 24, 25, 31
CORE_DUMPED = 0x80
RUNNING = Evidence(0, None, "running", has_result=False, bad_frame=False, oom_kills=0, step="")


def exited(code: int) -> int:
    """Return the wait status of an exit."""
    return code << 8


STATUSES = (
    None,
    *map(exited, (0, 1, 3, WORKER_CLEAN_EXIT, 255)),
    *(SIGKILL, SIGSEGV, SIGTERM, SIGXCPU, SIGXFSZ, SIGSYS, SIGSEGV | CORE_DUMPED, SIGSYS | CORE_DUMPED, 64),
)
INTENTS = (None, *Cause)
STEPS = ("", "fork")

ANY = object()


@dataclass(frozen=True)
class Row:
    """What must be true of the evidence (`ANY`: no matter what), and the cause then; None stands for the intent."""

    cause: Cause | None
    end: Any = ANY
    step: Any = ANY
    intent: Any = ANY
    oom: Any = ANY
    early: Any = ANY
    bad: Any = ANY
    result: Any = ANY

    def fits(self, facts: dict[str, Any]) -> bool:
        """Say whether the row is about this evidence."""
        wanted = {name: getattr(self, name) for name in facts}
        return all(value is ANY or facts[name] in value for name, value in wanted.items())


SIGNALS = ("signal", "xcpu", "xfsz", "sys")
EXITS = ("exit 0", "exit clean", "exit other")
YES, NO = (True,), (False,)
# Once it was started, without a failed step, without an intent, without an oom kill, past its start:
LATE: dict[str, Any] = {"step": NO, "intent": NO, "oom": NO, "early": NO}

TABLE = (
    Row(None, end=("never",), intent=YES),
    Row(Cause.START_FAILED, end=("never",), intent=NO, step=YES),
    Row(Cause.INTERNAL, end=("never",), intent=NO, step=NO),
    Row(Cause.START_FAILED, end=SIGNALS + EXITS, step=YES),
    Row(None, end=SIGNALS + EXITS, step=NO, intent=YES),
    Row(Cause.OOM, end=SIGNALS + EXITS, step=NO, intent=NO, oom=YES),
    Row(Cause.START_FAILED, end=SIGNALS + EXITS, step=NO, intent=NO, oom=NO, early=YES),
    Row(Cause.CPU_TIME, end=("xcpu",), **LATE),
    Row(Cause.FILE_LIMIT, end=("xfsz",), **LATE),
    Row(Cause.DENIED, end=("sys",), **LATE),
    Row(Cause.SIGNAL, end=("signal",), **LATE),
    Row(Cause.PROTOCOL, end=EXITS, bad=YES, **LATE),
    Row(Cause.OK, end=("exit 0", "exit clean"), bad=NO, result=YES, **LATE),
    Row(Cause.EXIT, end=("exit other",), bad=NO, **LATE),
    Row(Cause.NO_RESULT, end=("exit clean",), bad=NO, result=NO, **LATE),
    Row(Cause.EXIT, end=("exit 0",), bad=NO, result=NO, **LATE),
)


def facts_of(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence in the table's words."""
    return {
        "end": end_of(evidence.status),
        "step": evidence.step != "",
        "intent": evidence.intent is not None,
        "oom": evidence.oom_kills > 0,
        "early": evidence.phase in ("starting", "importing", "initializing"),
        "bad": evidence.bad_frame,
        "result": evidence.has_result,
    }


def end_of(status: int | None) -> str:
    """Return how it ended, in the table's words."""
    if status is None:
        return "never"
    if status & 0x7F:
        return {SIGXCPU: "xcpu", SIGXFSZ: "xfsz", SIGSYS: "sys"}.get(status & 0x7F, "signal")
    return {exited(0): "exit 0", exited(WORKER_CLEAN_EXIT): "exit clean"}.get(status, "exit other")


@cache
def every_evidence() -> list[Evidence]:
    """Return all combinations."""
    both = (False, True)
    return [
        Evidence(*values) for values in itertools.product(STATUSES, INTENTS, get_args(Phase), both, both, (0, 7), STEPS)
    ]


def test_every_combination_of_evidence_has_exactly_one_cause_and_it_is_the_tables() -> None:
    rows: dict[tuple[Any, ...], list[Row]] = {}
    wrong = []
    for evidence in every_evidence():
        facts = facts_of(evidence)
        key = tuple(facts.values())
        if key not in rows:
            rows[key] = [row for row in TABLE if row.fits(facts)]
        fitting = rows[key]
        cause = classify(evidence).cause
        if len(fitting) != 1 or cause is not (fitting[0].cause or evidence.intent):
            wrong.append((evidence, fitting, cause))
    assert wrong[:3] == []
    assert {row for fitting in rows.values() for row in fitting} == set(TABLE)


def test_a_status_becomes_an_exit_code_or_a_signal_and_never_both() -> None:
    seen = {}
    for status in STATUSES:
        verdict = classify(replace(RUNNING, status=status))
        seen[status] = (verdict.exitcode, verdict.signal)
    assert seen == {
        None: (None, None),
        exited(0): (0, None),
        exited(1): (1, None),
        exited(3): (3, None),
        exited(WORKER_CLEAN_EXIT): (WORKER_CLEAN_EXIT, None),
        exited(255): (255, None),
        SIGKILL: (None, SIGKILL),
        SIGSEGV: (None, SIGSEGV),
        SIGTERM: (None, SIGTERM),
        SIGXCPU: (None, SIGXCPU),
        SIGXFSZ: (None, SIGXFSZ),
        SIGSYS: (None, SIGSYS),
        SIGSEGV | CORE_DUMPED: (None, SIGSEGV),
        SIGSYS | CORE_DUMPED: (None, SIGSYS),
        64: (None, 64),
    }


def test_it_is_killed_by_us_exactly_when_a_written_intent_meets_sigkill() -> None:
    for evidence in every_evidence():
        ours = evidence.intent is not None and evidence.status == SIGKILL
        assert classify(evidence).killed_by_us is ours


def test_sigkill_by_itself_proves_nothing() -> None:
    assert classify(replace(RUNNING, status=SIGKILL)) == Verdict(Cause.SIGNAL, None, SIGKILL, killed_by_us=False)


def test_sigkill_after_a_written_intent_is_that_intent() -> None:
    evidence = replace(RUNNING, status=SIGKILL, intent=Cause.TIMEOUT)
    assert classify(evidence) == Verdict(Cause.TIMEOUT, None, SIGKILL, killed_by_us=True)


def test_a_call_that_dies_by_itself_after_the_intent_was_written_was_not_killed_by_us() -> None:
    evidence = replace(RUNNING, status=SIGSEGV, intent=Cause.TIMEOUT)
    assert classify(evidence) == Verdict(Cause.TIMEOUT, None, SIGSEGV, killed_by_us=False)


def test_the_kernels_oom_counter_tells_a_sigkill_apart() -> None:
    evidence = replace(RUNNING, status=SIGKILL, oom_kills=1)
    assert classify(evidence) == Verdict(Cause.OOM, None, SIGKILL, killed_by_us=False)


def test_os_exit_0_is_an_exit_and_no_success() -> None:
    assert classify(replace(RUNNING, status=exited(0))) == Verdict(Cause.EXIT, 0, None, killed_by_us=False)


def test_a_clean_end_of_the_machinery_without_a_result_is_no_result() -> None:
    evidence = replace(RUNNING, status=exited(WORKER_CLEAN_EXIT))
    assert classify(evidence) == Verdict(Cause.NO_RESULT, WORKER_CLEAN_EXIT, None, killed_by_us=False)


def test_a_result_followed_by_a_bad_exit_is_that_exit() -> None:
    evidence = replace(RUNNING, status=exited(3), has_result=True)
    assert classify(evidence) == Verdict(Cause.EXIT, 3, None, killed_by_us=False)


def test_a_crash_while_the_worker_is_prepared_is_a_failed_start() -> None:
    for phase in ("starting", "importing", "initializing"):
        evidence = replace(RUNNING, status=SIGSEGV, phase=phase)
        assert classify(evidence) == Verdict(Cause.START_FAILED, None, SIGSEGV, killed_by_us=False)


def test_evidence_cannot_be_changed_after_the_fact() -> None:
    with pytest.raises(AttributeError):
        RUNNING.intent = Cause.OK  # type: ignore[misc]
