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


def _open_member(pid: int, parent: int) -> tuple[int, bool]:
    """Return (pidfd of `pid` if it is a living child of `parent` or of ours, else -1; whether it was seen for good).

    One that lives but has another parent by now has to be looked for again.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1, True
    except OSError:  # no descriptor left: it may well live
        return -1, False
    is_dead = procfs.state_of(pid) in ("Z", "X", "")
    if not is_dead and procfs.parent_of(pid) in (parent, os.getpid()):
        return pidfd, True
    os.close(pidfd)
    return -1, is_dead


def walk_kill(roots: Callable[[], dict[int, int]]) -> int:
    """Stop, then kill what `roots()` ({pid: parent}) names and everything below; return how many were signalled.

    `roots` is asked anew each round, until a round lists nobody new, dead or alive: a member that ends while the lists
    are read hands its children to us after our own list was read, so that a new corpse proves nothing.  A return of 0
    means that such a full pass found no living member.
    """
    stopped: dict[int, int] = {}
    seen: set[int] = set()
    unproven = 0
    try:
        for _ in range(_ROUNDS):
            members = roots()
            members.update(procfs.descendants_of(members))
            fresh = [(pid, parent) for pid, parent in members.items() if pid not in seen]
            if not fresh:
                break
            for pid, parent in fresh:
                pidfd, is_seen = _open_member(pid, parent)
                if pidfd >= 0:
                    stopped[pid] = pidfd
                    signal_pidfd(pidfd, signal.SIGSTOP)
                if is_seen:
                    seen.add(pid)
        else:
            unproven = 1  # the rounds ran out: not an empty pass
        return unproven + sum(signal_pidfd(pidfd, signal.SIGKILL) for pidfd in stopped.values())
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
