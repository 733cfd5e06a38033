"""Killing a whole process tree by walking it: stop every member, then kill, until a full pass finds none.

For supervisors that are child subreapers.  Measured against bombs in which every generation calls setsid, killing
by pid, group or snapshot left most alive; stopping first leaves nobody who could fork while the list is made: a
process with a pending SIGSTOP cannot complete a fork.  A pid is signalled only through a pidfd whose parent (or tag)
was read again after it was opened.
"""

import os
import signal
from collections.abc import Callable

from killpool.system import procfs

_ROUNDS = 64  # discovery rounds in one pass; each finds at least one generation


def signal_pidfd(pidfd: int, number: int) -> bool:
    """Send a signal through a pidfd; return whether the process was still there."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


def _open_member(pid: int, parent: int) -> int:
    """Return a pidfd of `pid` if it still is a living child of `parent`, else -1."""
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return -1
    if procfs.parent_of(pid) in (parent, os.getpid()) and procfs.state_of(pid) not in ("Z", "X", ""):
        return pidfd
    os.close(pidfd)
    return -1


def walk_kill(roots: Callable[[], dict[int, int]]) -> int:
    """Stop, then kill what `roots()` ({pid: parent}) names and everything below; return how many were signalled.

    `roots` is asked anew each round.  A return of 0 means that a full pass found no living member.
    """
    stopped: dict[int, int] = {}
    try:
        for _ in range(_ROUNDS):
            members = roots()
            members.update(procfs.descendants_of(members))
            fresh = [(pid, parent) for pid, parent in members.items() if pid not in stopped]
            found = 0
            for pid, parent in fresh:
                pidfd = _open_member(pid, parent)
                if pidfd >= 0:
                    stopped[pid] = pidfd
                    found += signal_pidfd(pidfd, signal.SIGSTOP)
            if not found:
                break
        return sum(signal_pidfd(pidfd, signal.SIGKILL) for pidfd in stopped.values())
    finally:
        for pidfd in stopped.values():
            os.close(pidfd)


def kill_tagged(level: int, nonce: int) -> int:
    """Kill every process but this one that carries `nonce`'s tag, wherever it hangs; return how many were signalled."""
    count = 0
    for pid in procfs.tagged(level, nonce):
        if pid == os.getpid():
            continue
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        wanted = procfs.make_tag(level, nonce, 0) >> 20
        if procfs.tag_of(pid, level) >> 20 == wanted:
            count += signal_pidfd(pidfd, signal.SIGKILL)
        os.close(pidfd)
    return count
