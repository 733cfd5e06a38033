"""Who is alive and what is left: read from /proc, so that no test has to believe what killpool says of itself.

A process is found by a mark, a unique short word in its command name (forks inherit that), its arguments or its
environment.  A zombie is not alive.  Nothing here signals anything.
"""

import gc
import os
import secrets
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT_MARK = "KILLPOOL_TEST_MARK"
PATIENCE = 30.0  # seconds until a wait for something that must come is given up


def new_mark() -> str:
    """Return a unique word that fits into a command name (15 bytes) with one byte to spare."""
    return "kt" + secrets.token_hex(6)


def wear(mark: str) -> int:
    """Give this process, and all that it forks from now on, the mark; return its pid as the host sees it.

    /proc is the host's, also in a PID namespace, so /proc/self there names the outer pid.
    """
    Path("/proc/self/comm").write_text(mark)
    return outer_pid()


def complete(mark: str) -> str:
    """Return the mark as a process wears it once it has started all that it will start."""
    return mark + "!"


def outer_pid() -> int:
    """Return the caller's pid in the PID namespace of the mounted /proc."""
    return int(os.readlink("/proc/self"))


# -- one process


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def _stat(pid: int) -> list[str]:
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    return _read(f"/proc/{pid}/stat").decode("ascii", "replace").rpartition(")")[2].split()


def state(pid: int) -> str:
    """Return the state letter as in ps, "" if there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def is_alive(pid: int) -> bool:
    """Say whether `pid` is a process that still runs or could run again."""
    return state(pid) not in ("", "Z", "X")


def is_stopped(pid: int) -> bool:
    """Say whether `pid` is stopped by a signal."""
    return state(pid) in ("T", "t")


def parent(pid: int) -> int:
    """Return the pid of the parent, 0 if there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def started_at(pid: int) -> int:
    """Return the start time in clock ticks after boot: with the pid it names a process for good."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def command_name(pid: int) -> str:
    """Return the command name, "" if there is no such process."""
    return _read(f"/proc/{pid}/comm").decode(errors="replace").rstrip("\n")


def arguments(pid: int) -> list[str]:
    """Return the argument vector."""
    return _read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")[:-1]


def environment(pid: int) -> list[str]:
    """Return the environment that the process was exec'd with, [] where it may not be read."""
    return _read(f"/proc/{pid}/environ").decode(errors="replace").split("\0")


# -- many


def pids() -> Iterator[int]:
    """Yield every process of the machine."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def find(mark: str) -> list[int]:
    """Return the living processes that wear `mark` as their command name, or carry it in an argument."""
    word = mark.encode()
    return sorted(
        pid
        for pid in pids()
        if (word in _read(f"/proc/{pid}/comm") or word in _read(f"/proc/{pid}/cmdline")) and is_alive(pid)
    )


def find_by_environment(mark: str) -> list[int]:
    """Return the living processes, the caller excepted, whose environment had `mark` when they were exec'd."""
    word = mark.encode()
    me = outer_pid()
    return sorted(p for p in pids() if p != me and word in _read(f"/proc/{p}/environ") and is_alive(p))


def machinery_of(host: int) -> list[int]:
    """Return the living killpool processes (supervisor, template, workers and their forks) of a host process.

    They all have the arguments their supervisor was exec'd with, and the last of these is the host's pid.
    """
    found = []
    for pid in pids():
        words = arguments(pid)
        if (
            len(words) > 4
            and words[-1] == str(host)
            and any("killpool.supervisor" in w for w in words)
            and is_alive(pid)
        ):
            found.append(pid)
    return sorted(found)


def children(pid: int | None = None) -> list[int]:
    """Return the children of all threads of a process (by default the caller), zombies included."""
    owner = pid if pid is not None else outer_pid()
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{owner}/task")
    except OSError:
        return []
    for thread in threads:
        found += map(int, _read(f"/proc/{owner}/task/{thread}/children").split())
    return sorted(found)


def zombies(pid: int | None = None) -> list[int]:
    """Return the children that have ended and were not waited for."""
    return [child for child in children(pid) if state(child) == "Z"]


def open_files(pid: int | None = None) -> dict[str, str]:
    """Return {descriptor: what it is} of a process (by default the caller)."""
    folder = f"/proc/{pid if pid is not None else 'self'}/fd"
    found = {}
    for name in os.listdir(folder):
        try:
            found[name] = os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def cgroups() -> set[str]:
    """Return the cgroup folders that killpool made, of any pool of this machine."""
    walk = os.walk("/sys/fs/cgroup")  # other than a glob it does not mind what vanishes meanwhile
    return {f"{folder}/{name}" for folder, names, _files in walk for name in names if name.startswith("killpool-")}


def _abandoned_cgroups() -> set[str]:
    """Return those whose supervisor, named in the folder's name, is dead: a living one is somebody else's."""
    return {path for path in cgroups() if not _is_of_others(path.rpartition("/")[2])}


def _is_of_others(name: str) -> bool:
    """Say whether a name holds the pid of a living process other than the caller, as multiprocessing's and ours do."""
    words = [int(word) for word in name.split("-") if word.isdigit()]
    return any(word != os.getpid() and is_alive(word) for word in words)


