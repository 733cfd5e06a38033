"""Limits that the kernel does not keep for a tree by itself: memory, CPU and process count, read while a call runs.

A reading costs about 10 us a process.  The interval follows the headroom, so the possible overshoot is what a tree
can do in 2 to 20 ms.  Nothing is read while no limited call runs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from killpool.core import wire
from killpool.supervisor.child import Child, Intent, State
from killpool.system import procfs

_LEAST, _MOST = 2_000_000, 20_000_000  # ns between readings
_MOST_CPU = 1_000_000_000
_UNWATCHED = 3600 * 1_000_000_000
_FILL_RATE = 8e9  # bytes a second that a tree may take at the worst: page faults of two cores
_NS = 1_000_000_000


@dataclass(slots=True)
class Sampler:
    """Watches the children of one supervisor.  `limits` maps a limits id to {name: value}; 0 is the pool's."""

    limits: dict[int, dict[str, float]]
    cores: int
    on_limit: Callable[[Child, Intent], None]

    def limits_of(self, child: Child) -> dict[str, float]:
        """Return the limits of what runs in `child` now."""
        if child.armed is not None:
            return child.armed.limits
        if child.page is None:
            return {}
        return self.limits.get(child.page.words[wire.LIMITS], self.limits[0])

    def wake(self, child: Child, now: int) -> None:
        """A call may have begun: start to watch if it has limits to watch."""
        if child.state is not State.LIVE or child.running() is None:
            return
        wait = min((self._wait(name, value, 0.0) for name, value in self.limits_of(child).items()), default=_UNWATCHED)
        if child.memory is not None:
            child.oom_before = child.memory.oom_kills()
        if wait < _UNWATCHED and not 0 < child.next_sample <= now + wait:
            child.next_sample = now + int(wait)

    def sample(self, child: Child, now: int) -> None:
        """Take one reading; report a broken limit, else set the time of the next."""
        child.next_sample = 0
        running = child.running()
        if running is None or not running[0]:
            return
        limits = self.limits_of(child)
        pids = self._pids(child)
        waits: list[float] = []
        for name, value in limits.items():
            used = self._read(name, child, pids)
            if name == "memory" and child.memory is not None and child.memory.oom_kills() > child.oom_before:
                used = value + 1  # the kernel has killed a part of the tree: a half-dead call does not go on
            elif used > value and name == "memory" and procfs.proportional_bytes(pids) <= value:
                # Forked processes share pages that each counts as its own: PSS says what they take together.
                waits.append(_MOST)
                continue
            if used > value:
                deadline = 0 if child.armed is not None else running[1]
                self.on_limit(child, Intent(_CAUSES[name], running[0], now, name, value, deadline))
                return
            waits.append(self._wait(name, value, used))
        wait = min(waits, default=_UNWATCHED)
        if wait < _UNWATCHED:
            child.next_sample = time.monotonic_ns() + int(wait)

    def _pids(self, child: Child) -> list[int]:
        if child.worker_pid:
            return list(procfs.descendants_of([child.pid]))
        if child.leaf is not None:
            return child.leaf.pids()
        return [child.pid, *procfs.descendants_of([child.pid])]

    def _read(self, name: str, child: Child, pids: list[int]) -> float:
        """Return how much of a limit's thing the tree uses."""
        if name == "memory":
            used = procfs.resident_bytes(pids)
            child.seen_rss = max(child.seen_rss, used)
            return used
        if name == "processes":
            return len(pids)
        if name == "cpu":
            # An untrusted process runs one call: what it used before is its start-up, a few milliseconds.
            base = child.page.words[wire.CPU0] / _NS if child.page is not None else 0.0
            return procfs.cpu_seconds(pids) - base
        return 0.0

    def _wait(self, name: str, value: float, used: float) -> float:
        """Return how long a limit may go unread, in ns: as long as the tree surely needs to reach it, within bounds."""
        if name == "memory":
            return min(max((value - used) / _FILL_RATE * _NS, _LEAST), _MOST)
        if name == "processes":
            return _LEAST if used * 2 > value else 4 * _LEAST
        if name == "cpu":
            return min(max((value - used) / self.cores * _NS, _LEAST), _MOST_CPU)
        return _UNWATCHED


_CAUSES = {"memory": "oom", "cpu": "cpu_time", "processes": "process_limit"}
