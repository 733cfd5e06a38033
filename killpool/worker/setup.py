"""What a new child does before any work, as one ordered list; a failure names its step.

    descriptors -> parent-death signal -> session -> streams -> tag -> rlimits -> READY

The order is forced: descriptors first, because an inherited flock or pipe end outlives its owner; the parent is asked
for again after the signal is armed, because it may have died in between.
"""

import os
import select
import signal
import sys
from dataclasses import dataclass

from killpool.system import namespaces, procfs, rlimits, syscalls

# Every child has its descriptors at these numbers and no others.
DATA, STATUS, HOST_BELL, SUPERVISOR_BELL, OUTPUT, BOARD, PARENT, REPORT = 3, 4, 5, 6, 7, 8, 9, 10
FIRST_FREE = 11

STACK_SIGNAL = signal.SIGRTMAX - 1
READY_BYTE = b"\x06"
FAILED_BYTE = b"\x15"


@dataclass(frozen=True, slots=True)
class Plan:
    """What all children of one template have in common."""

    supervisor_pid: int
    tag_level: int
    nonce: int
    rlimits: dict[str, int]
    descriptors: int  # the host's soft RLIMIT_NOFILE, 0 where it equals the hard one
    name: str
    is_namespaced: bool
    captures: bool
    codec: str
    uid: int
    gid: int
    samples: bool
    one_call: bool
    start_timeout_ns: int


def place(fds: dict[int, int]) -> None:
    """Give received descriptors their numbers: in the template, before the fork, so that the child has less to do.

    Received ones lie from FIRST_FREE up, because the template keeps every lower number taken.
    """
    for number, fd in fds.items():
        os.dup2(fd, number, inheritable=number <= 2)  # what the task starts has stdout and stderr too


def close_all_others(first: int = FIRST_FREE) -> None:
    """In the child: close what is not its own, from `first` up.  Close-on-exec does nothing for a fork."""
    os.closerange(first, 2**31 - 1)


def die_with_parent(plan: Plan) -> None:
    """Arm the parent-death signal, then see that the parent has not died before it was armed."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if plan.is_namespaced:
        # The parent is outside of a new PID namespace (getppid() says 0 there), so its pidfd is asked instead.
        poll = select.poll()
        poll.register(PARENT, select.POLLIN)
        is_orphan = bool(poll.poll(0))
    else:
        is_orphan = os.getppid() != plan.supervisor_pid
    if is_orphan:
        os._exit(1)
    os.close(PARENT)  # with it the child could signal its supervisor, out of a PID namespace too


def reset_signals() -> None:
    """Give every signal its default again, as in a freshly started interpreter, and unblock all.

    Done once, in the template: children inherit it, and the signal module's calls cost 0.2 ms a child.
    """
    for number in range(1, signal.NSIG):
        if number in (signal.SIGKILL, signal.SIGSTOP, STACK_SIGNAL, signal.SIGPIPE, 32, 33):
            continue  # SIGPIPE stays ignored, as Python has it; 32 and 33 belong to glibc
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def unbuffered_streams() -> None:
    """Make captured text leave at once: a killed process keeps what is in its buffers."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]


def prepare(plan: Plan, child: int) -> None:
    """Run the steps after the descriptors are placed; on failure report the step's name and exit."""
    step = "setsid"
    try:
        os.setsid()
        step = "streams"
        if plan.captures:
            unbuffered_streams()
        step = "tag"
        procfs.set_tag(plan.tag_level, procfs.make_tag(plan.tag_level, plan.nonce, child))
    except OSError as error:
        os.write(STATUS, FAILED_BYTE + f"{step}: {error}".encode())
        os._exit(1)
    if plan.is_namespaced:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not plan.one_call:
        syscalls.set_process_name(f"kp:{plan.name}")


def limit(plan: Plan) -> None:
    """Set the rlimits, last: what the worker itself has to open does not count against them."""
    try:
        if plan.descriptors:
            rlimits.set_descriptors(plan.descriptors)
        if not plan.rlimits:
            return
        set_limits = rlimits.apply if plan.codec == "pickle" else rlimits.lock
        set_limits(plan.rlimits)
    except (OSError, ValueError) as error:
        os.write(STATUS, FAILED_BYTE + f"rlimits: {error}".encode())
        os._exit(1)
    if "file_size" in plan.rlimits:
        # Python ignores SIGXFSZ, and the limit would look like any failed write; the default is the kill we name.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def become_init(plan: Plan) -> None:
    """In a new PID namespace: map ids, fork the worker (returns in it) and stay as init until the worker ends."""
    die_with_parent(plan)
    try:
        if plan.uid != 0:
            namespaces.map_own_ids(plan.uid, plan.gid)
        os.setsid()
        pid = os.fork()
    except OSError as error:
        os.write(STATUS, FAILED_BYTE + f"namespace: {error}".encode())
        os._exit(1)
    if pid == 0:
        os.close(REPORT)
        return
    # Nothing inside may trace or read the witness.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    os.closerange(0, REPORT)
    _reap_until(pid)


def _reap_until(worker: int) -> None:
    """Reap orphans; when the worker ends, report its end, its usage and who is left: the kernel kills those."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == worker:
            line = f"{status} {usage.ru_utime:.6f} {usage.ru_stime:.6f} {usage.ru_maxrss} {_count_left()}\n"
            os.write(REPORT, line.encode())
            os._exit(0)


def _count_left() -> int:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    # This /proc is the outer namespace's, where "self" has the name that its files go by.
    left = procfs.descendants_of([int(os.readlink("/proc/self"))])
    return sum(procfs.state_of(pid) not in ("Z", "") for pid in left)
