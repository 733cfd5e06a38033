"""From a record or a death to an `Outcome`: the host's side of the judgement.  No I/O, no locks."""

import pickle
import time
from typing import Any, NamedTuple

from killpool.core import wire
from killpool.core.classify import Evidence, Phase, classify
from killpool.errors import (
    LimitExceeded,
    RemoteError,
    StartFailed,
    TaskCancelled,
    TaskError,
    TaskExpired,
    TaskTimeout,
    WorkerLost,
)
from killpool.host.call import Call
from killpool.outcome import Captured, Cause, LimitHit, Outcome, Usage

_NS = 1e9
_LIMIT_CAUSES = (Cause.CPU_TIME, Cause.OOM, Cause.OUTPUT_LIMIT, Cause.FILE_LIMIT, Cause.PROCESS_LIMIT)
_WORDS = {
    Cause.TIMEOUT: "was killed at its deadline",
    Cause.CPU_TIME: "used up its CPU time",
    Cause.OOM: "used more memory than it may",
    Cause.OUTPUT_LIMIT: "printed more than it may",
    Cause.FILE_LIMIT: "wrote a larger file than it may",
    Cause.PROCESS_LIMIT: "started more processes than it may",
    Cause.CANCELLED: "was cancelled",
    Cause.EXPIRED: "waited in the queue for longer than it may and was never started",
    Cause.NO_RESULT: "ended without a result",
    Cause.PROTOCOL: "sent something that is not a result",
    Cause.DENIED: "made a system call that is not allowed",
    Cause.SILENT: "was given to a worker that did not begin it",
    Cause.START_FAILED: "could not be started",
    Cause.LOST: "was lost: its supervisor ended",
    Cause.INTERNAL: "was lost to a fault of killpool's own",
}


class RemoteTraceback(Exception):
    """The cause of a rebuilt exception: the traceback as it was in the worker."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class Record(NamedTuple):
    """A committed result: the RECORD header's fields, per-call CPU seconds, and the bytes."""

    kind: int
    number: int
    start: int
    end: int
    user: float
    system: float
    peak_rss: int
    data: bytes


def from_record(
    call: Call, record: Record, pid: int, worker: str, exited: dict[str, Any] | None, *decoded: Any
) -> Outcome:
    """Build the outcome of a call that committed a result; `exited` is its process's end, where it had a fresh one.

    `decoded` is the value, if it was rebuilt before.
    """
    data, stdout, stderr = _split_output(record)
    scope = "task" if exited is not None else "worker"
    usage = Usage((record.end - record.start) / _NS, record.user, record.system, record.peak_rss, scope)
    fields: dict[str, Any] = {
        "usage": usage, "stdout": stdout, "stderr": stderr, "pid": pid, "worker": worker,
        "attempts": call.attempts, "started_at": _wall_clock(record.start), "tag": call.tag, "index": call.index,
    }  # fmt: skip
    if exited is not None:
        fields |= {"descendants_killed": exited["descendants"], "survivors": exited["survivors"]}
    if record.kind & wire.KIND_MASK == wire.KIND_VALUE:
        try:
            return Outcome(True, decoded[0] if decoded else pickle.loads(data), **fields)
        except BaseException as error:  # rebuilding runs the value's own code
            text = f"the result cannot be rebuilt in this process: {type(error).__name__}: {error}"
            failure = RemoteError(text, type_name=type(error).__name__, remote_message=str(error), traceback_text="")
            return _failed(Cause.EXCEPTION, failure, fields)
    return _failed(Cause.EXCEPTION, rebuild_error(data), fields)


def _failed(cause: Cause, error: BaseException, fields: dict[str, Any]) -> Outcome:
    outcome = Outcome(False, None, cause, error, **fields)
    if isinstance(error, TaskError):
        error.cause, error.outcome = str(cause), outcome
    return outcome


def rebuild_error(data: bytes) -> BaseException:
    """Return the exception that a worker sent, or a RemoteError that describes it."""
    body, name, message, text = pickle.loads(data)
    if body is not None:
        try:
            error = pickle.loads(body)
            if isinstance(error, BaseException):
                error.__cause__ = RemoteTraceback(text)
                return error
        except BaseException:  # its constructor is the user's code: described below instead
            body = None
    return RemoteError(f"{name}: {message}", type_name=name, remote_message=message, traceback_text=text)


def _split_output(record: Record) -> tuple[bytes, Captured, Captured]:
    if not record.kind & wire.FLAG_OUTPUT:
        return record.data, Captured(), Captured()
    out_total, err_total, out, err = wire.OUTPUT.unpack_from(record.data)
    at = wire.OUTPUT.size
    first, second, rest = record.data[at : at + out], record.data[at + out : at + out + err], at + out + err
    return (
        record.data[rest:],
        Captured(first, out_total, out_total > out),
        Captured(second, err_total, err_total > err),
    )


def _wall_clock(monotonic_ns: int) -> float | None:
    return time.time() - (time.monotonic_ns() - monotonic_ns) / _NS if monotonic_ns else None


def _captured(field: dict[str, Any] | None) -> Captured:
    if field is None:
        return Captured()
    data = field["data"].encode("latin-1")
    return Captured(data, field["total"], field["total"] > len(data))


