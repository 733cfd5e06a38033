"""Reading /proc: who is whose child, what a tree uses, and the tag that marks a worker's descendants.

Pids are names that can be reused: a caller that wants to signal opens a pidfd and asks `parent_of` again.
"""

import os
import resource
from collections.abc import Iterable

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
TICK = 1.0 / os.sysconf("SC_CLK_TCK")

# RLIMIT_RTTIME bounds the CPU time of real-time threads only; a huge value limits nobody, and it survives fork, exec,
# setsid and an emptied environment, so it can carry a tag.  Bits: 2**(50 - level), then 20 of a nonce, 20 of a child.
_TAG_TOP = 50
_TAG_LEVELS = 9
TEMPLATE_CHILD = 0xFFFFF  # the highest number: a hard limit can only be lowered, and children come after it


def _read(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode("ascii", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _stat(pid: int) -> list[str]:
    # The command name stands in parentheses and may hold anything, parentheses and spaces included.
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def parent_of(pid: int) -> int:
    """Return the parent's pid, 0 if the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def state_of(pid: int) -> str:
    """Return the state letter as in ps (R, S, D, T, Z …), "" if the process is gone."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def children_of(pid: int) -> list[int]:
    """Return the pids of the children of all threads of `pid`, zombies included."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
    found: list[int] = []
    for thread in threads:
        found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def descendants_of(roots: Iterable[int]) -> dict[int, int]:
    """Return {pid: parent pid} of everything below `roots` (the roots not included)."""
    found: dict[int, int] = {}
    todo = list(roots)
    while todo:
        parent = todo.pop()
        for child in children_of(parent):
            if child not in found:
                found[child] = parent
                todo.append(child)
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the sum of the resident sizes of `pids`; shared pages count once a process."""
    pages = 0
    for pid in pids:
        fields = _read(f"/proc/{pid}/statm").split()
        if len(fields) > 2:
            # Pages shared with the template they were forked from are not this tree's doing: anonymous ones are.
            pages += int(fields[1]) - int(fields[2])
            pages += _shmem_pages(pid) if int(fields[2]) > 2048 else 0
    return pages * PAGE_SIZE


def _shmem_pages(pid: int) -> int:
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1]) * 1024 // PAGE_SIZE
    return 0


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the sum of the proportional set sizes (PSS) of `pids`, where unreadable their resident sizes.

    Exact where pages are shared, and dear: about 0.6 ms a process.
    """
    total = 0
    for pid in pids:
        try:
            lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
        except PermissionError:  # not dumpable: an init of ours, or a program that made itself so
            total += resident_bytes([pid])
            continue
        sizes = {fields[0]: int(fields[1]) * 1024 for fields in map(str.split, lines[1:]) if len(fields) > 1}
        # Linux 5.9 tells anonymous pages apart from mapped files; before, all count.
        total += sizes.get("Pss_Anon:", sizes.get("Pss:", 0)) + sizes.get("Pss_Shmem:", 0)
    return total


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return user + system seconds of `pids` and of the children they have waited for."""
    ticks = 0
    for pid in pids:
        fields = _stat(pid)
        if len(fields) > 14:
            ticks += sum(map(int, fields[11:15]))
    return ticks * TICK


def tag_level() -> int:
    """Return how deep this process is nested in workers: 0 outside, 1 in a pool's worker, and so on."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if soft < 2 ** (_TAG_TOP - _TAG_LEVELS) or soft >= 2 ** (_TAG_TOP + 1):
        return 0
    return _TAG_TOP - soft.bit_length() + 2


def make_tag(level: int, nonce: int, child: int) -> int:
    """Return the tag of child number `child` of the supervisor with `nonce` at `level`."""
    top = max(_TAG_TOP - level, _TAG_TOP - _TAG_LEVELS)
    return int(2**top) + ((nonce & 0xFFFFF) << 20) + (child & 0xFFFFF)


def set_tag(level: int, tag: int) -> None:
    """Mark this process and all that it will start.  The outermost tag stays in the hard limit."""
    hard = tag if level == 0 else resource.getrlimit(resource.RLIMIT_RTTIME)[1]
    resource.setrlimit(resource.RLIMIT_RTTIME, (tag, hard))


def tag_of(pid: int, level: int) -> int:
    """Return the tag of a process, 0 if it has none or it cannot be read."""
    try:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_RTTIME)
    except (ProcessLookupError, PermissionError):
        return 0
    return max(hard if level == 0 else soft, 0)


def tagged(level: int, nonce: int) -> list[int]:
    """Return all living processes of this machine that carry a tag of `nonce`: a scan of /proc."""
    found = []
    wanted = make_tag(level, nonce, 0) >> 20
    for name in os.listdir("/proc"):
        if name.isdigit() and tag_of(int(name), level) >> 20 == wanted and state_of(int(name)) not in ("Z", ""):
            found.append(int(name))
    return found
