"""The message that tells the host of a child's end: the evidence, nothing judged."""

import time
from typing import Any

from killpool.core import wire
from killpool.supervisor.child import Child

_NS = 1_000_000_000

_SIGKILL = 9


def exited(child: Child, survivors: int) -> dict[str, Any]:
    """Return the message for a child whose tree is gone, or of which `survivors` processes could not be proven dead."""
    now = time.monotonic_ns()
    intent, words = child.intent, child.page.words if child.page is not None else None
    running = child.running()
    start = words[wire.START] if words is not None and running else child.armed.start if child.armed else 0
    status = child.wait_status
    return {
        "op": "exited", "id": child.number, "pid": child.worker_pid or child.pid, "status": status,
        "call": running[0] if running else 0, "phase": wire.phase_name(child.phase),
        "ready": child.was_ready, "failure": child.failure, "planned": child.is_planned,
        "intent": intent.cause if intent and (child.killed_by_us or intent.limit == "output") else "",
        "intent_call": intent.call if intent else 0,
        "limit": intent.limit if intent else "", "value": intent.value if intent else 0.0,
        "latency": (now - intent.since) / _NS if intent and child.killed_by_us else None,
        "start": start, "end": child.died or now, "user": child.usage[0], "system": child.usage[1],
        "peak_rss": child.usage[2] * 1024, "partial": child.usage_partial,
        "oom_kills": _oom_kills(child),
        "memory_limit": child.memory.limit if child.memory is not None else 0,
        "descendants": child.descendants, "survivors": survivors,
        "stack": child.stack.decode(errors="replace"),
        "stdout": child.stdout.report() if child.stdout else None,
        "stderr": child.stderr.report() if child.stderr else None,
    }  # fmt: skip


def _oom_kills(child: Child) -> int:
    """Return the kernel's oom kills that can have ended this child.

    In a reused worker an earlier call may have lost a child of its own to one, and lived on: there only a SIGKILL of
    the worker itself counts.
    """
    if child.memory is None or (child.page is not None and child.wait_status != _SIGKILL):
        return 0
    return child.memory.oom_kills()
