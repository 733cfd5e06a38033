"""The end of a supervisor: its host is gone or has closed it, and nothing below it may live."""

import os
import signal
import time

from killpool.supervisor.births import Births
from killpool.supervisor.child import Child
from killpool.system import cgroup, memory_cgroup, procfs, treekill

_END_WAIT = 5.0  # seconds until it gives up on what cannot be killed


def end(children: dict[int, Child], births: Births) -> None:
    """Kill and reap everything below this process; remove the pool's cgroups."""
    me = os.getpid()
    for child in children.values():
        if child.leaf is not None:
            child.leaf.kill()
        if child.pidfd >= 0:
            treekill.signal_pidfd(child.pidfd, signal.SIGKILL)
    deadline = time.monotonic() + _END_WAIT
    while time.monotonic() < deadline:
        _reap_all()
        if not treekill.walk_kill(lambda: dict.fromkeys(procfs.children_of(me), me)):
            break
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)  # blocked all along, for the signalfd
    _reap_all()
    for child in children.values():
        child.close()
    if births.group:
        cgroup.remove_group(births.group)
    if births.memory is not None:
        memory_cgroup.remove_group(births.memory[0])


def _reap_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return
