"""The few system calls that Python does not offer, through ctypes: each raises OSError with the call's name."""

import ctypes
import os
import struct

_MEMBARRIER = {"x86_64": 324, "aarch64": 283}.get(os.uname().machine, -1)
_CLONE3 = 435  # the same number on every architecture, as all calls since 424

_libc = ctypes.CDLL(None, use_errno=True)
# PyDLL keeps the GIL over the call: a clone must come back in the child with the GIL held by the calling thread.
_libc_gil = ctypes.PyDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CLONE_PIDFD = 0x1000
CLONE_PARENT = 0x8000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_INTO_CGROUP = 0x200000000


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int) -> None:
    """Call prctl(2) with one argument."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl({option})")


def set_process_name(name: str) -> None:
    """Set the 15-byte name that ps and top show (PR_SET_NAME)."""
    _libc.prctl(PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)


def clone(flags: int, cgroup_fd: int | None = None) -> tuple[int, int]:
    """Fork with clone3(2) flags; return (pid, pidfd) in the parent and (0, -1) in the child.

    CLONE_PIDFD is always added.  Only for single-threaded processes: like os.fork it runs Python's own fork
    handlers, but not those that C libraries registered with pthread_atfork.
    """
    pidfd = ctypes.c_int(-1)
    into = 0 if cgroup_fd is None else CLONE_INTO_CGROUP
    exit_signal = 0 if flags & CLONE_PARENT else 17  # with CLONE_PARENT the kernel takes the parent's and refuses ours
    where = ctypes.addressof(pidfd)
    args = struct.pack("=11Q", flags | CLONE_PIDFD | into, where, 0, 0, exit_signal, 0, 0, 0, 0, 0, cgroup_fd or 0)
    buffer = ctypes.create_string_buffer(args, len(args))
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _libc_gil.syscall(_CLONE3, buffer, len(args))
    number = ctypes.get_errno()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0, -1
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, f"clone3: {os.strerror(number)}")
    return pid, pidfd.value


def membarrier_register() -> None:
    """Ask to be reached by other processes' `membarrier_global` (GLOBAL_EXPEDITED)."""
    _check(_libc.syscall(_MEMBARRIER, 1 << 2, 0, 0), "membarrier(REGISTER_GLOBAL_EXPEDITED)")


def membarrier_global() -> None:
    """Order all memory accesses of registered processes against ours: the slow half of an asymmetric fence.

    With it the fast half (a worker's store, then load) needs no fence instruction at all.
    """
    _check(_libc.syscall(_MEMBARRIER, 1 << 1, 0, 0), "membarrier(GLOBAL_EXPEDITED)")


# x86 keeps the order of stores and of loads (TSO); elsewhere data and length need a fence between them.
STRONGLY_ORDERED = os.uname().machine == "x86_64"


def fence() -> None:
    """Order earlier stores before later ones, and loads likewise; free where the machine does so by itself."""
    if not STRONGLY_ORDERED:
        membarrier_global()


_SFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


def signalfd(signals: set[int]) -> int:
    """Return a non-blocking signalfd(2) for `signals`, which the caller has blocked."""
    mask = ctypes.create_string_buffer(128)
    _libc.sigemptyset(mask)
    for number in signals:
        _libc.sigaddset(mask, number)
    return _check(_libc.signalfd(-1, mask, _SFD_FLAGS), "signalfd")


class Timer:
    """A timerfd(2) on CLOCK_MONOTONIC: nanosecond deadlines for a loop (epoll's own timeout rounds up to 1 ms)."""

    def __init__(self) -> None:
        self.fd = _check(_libc.timerfd_create(1, _SFD_FLAGS), "timerfd_create")

    def fileno(self) -> int:
        """Return the descriptor, readable once the deadline has passed."""
        return self.fd

    def set(self, deadline_ns: int) -> None:
        """Arm for an absolute monotonic time in ns; 0 disarms."""
        spec = struct.pack("=4q", 0, 0, deadline_ns // 1_000_000_000, deadline_ns % 1_000_000_000)
        buffer = ctypes.create_string_buffer(spec, len(spec))
        _check(_libc.timerfd_settime(self.fd, 1, buffer, None), "timerfd_settime")

    def clear(self) -> None:
        """Consume the expiry."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)
