"""The template: a single-threaded process that has imported what workers need, and forks them on request.

    supervisor ── fork request: child number, descriptors ──> template ── clone(CLONE_PARENT) ──> the supervisor's child
               <── child number, pid or -errno, pidfd ───────

Workers are the supervisor's own children from their first instant (CLONE_PARENT), so their status, their parent-death
signal and their orphans are its own.  The template is also the last killer: when the supervisor is gone it kills what
carries the pool's tag or stands in the pool's cgroup, then ends.
"""

import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from typing import NoReturn

from killpool.core.wire import PAGE
from killpool.spec import RING_SIZE
from killpool.system import cgroup, channel, memory_cgroup, namespaces, procfs, syscalls, treekill
from killpool.worker import serve, setup

REQUEST = struct.Struct("=QI")  # child number, mask of the descriptor numbers that come with it (bit n = number n)
REPLY = struct.Struct("=Qi")  # child number (0: the template itself), pid or -errno
CGROUP_BIT = 1 << 31
_AF_UNIX, _SOCK_STREAM = int(socket.AF_UNIX), int(socket.SOCK_STREAM)
_ABOVE = 2 * setup.FIRST_FREE
UNFIT_EXIT = 75  # a module that was preloaded on the way cannot be forked with


@dataclass(frozen=True, slots=True)
class Config:
    """What a template is made with."""

    plan: setup.Plan
    sys_path: list[str]
    argv: list[str]
    preload: list[str]
    uses_site: bool
    groups: tuple[str, str]  # the pool's cgroup and its memory cgroup, "" for none


