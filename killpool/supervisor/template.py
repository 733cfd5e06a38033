"""The template: a single-threaded process that has imported what workers need, and forks them on request.

    supervisor ── fork request: child number, descriptors ──> template ── clone(CLONE_PARENT) ──> the supervisor's child
               <── child number, pid or -errno, pidfd ───────

Workers are the supervisor's own children from their first instant (CLONE_PARENT), so their status, their parent-death
signal and their orphans are its own.  The template is also the last killer: when the supervisor is gone it kills what
carries the pool's tag or stands in the pool's cgroup, then ends.
"""

import array
import gc
import importlib
import os
import select
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Any, NoReturn

from killpool.core.wire import PAGE
from killpool.spec import RING_SIZE
from killpool.system import cgroup, channel, namespaces, syscalls, treekill
from killpool.worker import serve, setup

REQUEST = struct.Struct("=QI")  # child number, mask of the descriptor numbers that come with it (bit n = number n)
REPLY = struct.Struct("=Qi")  # child number (0: the template itself), pid or -errno
CGROUP_BIT = 1 << 31


@dataclass(frozen=True, slots=True)
class Config:
    """What a template is made with."""

    plan: setup.Plan
    sys_path: list[str]
    argv: list[str]
    preload: list[str]
    uses_site: bool
    group: str


def start(config: Config, keep: dict[int, int]) -> tuple[int, socket.socket]:
    """Fork a template from the supervisor; return its pid and our end of its socket.

    `keep` are descriptors that every child gets, as {number: fd}; the supervisor's pidfd is at `setup.PARENT`.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            _become(config, theirs, keep)
        finally:
            os._exit(1)
    theirs.close()
    ours.setblocking(False)
    return pid, ours


def _become(config: Config, sock: socket.socket, keep: dict[int, int]) -> NoReturn:
    kept = sorted({sock.fileno(), *keep.values()})
    for low, high in zip([2, *kept], [*kept, 2**31 - 1], strict=True):
        os.closerange(low + 1, high)
    syscalls.set_process_name(f"kp-tmpl:{config.plan.name}")
    setup.reset_signals()
    try:
        _import_all(config)
    except BaseException as error:  # the child's edge: any error of a user's module is the start failure
        sock.send(REPLY.pack(0, -1) + f"preload: {type(error).__name__}: {error}".encode()[:4000])
        os._exit(1)
    sock.send(REPLY.pack(0, os.getpid()))
    _serve_forks(config, sock, keep)


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


def _serve_forks(config: Config, sock: socket.socket, keep: dict[int, int]) -> NoReturn:
    flags = syscalls.CLONE_PARENT | (namespaces.clone_flags() if config.plan.is_namespaced else 0)
    while True:
        data, fds = channel.recv_fds(sock, 4096)
        if not data:
            _supervisor_is_gone(config, keep)
        child, mask = REQUEST.unpack_from(data)
        if child == 0:
            importlib.import_module(data[REQUEST.size :].decode())
            gc.freeze()
            continue
        group = fds.pop() if mask & CGROUP_BIT else None
        try:
            pid, pidfd = syscalls.clone(flags, group)
        except OSError as error:
            sock.send(REPLY.pack(child, -(error.errno or 1)))
        else:
            if pid == 0:
                numbers = [n for n in range(31) if mask & (1 << n)]
                _be_child(config.plan, child, {**keep, **dict(zip(numbers, fds, strict=True))})
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pidfd]))]
            sock.sendmsg([REPLY.pack(child, pid)], rights)
            os.close(pidfd)
        for fd in [*fds, *([] if group is None else [group])]:
            os.close(fd)


def _be_child(plan: setup.Plan, child: int, fds: dict[int, int]) -> NoReturn:
    try:
        fds[1], fds[2] = fds.get(1, 1), fds.get(2, 2)
        setup.place(fds)
        if plan.is_namespaced:
            setup.become_init(plan)
        else:
            setup.die_with_parent(plan)
        setup.prepare(plan, child)
        sock = socket.socket(fileno=setup.DATA)
        if plan.codec == "json":
            untrusted = sys.modules["killpool.worker.untrusted"]
            os.write(setup.STATUS, setup.READY_BYTE)
            untrusted.serve_one(sock)
        page = channel.Page(setup.BOARD, PAGE + RING_SIZE)
        os.close(setup.BOARD)
        syscalls.membarrier_register()
        worker = serve.Worker(plan, page, sock)
        os.write(setup.STATUS, setup.READY_BYTE)
        worker.serve()
    except BaseException as error:  # the child's edge
        try:
            os.write(setup.STATUS, setup.FAILED_BYTE + f"worker: {type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(70)


def _supervisor_is_gone(config: Config, keep: dict[int, int]) -> NoReturn:
    # End-of-file alone could be a closed socket; the pidfd says that the process is dead.
    select.select([keep[setup.PARENT]], [], [], 2.0)
    if config.group:
        cgroup.kill_group(config.group)
    for _ in range(50):
        if not treekill.kill_tagged(config.plan.tag_level, config.plan.nonce):
            break
    if config.group:
        cgroup.remove_group(config.group)
    os._exit(0)
