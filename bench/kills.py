"""What a deadline costs: until the tree is gone, until all of eight are told, until the next call is done.

"gone" is seen from outside (see `observer`), counted from the start that the task itself stamped plus its timeout, so
it is the same clock for every contestant.  "told" is when the waiting thread has its answer.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Any

from bench import tasks
from bench.contest import OURS, Contest, Goal, Metric, Samples, Skip
from bench.observer import Observer
from bench.peers import open_pool

TIMEOUT = 0.1
GIL_HELD = 0.4  # seconds, from shortly after the call's start

SCENARIOS: dict[str, tuple[Callable[..., Any], str, int]] = {
    "spin": (tasks.spin, "loops in Python", 1),
    "stubborn": (tasks.stubborn, "ignores SIGTERM", 1),
    "gil": (tasks.sleeper, "host's GIL held", 1),
    "family": (tasks.family, "and its setsid child", 2),
}


def measure_kills(contestant: str, *, quick: bool) -> Samples:
    """Return, by scenario, the seconds from the deadline until the tree was gone, and until we were told."""
    samples: Samples = {}
    with Observer() as observer:
        for number, (scenario, (task, _label, processes)) in enumerate(SCENARIOS.items()):
            if contestant != OURS and scenario == "family":
                continue  # it would stay
            count = _kill_count(contestant, scenario, quick)
            first = 1000 * number
            with open_pool(contestant, 1, TIMEOUT) as face:
                face.result(face.submit(tasks.noop))
                for call in range(first, first + count):
                    future = face.submit(task, observer.path, call)
                    if scenario == "gil":
                        _hold_the_gil(future)
                    _wait(future)
                    told = time.monotonic_ns()
                    start, gone = observer.gone(call, processes)
                    deadline = start + int(TIMEOUT * 1e9)
                    _add(samples, f"{scenario} gone", (gone - deadline) / 1e9)
                    _add(samples, f"{scenario} told", (told - deadline) / 1e9)
                    if contestant == OURS:
                        _add(samples, f"{scenario} reported", future.outcome().kill_latency)
    return samples


def _kill_count(contestant: str, scenario: str, quick: bool) -> int:
    if contestant != OURS:
        return 1 if quick or scenario == "stubborn" else 4
    return 3 if quick else 30


def _wait(future: Any) -> None:
    """Wait for a call that ends by its deadline."""
    try:
        future.result()
    except TimeoutError:
        return
    raise RuntimeError("a call that hangs gave a value")


def _hold_the_gil(future: Any) -> None:
    end = time.monotonic() + 5.0
    while not future.running():
        if time.monotonic() > end:
            raise RuntimeError("the call did not start")
        time.sleep(0.001)
    ctypes.PyDLL(None).usleep(int(GIL_HELD * 1e6))  # PyDLL keeps the GIL: no thread of this process runs


def _add(samples: Samples, key: str, value: float) -> None:
    samples.setdefault(key, []).append(value)


def measure_eight(contestant: str, *, quick: bool) -> Samples:
    """Return the seconds until the last of eight was told and gone, and an innocent call's worst time meanwhile."""
    hung, timeout = 2 if quick and contestant != OURS else 8, 1.0
    with Observer() as observer, open_pool(contestant, hung + 1, timeout) as face:
        for handle in [face.submit(tasks.noop) for _ in range(4 * hung)]:
            face.result(handle)
        told: dict[int, int] = {}
        calls = [face.submit(tasks.stubborn, observer.path, number) for number in range(hung)]
        for number, future in enumerate(calls):
            future.add_done_callback(lambda _future, number=number: told.setdefault(number, time.monotonic_ns()))
        deadlines = [observer.begun(number) + int(timeout * 1e9) for number in range(hung)]
        innocent = []
        while len(told) < hung:
            start = time.perf_counter()
            face.result(face.submit(tasks.noop))
            innocent.append(time.perf_counter() - start)
            time.sleep(0.001)
        gone = [observer.gone(number)[1] for number in range(hung)]
    return {
        "told": [max(told[number] - deadline for number, deadline in enumerate(deadlines)) / 1e9],
        "gone": [max(end - deadline for end, deadline in zip(gone, deadlines, strict=True)) / 1e9],
        "innocent": [max(innocent)],
    }


def measure_after(contestant: str, *, quick: bool) -> Samples:
    """Return the seconds of the first call after a kill; one worker, so it needs a new one."""
    count = (3 if quick else 20) if contestant == OURS else 2
    latencies = []
    with Observer() as observer, open_pool(contestant, 1, TIMEOUT) as face:
        face.result(face.submit(tasks.noop))
        for number in range(count):
            _wait(face.submit(tasks.sleeper, observer.path, number))
            start = time.perf_counter()
            face.result(face.submit(tasks.noop))
            latencies.append(time.perf_counter() - start)
    if not latencies:
        raise Skip("nothing was measured")
    return {"next": latencies}


def _kill_metrics() -> tuple[Metric, ...]:
    metrics: list[Metric] = []
    for scenario, (_task, label, _processes) in SCENARIOS.items():
        metrics.append(Metric(f"{scenario} gone", f"{label}: gone, p50", "s", 0.5))
        metrics.append(Metric(f"{scenario} gone", f"{label}: gone, p99", "s", 0.99))
        metrics.append(Metric(f"{scenario} reported", f"{label}: kill_latency, p50", "s", 0.5))
        metrics.append(Metric(f"{scenario} reported", f"{label}: kill_latency, p99", "s", 0.99))
        if scenario != "gil":
            metrics.append(Metric(f"{scenario} told", f"{label}: told, p50", "s", 0.5))
    return tuple(metrics)


def _kill_goals() -> tuple[Goal, ...]:
    goals: list[Goal] = []
    for scenario in ("spin", "stubborn", "gil"):
        goals += [Goal(f"{scenario} gone p50", 0.002), Goal(f"{scenario} gone p99", 0.008)]
    return tuple(goals)


KILL = Contest(
    name="kill",
    title="from the deadline until the process tree is gone, one call at a time",
    contestants=(OURS, "pebble"),
    metrics=_kill_metrics(),
    measure=measure_kills,
    goals=_kill_goals(),
)

EIGHT = Contest(
    name="eight",
    title="eight calls that ignore SIGTERM reach their deadlines together, beside one innocent worker",
    contestants=(OURS, "pebble"),
    metrics=(
        Metric("told", "the last is told", "s"),
        Metric("gone", "the last is gone", "s"),
        Metric("innocent", "worst innocent call", "s"),
    ),
    measure=measure_eight,
    goals=(Goal("told p50", 0.010),),
    rare=("pebble",),
)

AFTER = Contest(
    name="after",
    title="the next call after a kill, one worker",
    contestants=(OURS, "pebble"),
    metrics=(Metric("next", "done, p50", "s"),),
    measure=measure_after,
    goals=(Goal("next p50", 0.005),),
)