# -- waiting


def breathe() -> None:
    """Let others run between two looks: on few cores a busy loop would keep what it waits for from happening."""
    select.poll().poll(1)


def wait_until(is_so: Callable[[], object], limit: float = PATIENCE) -> bool:
    """Look until `is_so()` is true; return whether it became so within `limit` seconds."""
    end = time.monotonic() + limit
    while not is_so():
        if time.monotonic() >= end:
            return bool(is_so())
        breathe()
    return True


def wait_for(count: int, mark: str, unless: Callable[[], bool] = lambda: False, limit: float = PATIENCE) -> list[int]:
    """Wait until a process says that its tree is complete and `count` are alive, or `unless()`; return who is alive.

    A tree that is being built has other members than one that is complete: those that only fork and end.
    """
    wait_until(lambda: unless() or (find(complete(mark)) and len(find(mark)) >= count), limit)
    return find(mark)


def wait_file(path: str | os.PathLike[str], limit: float = PATIENCE) -> str:
    """Wait until `path` exists and ends with a newline; return its text."""

    def is_whole() -> bool:
        return _read(os.fspath(path)).endswith(b"\n")

    assert wait_until(is_whole, limit), f"{path} did not appear within {limit} s"
    return Path(path).read_text()


def gone(pids_: Iterable[int], limit: float = PATIENCE) -> bool:
    """Wait until none of the processes is alive; return whether it came so."""
    wanted = list(pids_)
    return wait_until(lambda: not any(map(is_alive, wanted)), limit)


def kill_exactly(pid: int, number: int = signal.SIGKILL) -> bool:
    """Signal one process through a pidfd; False if it was gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


# -- nothing may be left

_FD_SLACK = 2
_SETTLE = 10.0  # seconds in which what is ending may end: ten times what a loaded machine was seen to need


@dataclass(frozen=True)
class Snapshot:
    """What this process and the machine had at one moment."""

    children: frozenset[int]
    threads: frozenset[threading.Thread]
    tasks: int
    fds: dict[str, str]
    shm: frozenset[str]
    cgroups: frozenset[str]

    @classmethod
    def take(cls) -> "Snapshot":
        """Look now."""
        return cls(
            children=frozenset(children()),
            threads=frozenset(threading.enumerate()),
            tasks=len(os.listdir("/proc/self/task")),
            fds=open_files(),
            shm=frozenset(os.listdir("/dev/shm")),
            cgroups=frozenset(cgroups()),
        )

    def leftovers(self, mark: str = "", folder: str | None = None) -> dict[str, object]:
        """Return what there is now and was not then, by kind; {} is the aim.

        `mark` is looked for in environments; `folder` (TMPDIR) must be empty.
        """
        found: dict[str, object] = {}
        new_children = [p for p in children() if p not in self.children]
        if new_children:
            found["children"] = [describe(p) for p in new_children]
        marked = [p for p in find_by_environment(mark) if p not in self.children] if mark else []
        if marked:
            found["processes"] = [describe(p) for p in marked]
        threads = [t.name for t in threading.enumerate() if t not in self.threads]
        tasks = len(os.listdir("/proc/self/task"))
        if threads or tasks > self.tasks:
            found["threads"] = threads or tasks - self.tasks
        fds = open_files()
        if abs(len(fds) - len(self.fds)) > _FD_SLACK:
            found["fds"] = sorted(set(fds.items()) ^ set(self.fds.items()))
        shm = {name for name in set(os.listdir("/dev/shm")) - self.shm if not _is_of_others(name)}
        if shm:
            found["shm"] = sorted(shm)
        groups = _abandoned_cgroups() - self.cgroups
        if groups:
            found["cgroups"] = sorted(groups)
        files = sorted(os.listdir(folder)) if folder else []
        if files:
            found["temporary files"] = files
        return found

    def settle(self, mark: str = "", folder: str | None = None, limit: float = _SETTLE) -> dict[str, object]:
        """Wait until nothing is left, at most `limit` seconds; return the leftovers of the last look."""
        gc.collect()  # a pool that was only dropped closes when it is collected
        left: dict[str, object] = {}

        def is_clean() -> bool:
            nonlocal left
            left = self.leftovers(mark, folder)
            return not left

        wait_until(is_clean, limit)
        return left


def describe(pid: int) -> str:
    """Return one line about a process, for a failing test's message."""
    return f"{pid} {state(pid) or 'gone'} parent={parent(pid)} {command_name(pid)!r} {' '.join(arguments(pid))[-60:]!r}"


@contextmanager
def nothing_left(mark: str = "", folder: str | None = None) -> Iterator[Snapshot]:
    """Assert that the block leaves no child, thread, descriptor, shared memory, cgroup, process or file behind."""
    before = Snapshot.take()
    yield before
    left = before.settle(mark, folder)
    assert left == {}, f"left behind: {left}"


def temporary_folder() -> str:
    """Return the folder where temporary files go now."""
    return tempfile.gettempdir()
