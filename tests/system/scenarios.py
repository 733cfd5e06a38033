"""Scenarios on real processes, played in a process of their own: `python scenarios.py NAME CONTAIN [ARGUMENT…]`.

Each prints one line of JSON: what was seen.  What should have been seen is in the tests, which play them as root and
as an unprivileged user, and with each containment.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import census
import tasks
from killpool import Outcome, Pool, TaskFuture

_TIMEOUTS = (0.3, 1.0, 3.0, 10.0)  # s; the first that lets the whole tree come to life before it is killed


def _told(outcome: Outcome) -> dict[str, Any]:
    return {
        "cause": str(outcome.cause),
        "signal": outcome.signal,
        "exitcode": outcome.exitcode,
        "killed_by_us": outcome.killed_by_us,
        "survivors": outcome.survivors,
    }


def _stops(pids: list[int], future: TaskFuture) -> bool:
    return census.wait_until(lambda: future.done() or any(map(census.is_stopped, pids))) and not future.done()


def _gate(name: str) -> str:
    path = f"{tempfile.gettempdir()}/{name}-{os.getpid()}"
    os.mkfifo(path)
    return path


def shape(contain: str, name: str, isolation: str = "worker") -> dict[str, Any]:
    """A task of the given shape runs into its deadline: how many lived before, and at the outcome?"""
    function, size = tasks.SHAPES[name]
    captures = name == "output pipe held by a daemon"
    with Pool(1, contain=contain, isolation=isolation, capture_output=captures) as pool:  # type: ignore[arg-type]
        for timeout in _TIMEOUTS:
            mark = census.new_mark()
            future = pool.schedule(function, (mark,), timeout=timeout)
            before = census.wait_for(size, mark, unless=future.done)
            was_stopped = name != "stopped" or _stops(before, future)
            is_early = not future.done()
            outcome = future.outcome(60)
            after = census.find(mark)
            if is_early:
                break
        result = {
            **_told(outcome),
            "alive before": len(before),
            "alive after": len(after),
            "stopped": was_stopped,
            "next call": pool.submit(tasks.add, 1, 2).result(30),
        }
        if captures:
            result["stdout"] = str(outcome.stdout)
        return result


def own_group(contain: str) -> dict[str, Any]:
    """A task kills its process group while a neighbour runs."""
    mark, other = census.new_mark(), census.new_mark()
    gate, other_gate = _gate("gate"), _gate("other")
    with Pool(2, contain=contain) as pool:  # type: ignore[arg-type]
        neighbour = pool.submit(tasks.pass_gate, other_gate, other)
        future = pool.schedule(tasks.kill_own_group, (gate, mark), timeout=60)
        before = len(census.wait_for(2, mark)), len(census.wait_for(1, other))
        tasks.open_gate(gate)
        outcome = future.outcome(60)
        after = len(census.find(mark)), len(census.find(other))
        tasks.open_gate(other_gate)
        return {
            **_told(outcome),
            "before": before,
            "after": after,
            "neighbour": neighbour.outcome(60).ok,
            "next call": pool.submit(tasks.add, 1, 2).result(30),
            "supervisor restarts": pool.statistics().supervisor_restarts,
            **_remove(gate, other_gate),
        }


def parent(contain: str) -> dict[str, Any]:
    """A task kills its parent while a neighbour runs and another call waits."""
    mark, other = census.new_mark(), census.new_mark()
    gate = _gate("gate")
    with Pool(2, contain=contain) as pool:  # type: ignore[arg-type]
        neighbour = pool.schedule(tasks.daemon, (other,), timeout=3)
        future = pool.schedule(tasks.kill_parent, (gate, mark), timeout=2)
        before = len(census.wait_for(1, mark)), len(census.wait_for(2, other))
        waiting = pool.submit(tasks.add, 2, 2)
        is_early = not future.done() and not neighbour.done()
        tasks.open_gate(gate)
        first, second = future.outcome(60), neighbour.outcome(60)
        return {
            "before": before,
            "early": is_early,
            "call": str(first.cause),
            "neighbour": str(second.cause),
            "survivors": first.survivors + second.survivors,
            "after": (len(census.find(mark)), len(census.find(other))),
            "waiting": waiting.result(30),
            "next call": pool.submit(tasks.add, 1, 2).result(30),
            "supervisor restarts": pool.statistics().supervisor_restarts,
            **_remove(gate),
        }


def supervisor_killed(contain: str) -> dict[str, Any]:
    """Somebody kills the supervisor under two running trees and a call that waits."""
    first, second = census.new_mark(), census.new_mark()
    with Pool(2, contain=contain) as pool:  # type: ignore[arg-type]
        futures = [pool.submit(tasks.daemon, first), pool.submit(tasks.bush, second, 20)]
        before = len(census.wait_for(2, first)), len(census.wait_for(21, second))
        waiting = pool.submit(tasks.add, 2, 2)
        machinery = census.machinery_of(census.outer_pid())
        census.kill_exactly(pool.statistics().supervisor_pid)
        outcomes = [f.outcome(60) for f in futures]
        at_outcome = len(census.find(first)), len(census.find(second))
        return {
            "before": before,
            "causes": [str(o.cause) for o in outcomes],
            "survivors": [o.survivors for o in outcomes],
            "after": at_outcome,
            "machinery gone": census.gone(machinery, 2.0),
            "waiting": waiting.result(30),
            "next call": pool.submit(tasks.add, 1, 2).result(30),
            "supervisor restarts": pool.statistics().supervisor_restarts,
        }


def daemon_left(contain: str, isolation: str) -> dict[str, Any]:
    """A call returns at once but leaves a daemon that holds its output pipe."""
    mark = census.new_mark()
    with Pool(1, contain=contain, isolation=isolation, capture_output=True) as pool:  # type: ignore[arg-type]
        outcome = pool.schedule(tasks.leave_daemon, (mark,), timeout=60).outcome(60)
        left = len(census.find(mark))
        result = {
            **_told(outcome),
            "value": outcome.value,
            "stdout": str(outcome.stdout),
            "left": left,
            "next call": pool.submit(tasks.add, 1, 2).result(30),
        }
    return {**result, "after the pool": len(census.find(mark))}


def nested(contain: str) -> dict[str, Any]:
    """A task uses a pool of its own, and is killed with it."""
    mark = census.new_mark()
    with Pool(1, contain=contain) as pool:  # type: ignore[arg-type]
        total = pool.schedule(tasks.nested_sum, (contain,), timeout=60).outcome(60)
        if not total.ok:
            return {"sum": repr(total.error)}
        future = pool.schedule(tasks.nested_block, (contain, mark))
        before = len(census.wait_for(2, mark))
        future.cancel()
        outcome = future.outcome(60)
        return {
            "sum": total.value,
            "before": before,
            "after": len(census.find(mark)),
            "cause": str(outcome.cause),
            "survivors": outcome.survivors,
            "next call": pool.submit(tasks.add, 1, 2).result(30),
        }


def _remove(*paths: str) -> dict[str, Any]:
    for path in paths:
        os.unlink(path)
    return {}


SCENARIOS: dict[str, Callable[..., dict[str, Any]]] = {
    "shape": shape,
    "own_group": own_group,
    "parent": parent,
    "supervisor_killed": supervisor_killed,
    "daemon_left": daemon_left,
    "nested": nested,
}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](*sys.argv[2:])))