def start(config: Config, keep: dict[int, int]) -> tuple[int, socket.socket]:
    """Fork a template from the supervisor; return its pid and our end of its socket.

    `keep` are descriptors that every child gets, as {number: fd}; the supervisor's pidfd is at `setup.PARENT`.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            _become(config, theirs, keep)
        except BaseException as error:  # the child's edge
            os.write(2, f"killpool: the template process failed: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(1)
    theirs.close()
    ours.setblocking(False)
    return pid, ours


def _become(config: Config, sock: socket.socket, keep: dict[int, int]) -> NoReturn:
    sock = _settle_descriptors(sock, keep)
    syscalls.set_process_name(f"kp-tmpl:{config.plan.name}")
    plan = config.plan
    procfs.set_tag(plan.tag_level, procfs.make_tag(plan.tag_level, plan.nonce, procfs.TEMPLATE_CHILD))
    setup.reset_signals()
    if config.plan.is_namespaced:
        # A pid 1 takes from inside only the signals it has a handler for, and SIGINT's would be Python's own.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _import_all(config)
    except BaseException as error:  # the child's edge: any error of a user's module is the start failure
        _answer(sock, REPLY.pack(0, -1) + f"preload: {type(error).__name__}: {error}".encode()[:4000])
        os._exit(1)
    _answer(sock, REPLY.pack(0, os.getpid()))
    _serve_forks(config, sock)


def _settle_descriptors(sock: socket.socket, keep: dict[int, int]) -> socket.socket:
    """Put what children share at its numbers, fill the rest with /dev/null, and close everything else.

    So descriptors that arrive later never have a number that a child's own are to get.
    """

    def raised(fd: int) -> int:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE)

    high = {number: raised(fd) for number, fd in keep.items()}
    channel_fd = raised(sock.detach())
    null = raised(0)  # standard input is /dev/null since the supervisor's exec
    for number in range(3, setup.FIRST_FREE):
        os.dup2(high.get(number, null), number, inheritable=False)
    os.dup2(channel_fd, setup.FIRST_FREE, inheritable=False)
    os.closerange(setup.FIRST_FREE + 1, 2**31 - 1)
    return socket.socket(fileno=setup.FIRST_FREE)


def _import_all(config: Config) -> None:
    if config.uses_site:
        import site  # noqa: PLC0415  (the supervisor runs without it; venvs and editable installs need it)

        site.main()
    sys.path[:] = config.sys_path
    sys.argv[:] = config.argv
    for name in ("pickle", "traceback", "resource", *config.preload):
        importlib.import_module(name)
    if config.plan.codec == "json":
        for name in ("killpool.worker.untrusted", "orjson"):
            importlib.import_module(name)
    # The registration is part of the memory descriptor, and a fork copies it.
    syscalls.membarrier_register()
    import faulthandler  # noqa: PLC0415

    # Dumps from the C signal handler, so it needs no GIL; the handler and its descriptor number survive the fork.
    faulthandler.register(setup.STACK_SIGNAL, file=setup.STATUS, all_threads=False)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise RuntimeError(f"a preloaded module started {threads - 1} threads, and a process with threads cannot fork")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    gc.collect()
    gc.freeze()


def _serve_forks(config: Config, sock: socket.socket) -> NoReturn:
    flags = syscalls.CLONE_PARENT | (namespaces.clone_flags() if config.plan.is_namespaced else 0)
    while True:
        data, fds = _next_request(sock)
        if not data:
            _supervisor_is_gone(config)
        child, mask = REQUEST.unpack_from(data)
        if child == 0:
            _preload(data[REQUEST.size :].decode())
            _answer(sock, REPLY.pack(0, os.getpid()))
            continue
        group = fds[-1] if mask & CGROUP_BIT else None
        numbers = [n for n in range(setup.FIRST_FREE) if mask & (1 << n)]
        own = (os.dup(1), os.dup(2)) if 1 in numbers else ()  # stdout and stderr of the template itself
        setup.place(dict(zip(numbers, fds, strict=False)))
        try:
            pid, pidfd = syscalls.clone(flags, group)
        except OSError as error:
            _answer(sock, REPLY.pack(child, -(error.errno or 1)))
        else:
            if pid == 0:
                _be_child(config.plan, child)
            _answer(sock, REPLY.pack(child, pid), pidfd)
            os.close(pidfd)
        for number, fd in enumerate(own, 1):
            os.dup2(fd, number)
            os.close(fd)
        for number in numbers:
            if number > 2:
                os.dup2(0, number, inheritable=False)  # an end that stayed open here would hide the child's end-of-file
        for fd in fds:
            os.close(fd)


def _next_request(sock: socket.socket) -> tuple[bytes, list[int]]:
    try:
        return channel.recv_fds(sock, 4096)
    except ConnectionResetError:  # the supervisor died with an answer of ours unread
        return b"", []


def _answer(sock: socket.socket, data: bytes, pidfd: int = -1) -> None:
    try:
        if pidfd < 0:
            sock.send(data, socket.MSG_NOSIGNAL)
        else:
            channel.send_fds(sock, data, [pidfd])
    except (BrokenPipeError, ConnectionResetError):
        return  # the next request says that the supervisor is gone


def _preload(module: str) -> None:
    """Import a module that calls have named.

    One that fails is left to the call that needs it.  One that starts a thread cannot be forked with, and what it
    opened would be closed in every child: then this template ends, and the next one does without the module.
    """
    before = len(os.listdir("/proc/self/fd"))
    try:
        importlib.import_module(module)
    except BaseException:  # the child's edge: the same error is told to the call that needs the module
        return
    if len(os.listdir("/proc/self/task")) > 1 or len(os.listdir("/proc/self/fd")) > before:
        os._exit(UNFIT_EXIT)
    gc.freeze()


def _be_child(plan: setup.Plan, child: int) -> NoReturn:
    try:
        setup.close_all_others()
        if plan.is_namespaced:
            setup.become_init(plan)
        else:
            setup.die_with_parent(plan)
        setup.prepare(plan, child)
        sock = socket.socket(_AF_UNIX, _SOCK_STREAM, 0, setup.DATA)
        if plan.codec == "json":
            untrusted = sys.modules["killpool.worker.untrusted"]
            setup.limit(plan)
            os.write(setup.STATUS, setup.READY_BYTE)
            untrusted.serve_one(sock)
        page = channel.Page(setup.BOARD, PAGE + RING_SIZE)
        # mmap keeps a duplicate of its descriptor, through which a stray write would land on the board.
        setup.close_all_others(setup.BOARD)
        worker = serve.Worker(plan, page, sock)
        setup.limit(plan)
        os.write(setup.STATUS, setup.READY_BYTE)
        worker.serve()
    except BaseException as error:  # the child's edge
        try:
            os.write(setup.STATUS, setup.FAILED_BYTE + f"worker: {type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(70)


def _supervisor_is_gone(config: Config) -> NoReturn:
    # End-of-file alone could be a closed socket; the pidfd says that the process is dead.
    select.select([setup.PARENT], [], [], 2.0)
    group, memory = config.groups
    cgroup.kill_group(group)
    for _ in range(50):
        if not treekill.kill_tagged(config.plan.tag_level, config.plan.nonce):
            break
    cgroup.remove_group(group)
    memory_cgroup.remove_group(memory)
    os._exit(0)
