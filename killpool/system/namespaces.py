"""PID namespaces: a worker as pid 2 below a tiny init of ours, unprivileged through a user namespace.

The kernel kills all members when the init ends, and lets it end only when all are gone: its death is the proof.
"""

import os

from killpool.system import syscalls


def clone_flags() -> int:
    """Return the clone flags that give this user a PID namespace: root needs no user namespace."""
    flags = syscalls.CLONE_NEWPID
    return flags if os.geteuid() == 0 else flags | syscalls.CLONE_NEWUSER


def probe() -> str:
    """Return "" if a PID namespace can be made here, else the reason.  Forks: for single-threaded processes only."""
    try:
        pid, pidfd = syscalls.clone(clone_flags())
    except OSError as error:
        return f"a PID namespace is refused here: {error.strerror}"
    if pid == 0:
        os._exit(0)
    os.close(pidfd)
    os.waitpid(pid, 0)
    return ""


def map_own_ids(uid: int, gid: int) -> None:
    """In a new user namespace, map the caller's own uid and gid onto themselves.

    An unprivileged writer may map only its own ids, and gid_map only after setgroups is denied (user_namespaces(7)).
    """
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
