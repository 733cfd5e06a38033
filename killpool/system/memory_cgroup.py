"""Memory limits by cgroup: the kernel's own count of a worker's tree, a hard cap, and the proof that it was met.

v2 where this process's own cgroup hands the memory controller down to its children, else v1.  Where neither may be
used, memory is sampled (see `supervisor.sampling`), which is the second watch here too.
"""

import os

_MEMBERS = "cgroup.procs"


def _mounts() -> list[tuple[str, str, str]]:
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        rows = [line.split() for line in mounts]
    return [(row[1], row[2], row[3]) for row in rows if len(row) > 3]


def _own_path(controller: str) -> str:
    with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as groups:
        for line in groups:
            _number, names, path = line.rstrip("\n").split(":", 2)
            if controller in names.split(",") or (not controller and not names):
                return path.rstrip("/")
    return ""


def _parents() -> list[tuple[str, str]]:
    """Return (folder below which groups may be made, name of the limit file), best first."""
    found: list[tuple[str, str]] = []
    for mount, kind, options in _mounts():
        if kind == "cgroup2":
            folder = mount + _own_path("")
            try:
                with open(f"{folder}/cgroup.subtree_control", encoding="ascii") as file:
                    hands_down = "memory" in file.read().split()
            except OSError:
                continue
            if hands_down:
                found.insert(0, (folder, "memory.max"))
        elif kind == "cgroup" and "memory" in options.split(","):
            found.append((mount + _own_path("memory"), "memory.limit_in_bytes"))
    return found


def make_group(name: str) -> "tuple[str, str] | None":
    """Create the folder of a pool; return (path, limit file), None where memory cgroups cannot be made."""
    for folder, limit in _parents():
        path = f"{folder}/{name}"
        try:
            os.mkdir(path)
            if limit == "memory.limit_in_bytes":
                return path, limit
            with open(f"{path}/cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write("+memory")
            return path, limit
        except OSError:
            _rmdir(path)
    return None


def _rmdir(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        return


class MemoryLeaf:
    """The memory cgroup of one child."""

    def __init__(self, path: str, limit_file: str, limit: int) -> None:
        os.mkdir(path)
        self.path = path
        self.limit = limit
        self._is_v1 = limit_file == "memory.limit_in_bytes"
        with open(f"{path}/{limit_file}", "w", encoding="ascii") as file:
            file.write(str(limit))

    def add(self, pid: int) -> None:
        """Move a process in: what it allocates from now on counts, and so does all that it starts."""
        with open(f"{self.path}/{_MEMBERS}", "w", encoding="ascii") as file:
            file.write(str(pid))

    def oom_kills(self) -> int:
        """Return how often the kernel has killed in this group for want of memory."""
        name = "memory.oom_control" if self._is_v1 else "memory.events"
        try:
            with open(f"{self.path}/{name}", encoding="ascii") as file:
                counts = dict(line.split() for line in file)
        except OSError:
            return 0
        return int(counts.get("oom_kill", 0))

    def close(self) -> None:
        """Remove the folder."""
        _rmdir(self.path)


def remove_group(path: str) -> None:
    """Remove a pool's folder ("" for none) and its leaves; what still has members stays."""
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        if os.path.isdir(f"{path}/{name}"):
            _rmdir(f"{path}/{name}")
    _rmdir(path)