def from_death(call: Call, exited: dict[str, Any], worker: str, cpu_before: tuple[float, float]) -> Outcome:
    """Build the outcome of a call whose process ended under it."""
    intent = Cause(exited["intent"]) if exited["intent"] else None
    if call.stalled:
        intent = Cause.TIMEOUT if call.timeout is not None else Cause.SILENT
    phase: Phase = exited["phase"] if exited["phase"] in ("importing", "initializing") else "running"
    verdict = classify(
        Evidence(
            status=exited["status"],
            intent=intent,
            phase=phase,
            has_result=bool(exited.get("has_result")),
            bad_frame=bool(exited.get("bad_frame")),
            oom_kills=exited["oom_kills"],
            step="",
        )
    )
    start = exited["start"]
    end = exited["end"]
    fresh = "json" in exited or cpu_before == (0.0, 0.0)
    usage = Usage(
        wall=(end - start) / _NS if start else 0.0,
        user=max(exited["user"] - cpu_before[0], 0.0),
        system=max(exited["system"] - cpu_before[1], 0.0),
        peak_rss=exited["peak_rss"],
        scope="task" if fresh else "worker",
        partial=exited["partial"],
    )
    fields: dict[str, Any] = {
        "exitcode": verdict.exitcode, "signal": verdict.signal, "killed_by_us": verdict.killed_by_us,
        "usage": usage, "stdout": _captured(exited["stdout"]), "stderr": _captured(exited["stderr"]),
        "stack": tidy_stack(exited["stack"]), "pid": exited["pid"], "worker": worker, "attempts": call.attempts,
        "started_at": _wall_clock(start), "kill_latency": exited["latency"],
        "descendants_killed": exited["descendants"], "survivors": exited["survivors"],
        "limit": _limit(call, verdict.cause, exited), "tag": call.tag, "index": call.index,
    }  # fmt: skip
    if exited.get("json") is not None and verdict.cause in (Cause.OK, Cause.EXCEPTION):
        return from_answer(exited["json"], fields)
    return _failed(verdict.cause, _error(call, verdict.cause, fields, exited), fields)


def _limit(call: Call, cause: Cause, exited: dict[str, Any]) -> LimitHit | None:
    if call.stalled:
        return LimitHit("wall", "task" if call.owns_timeout else "pool", call.stalled)
    name = exited["limit"]
    if cause is Cause.FILE_LIMIT:
        name = "file_size"
    if cause is Cause.OOM and not name:  # the kernel's kill, not ours
        return LimitHit("memory", "pool", float(exited["memory_limit"]))
    if not name:
        return None
    own = getattr(call.limits, name, None) if call.limits is not None and name != "start" else None
    if name == "wall" and call.timeout is not None:
        return LimitHit("wall", "task" if call.owns_timeout else "pool", call.timeout)
    return LimitHit(name, "pool" if own is None else "task", float(own if own is not None else exited["value"]))


def _error(call: Call, cause: Cause, fields: dict[str, Any], exited: dict[str, Any]) -> TaskError:
    name = call.encoded.name
    limit = fields["limit"]
    reason = f" ({limit})" if limit is not None else ""
    if cause is Cause.SIGNAL:
        words = f"ended its worker by signal {fields['signal']}"
    elif cause is Cause.EXIT:
        words = f"ended its worker with exit code {fields['exitcode']}"
    else:
        words = _WORDS[cause]
    if exited.get("failure"):
        reason += f": {exited['failure']}"
    message = f"{name!r} {words}{reason}"
    data = {"signal": fields["signal"], "exitcode": fields["exitcode"], "pid": fields["pid"], "limit": limit}
    if cause is Cause.TIMEOUT:
        return TaskTimeout(message, **data)
    if cause is Cause.CANCELLED:
        return TaskCancelled(message)
    if cause is Cause.START_FAILED:
        return StartFailed(message, **data)
    return LimitExceeded(message, **data) if cause in _LIMIT_CAUSES else WorkerLost(message, **data)


def from_answer(answer: dict[str, Any], fields: dict[str, Any]) -> Outcome:
    """Build the outcome of an untrusted task that answered with a JSON frame: its claim, as data."""
    if answer.get("ok") is True:
        return Outcome(True, answer.get("value"), **fields)
    name, message = str(answer.get("type")), str(answer.get("message"))
    text = str(answer.get("traceback"))
    error = RemoteError(f"{name}: {message}", type_name=name, remote_message=message, traceback_text=text)
    return _failed(Cause.EXCEPTION, error, fields)


def from_nothing(call: Call, cause: Cause, limit: LimitHit | None = None, text: str = "") -> Outcome:
    """Build the outcome of a call that never ran to an end of its own: cancelled, expired, lost, broken pool."""
    fields: dict[str, Any] = {"attempts": call.attempts, "limit": limit, "tag": call.tag, "index": call.index}
    message = f"{call.encoded.name!r} {_WORDS[cause]}" + (f": {text}" if text else "")
    kinds = {Cause.CANCELLED: TaskCancelled, Cause.EXPIRED: TaskExpired, Cause.START_FAILED: StartFailed}
    error = kinds.get(cause, WorkerLost)(message)
    return _failed(cause, error, fields)


def from_exception(call: Call, error: BaseException) -> Outcome:
    """Build the outcome of a call that could not be sent: `error` names the argument."""
    return _failed(Cause.EXCEPTION, error, {"attempts": call.attempts, "tag": call.tag, "index": call.index})


def tidy_stack(text: str) -> str:
    """Return faulthandler's text without the worker's own frames."""
    lines = [line for line in text.splitlines() if "/killpool/worker/" not in line]
    lines = [line for line in lines if "/killpool/supervisor/" not in line and '"<string>"' not in line]
    return "\n".join(lines) + "\n" if len(lines) > 1 else ""
