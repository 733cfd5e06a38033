"""cgroup v2 leaves: the kernel's own set of a worker's processes, with one write that kills them all.

A pool gets a folder below the cgroup its supervisor runs in, a worker a leaf in it.  `cgroup.kill` (Linux 5.14)
also kills what a member is just forking.  Only where that folder may be created: as root, or by delegation.
"""

import os

from killpool.system import syscalls


def _own_folder() -> str:
    """Return the path of this process's cgroup v2 folder, "" if no cgroup2 is mounted."""
    mount = ""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            fields = line.split()
            if len(fields) > 2 and fields[2] == "cgroup2":
                mount = fields[1]
    with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as groups:
        for line in groups:
            if mount and line.startswith("0::"):
                return mount + line[3:].rstrip("\n").rstrip("/")
    return ""


def probe() -> str:
    """Return "" if worker cgroups can be made here, else the reason why not."""
    folder = _own_folder()
    if not folder:
        return "no cgroup v2 hierarchy is mounted"
    trial = f"{folder}/killpool-probe-{os.getpid()}"
    try:
        os.mkdir(trial)
    except OSError as error:
        return f"cannot create a cgroup in {folder}: {error.strerror}"
    try:
        if not os.path.exists(f"{trial}/cgroup.kill"):
            return "this kernel has no cgroup.kill (Linux 5.14 or newer has it)"
        return _trial_clone(trial)
    finally:
        os.rmdir(trial)


def _trial_clone(path: str) -> str:
    """Clone a child into the cgroup at `path`; return "" if it lives to exit by itself.  Single-threaded callers only.

    The kernel compares how often the forker's and the target's cgroup were killed, and kills the child if they differ.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        pid, pidfd = syscalls.clone(0, folder)
    except OSError as error:
        return f"cannot clone into a cgroup: {error.strerror}"
    finally:
        os.close(folder)
    if pid == 0:
        os._exit(0)
    os.close(pidfd)
    _pid, status = os.waitpid(pid, 0)
    return "" if status == 0 else "children cloned into a new cgroup are killed here (this cgroup was killed before)"


def kill_group(path: str) -> None:
    """SIGKILL everything in the cgroup at `path` ("" for none) and below; a missing one is empty already."""
    if not path:
        return
    try:
        with open(f"{path}/cgroup.kill", "wb", buffering=0) as file:
            file.write(b"1")
    except OSError:
        return


def is_populated(path: str) -> bool:
    """Say whether a living process is in the cgroup at `path` or below."""
    try:
        with open(f"{path}/cgroup.events", "rb", buffering=0) as file:
            return b"populated 1" in file.read()
    except OSError:  # ENOENT, or ENODEV when it is removed in the middle
        return False


def remove_group(path: str) -> None:
    """Remove the folder at `path` ("" for none) and all below it; what is still populated stays."""
    if not path:
        return
    try:
        os.rmdir(path)
        return
    except FileNotFoundError:
        return
    except OSError:  # it has folders of its own: nested pools
        names = os.listdir(path)
    for name in names:
        if os.path.isdir(f"{path}/{name}"):
            remove_group(f"{path}/{name}")
    _rmdir(path)


def _rmdir(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        return


def _pids(path: str) -> list[int]:
    try:
        with open(f"{path}/cgroup.procs", "rb", buffering=0) as file:
            found = [int(line) for line in file.read().split()]
        if os.stat(path).st_nlink > 2:  # kernfs counts the folders in it
            for name in os.listdir(path):
                if os.path.isdir(f"{path}/{name}"):
                    found += _pids(f"{path}/{name}")
    except OSError:  # removed in the middle: nobody is in it
        return []
    return found


class Leaf:
    """One worker's cgroup: enter it by clone (through `fd`), kill it whole, read who is in it."""

    def __init__(self, path: str) -> None:
        os.mkdir(path)
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._kill = os.open(f"{path}/cgroup.kill", os.O_WRONLY)
        self._events = os.open(f"{path}/cgroup.events", os.O_RDONLY)

    def kill(self) -> None:
        """SIGKILL every member, those being forked included."""
        os.pwrite(self._kill, b"1", 0)

    def is_populated(self) -> bool:
        """Say whether a living member is left."""
        return b"populated 1" in os.pread(self._events, 256, 0)

    def pids(self) -> list[int]:
        """Return the members' pids, those of nested pools below included."""
        return _pids(self.path)

    def close(self) -> None:
        """Close the descriptors and remove the folder if it is empty."""
        for fd in (self.fd, self._kill, self._events):
            os.close(fd)
        remove_group(self.path)  # with what a nested pool of a killed worker left in it


def make_pool_group(name: str) -> str:
    """Create and return the folder of a pool below this process's cgroup."""
    path = f"{_own_folder()}/{name}"
    os.mkdir(path)
    return path
