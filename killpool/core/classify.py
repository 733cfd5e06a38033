"""Why did it die: evidence in, one named cause out.  Pure.

The order of judgement: it could not start; we killed it, for a reason that we wrote down first; the kernel's oom
counter rose; a signal that has a meaning of its own; another signal; it exited without a result; its result was no
frame; else it ran.  SIGKILL by itself proves nothing.
"""

from dataclasses import dataclass
from typing import Final, Literal

from killpool.outcome import Cause

# The exit code with which a worker's own machinery ends cleanly; os._exit(0) in a task is not that.
WORKER_CLEAN_EXIT: Final = 86

_SIGKILL, _SIGXCPU, _SIGXFSZ, _SIGSYS = 9, 24, 25, 31  # Linux numbers; all but MIPS and SPARC agree
_SIGNAL_CAUSES: Final = {_SIGXCPU: Cause.CPU_TIME, _SIGXFSZ: Cause.FILE_LIMIT, _SIGSYS: Cause.DENIED}

Phase = Literal["starting", "importing", "initializing", "idle", "running"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of an end.

    status: wait status as waitpid(2) gives it, None if it was never started.  intent: the reason that was written
    down before we sent SIGKILL.  step: the step of the start that failed, "" if none did.
    """

    status: int | None
    intent: Cause | None
    phase: Phase
    has_result: bool
    bad_frame: bool
    oom_kills: int
    step: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cause, the worker's own exit code or signal, and whether the SIGKILL was ours."""

    cause: Cause
    exitcode: int | None
    signal: int | None
    killed_by_us: bool


def classify(evidence: Evidence) -> Verdict:
    """Judge an end."""
    status = evidence.status
    if status is None:
        return Verdict(evidence.intent or (Cause.START_FAILED if evidence.step else Cause.INTERNAL), None, None, False)
    number = status & 0x7F
    signal = number or None
    exitcode = None if number else status >> 8
    ours = evidence.intent is not None and number == _SIGKILL
    return Verdict(_cause(evidence, signal, exitcode), exitcode, signal, ours)


def _cause(evidence: Evidence, signal: int | None, exitcode: int | None) -> Cause:
    if evidence.step:
        return Cause.START_FAILED
    if evidence.intent is not None:
        return evidence.intent
    if evidence.oom_kills > 0:
        return Cause.OOM
    if evidence.phase in ("starting", "importing", "initializing"):
        return Cause.START_FAILED
    if signal is not None:
        return _SIGNAL_CAUSES.get(signal, Cause.SIGNAL)
    if evidence.bad_frame:
        return Cause.PROTOCOL
    if evidence.has_result:
        return Cause.OK if exitcode in (0, WORKER_CLEAN_EXIT) else Cause.EXIT
    return Cause.NO_RESULT if exitcode == WORKER_CLEAN_EXIT else Cause.EXIT
