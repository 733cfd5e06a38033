"""Entry of the supervisor process: exec'd by the host, lean, single-threaded.

    python -S -s -P -c '…main(…)' CONTROL_FD HOST_BELL_FD HOST_PID

It answers the host's first frame with `hello` (what it can do here) or `refused` (why not), then loops.
"""

import os
import signal
import sys
import time
from typing import Any

from killpool.spec import CONTROL_FRAME_MAX
from killpool.supervisor.births import Births
from killpool.supervisor.template import Config
from killpool.system import cgroup, channel, memory_cgroup, namespaces, procfs, rlimits, syscalls
from killpool.worker import setup


def main(control_fd: int, host_bell: int, host_pid: int) -> int:
    """Run one supervisor until its host closes it or dies."""
    import socket  # noqa: PLC0415

    host_pidfd = os.pidfd_open(host_pid)
    if os.getppid() != host_pid:
        return 1  # the host died before we looked; the pidfd may be somebody else's
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # it ends with its host, and by SIGKILL
    # Blocked before there is a child: the end of one that dies at once waits for the loop's signalfd.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    rlimits.raise_descriptors()
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    _raise_priority()
    control = channel.FrameSocket(socket.socket(fileno=control_fd), CONTROL_FRAME_MAX)
    settings = _first_frame(control)
    syscalls.set_process_name(f"kp-sup:{settings['name']}")
    refusal = _refusal(settings)
    if refusal:
        control.sock.setblocking(True)
        control.send({"op": "refused", "reason": refusal})
        return 2
    births = _births(settings, host_bell)
    control.send({"op": "hello", "contain": settings["contain"], "groups": births.config.groups, **_tag(births)})
    births.start_template()
    # Imported after the template's fork only in the sense of need: the loop is the supervisor's alone.
    from killpool.supervisor.loop import Supervisor  # noqa: PLC0415

    Supervisor(control, settings, births, host_pidfd).run()
    return 0


def _raise_priority() -> None:
    """Put the supervisor's session above those of its workers, where this user may (root).

    Each session is an autogroup, between which nice values count for nothing (sched(7)): eight busy workers would
    delay each kill by their time slices.  Workers are sessions of their own and stay at 0.
    """
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write("-15")
    except OSError:  # no right, or a kernel without autogroups
        return


def _first_frame(control: channel.FrameSocket) -> dict[str, Any]:
    import select  # noqa: PLC0415

    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        select.select([control], [], [], deadline - time.monotonic())
        for message, _fds in control.receive():
            return message
    raise SystemExit("killpool: the host sent nothing")


def _refusal(settings: dict[str, Any]) -> str:
    """Settle `contain`; return why this machine cannot do what was asked for, or ""."""
    wanted = settings["contain"]
    if os.readlink("/proc/self") != str(os.getpid()):
        return "the /proc mounted here belongs to another PID namespace, so process trees cannot be read"
    if wanted == "auto":
        settings["contain"] = "walk" if cgroup.probe() else "cgroup"
    elif wanted == "cgroup":
        reason = cgroup.probe()
        if reason:
            return f'contain="cgroup": {reason}'
    elif wanted == "pidns":
        reason = namespaces.probe()
        if reason:
            return f'contain="pidns": {reason}'
    for name, value in settings["rlimits"].items():
        reason = rlimits.check(name, value)
        if reason:
            return reason
    return ""


def _births(settings: dict[str, Any], host_bell: int) -> Births:
    nonce = int.from_bytes(os.urandom(3), "big") & 0xFFFFF or 1
    plan = setup.Plan(
        supervisor_pid=os.getpid(),
        tag_level=procfs.tag_level(),
        nonce=nonce,
        rlimits=settings["rlimits"],
        descriptors=settings["descriptors"] if settings["descriptors"] != rlimits.descriptors() else 0,
        name=settings["name"],
        is_namespaced=settings["contain"] == "pidns",
        captures=settings["capture"],
        codec=settings["codec"],
        uid=os.geteuid(),
        gid=os.getegid(),
        samples=settings["samples"],
        one_call=settings["one_call"],
        start_timeout_ns=int(settings["start_timeout"] * 1e9),
    )
    name = f"killpool-{os.getpid()}-{nonce:05x}"
    group = cgroup.make_pool_group(name) if settings["contain"] == "cgroup" else ""
    memory = settings["limits"].get("memory")
    made = memory_cgroup.make_group(name) if memory else None
    groups = (group, made[0] if made is not None else "")
    config = Config(plan, settings["sys_path"], settings["argv"], settings["preload"], settings["uses_site"], groups)
    is_trusted = settings["codec"] == "pickle"
    keep = {setup.PARENT: os.pidfd_open(os.getpid())}
    bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    if is_trusted:
        keep |= {setup.SUPERVISOR_BELL: bell, setup.HOST_BELL: host_bell}
    births = Births(config, settings["capture"], settings["capture_keep"], group, keep, bell, has_page=is_trusted)
    births.import_limit = plan.start_timeout_ns
    if made is not None:
        births.memory = (*made, int(memory))
    return births


def _tag(births: Births) -> dict[str, int]:
    plan = births.config.plan
    return {"tag_level": plan.tag_level, "nonce": plan.nonce}


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])))
