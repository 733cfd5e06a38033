"""Task functions of the reported cases: importable by name in a worker, light to import.

A `mark` is worn as command name, so that the test can prove that a process lived (`census.find`).  A `gate` is a
FIFO: who reads it waits until the test opens it.
"""

import concurrent.futures
import ctypes
import json
import logging
import multiprocessing
import multiprocessing.shared_memory
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import census

PAGE = os.sysconf("SC_PAGE_SIZE")


# -- harmless ones


def square(n: int) -> int:
    """Return n squared."""
    return n * n


def nothing(_: object = None) -> None:
    """Do nothing."""


def echo(value: Any) -> Any:
    """Return the argument."""
    return value


def size_of(data: bytes) -> int:
    """Return the length of the argument."""
    return len(data)


def big(size: int) -> bytes:
    """Return so many bytes."""
    return b"r" * size


def pid(_: object = None) -> int:
    """Return the worker's pid."""
    return os.getpid()


def sleep(seconds: float) -> float:
    """Sleep; return the argument."""
    time.sleep(seconds)
    return seconds


def sleep_then(seconds: float, value: Any) -> Any:
    """Sleep, then return the second argument."""
    time.sleep(seconds)
    return value


def block(_: object = None) -> NoReturn:
    """Never return, whatever signal comes."""
    while True:
        time.sleep(1000)


def block_as(mark: str) -> NoReturn:
    """Wear the mark and never return."""
    census.wear(mark)
    block()


def append(path: str, line: str) -> str:
    """Append a line with one write, which O_APPEND makes atomic; return it."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)
    return line


def append_and_pass(path: str, line: str, gate: str) -> int:
    """Append a line, then wait at the gate; return the worker's pid."""
    append(path, line)
    with open(gate, "rb") as file:
        file.read()
    return os.getpid()


def pass_gate(gate: str) -> int:
    """Wait at the gate; return the worker's pid."""
    with open(gate, "rb") as file:
        file.read()
    return os.getpid()


def open_gate(gate: str) -> None:
    """Let those who wait at the gate pass."""
    with open(gate, "wb"):
        pass


def fork_and_block() -> NoReturn:
    """Fork 20 sleepers, and block."""
    fork_many(20)
    block()


def spin(seconds: float) -> float:
    """Use so many seconds of CPU; return the wall-clock seconds that took."""
    started, end = time.monotonic(), time.process_time() + seconds
    while time.process_time() < end:
        pass
    return time.monotonic() - started


def die(number: int = signal.SIGKILL) -> NoReturn:
    """Send this process a signal."""
    os.kill(os.getpid(), number)
    block()


def die_if(condition: object, value: Any) -> Any:
    """Die by SIGKILL if the condition is true, else return the value."""
    if condition:
        die()
    return value


def read_null() -> NoReturn:
    """Read address 0."""
    ctypes.string_at(0)
    block()


def segfault_if_three(n: int) -> int:
    """Return n squared, but crash in C code for 3."""
    if n == 3:
        read_null()
    return n * n


def raise_value_error(text: str) -> NoReturn:
    """Raise."""
    raise ValueError(text)


def start_sleeper(mark: str) -> int:
    """Start a sleeper that inherits stdout and stderr and has a session of its own; return its pid."""
    return subprocess.Popen([mark, "60"], executable="/bin/sleep", start_new_session=True).pid


# -- 1: timeouts


def hold_gil(_: object = None) -> None:
    """Sit in C code that holds the GIL."""
    read, _write = os.pipe()
    ctypes.PyDLL(None).read(read, ctypes.create_string_buffer(1), 1)


def stubborn_cleanup(path: str) -> None:
    """Sleep, with a clean-up of 60 seconds that first says that it was begun."""
    append(path, "task")
    try:
        time.sleep(30)
    finally:
        append(path, "clean-up")
        time.sleep(60)


def swallow_everything(path: str) -> NoReturn:
    """Catch whatever is raised, for ever."""
    append(path, "task")
    while True:
        try:
            time.sleep(30)
        except BaseException:
            append(path, "clean-up")


_port: socket.socket | None = None


def bind_port(path: str, port: int) -> None:
    """Bind the port and keep it; write whether that worked."""
    global _port
    try:
        _port = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        append(path, f"failed: {error}")
        raise
    append(path, "bound")


def bound_port() -> int:
    """Return the port that this worker holds."""
    assert _port is not None
    return int(_port.getsockname()[1])


def block_with_heir(mark: str) -> NoReturn:
    """Leave the worker's sockets to a child in a session of its own, and block."""
    if os.fork() == 0:
        os.setsid()
        census.wear(mark)
        block()
    block()


# -- limits


def take_memory(size: int) -> int:
    """Touch `size` bytes and give them back."""
    data = bytearray(size)
    data[::PAGE] = b"x" * len(data[::PAGE])
    return len(data)


def hog_memory(size: int) -> NoReturn:
    """Touch `size` bytes and keep them."""
    data = bytearray(size)
    data[::PAGE] = b"x" * len(data[::PAGE])
    block()


def open_many(count: int) -> int:
    """Open that many files."""
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
    for fd in files:
        os.close(fd)
    return count


def write_file(path: str, size: int) -> int:
    """Write a file of that size."""
    with open(path, "wb") as file:
        return file.write(b"f" * size)


def print_bytes(count: int) -> int:
    """Write exactly so many bytes to stdout; return 1."""
    while count:
        count -= os.write(1, b"o" * min(count, 65536))
    return 1


def fork_many(count: int) -> int:
    """Fork that many sleepers; return how many there are."""
    for n in range(count):
        try:
            if os.fork() == 0:
                block()
        except OSError:
            return n
    return count


_leak: list[bytearray] = []


def leak(size: int) -> tuple[int, int]:
    """Keep `size` bytes for ever; return (pid, resident bytes)."""
    _leak.append(bytearray(os.urandom(1)) * size)
    return os.getpid(), resident()


def resident(owner: int | None = None) -> int:
    """Return the resident bytes of a process, by default this one."""
    with open(f"/proc/{owner or os.getpid()}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE


def take_with_extension(size: int) -> int:
    """Import a C extension, then take memory."""
    import sqlite3  # noqa: PLC0415

    sqlite3.connect(":memory:").execute("select 1").fetchone()
    return take_memory(size)


# -- 3: results


def value_and_late_death() -> int:
    """Return 5, with a thread that kills the process 50 ms later."""
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return 5


def hang_or_raise(n: int) -> int:
    """Hang for 50, raise for 60, else return n."""
    if n == 50:
        block()
    if n == 60:
        raise ValueError("sixty")
    return n


def hang_at_seven(n: int) -> int:
    """Hang for 7, else return n."""
    if n == 7:
        block()
    return n


def hang_every_hundredth(n: int) -> int:
    """Hang for 0, 100, 200…, else sleep for 1 ms."""
    if n % 100 == 0:
        block()
    time.sleep(0.001)
    return n


# -- 4: orphans


def print_and_leave_sleeper(text: str, mark: str) -> NoReturn:
    """Print, start a sleeper that holds the output pipe, and hang."""
    print(text, flush=True)
    start_sleeper(mark)
    block()


def sleeper_then_death(path: str, gate: str, mark: str) -> NoReturn:
    """Start a sleeper, tell its pid through a file, wait at the gate, and die."""
    append(path, str(start_sleeper(mark)))
    pass_gate(gate)
    die()


# -- 5: locks of the host


def log_once(n: int) -> int:
    """Log a record and print a line."""
    logging.getLogger("reports").warning("record %d", n)
    print(f"line {n}")
    return n


def one_shared_block(n: int) -> int:
    """Create, use and drop one block of shared memory, and a semaphore."""
    block_ = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    block_.buf[0] = n % 256
    block_.close()
    block_.unlink()
    with multiprocessing.Semaphore(1):
        return n


# -- 6: pickling


class Holder:
    """An object with something in an attribute."""

    def __init__(self, inside: object) -> None:
        self.inside = inside


def lock_result() -> object:
    """Return a lock."""
    return threading.Lock()


def nested_lock_result() -> object:
    """Return a lock, deep inside."""
    return {"rows": [1, Holder(threading.Lock())]}


def generator_result() -> Iterator[int]:
    """Return a generator."""
    return (n for n in range(3))


def lock_error() -> NoReturn:
    """Raise an exception that holds a lock."""
    error = ValueError("holds a lock")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    raise error


class RaisesInState:
    """An argument whose pickling raises."""

    def __getstate__(self) -> NoReturn:
        raise RuntimeError("state is not ready")


class Hook:
    """A value that creates a file in whichever process rebuilds it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return append, (self.path, "rebuilt")


def hook_result(path: str) -> Hook:
    """Return such a value."""
    return Hook(path)


def forge_result(forged: int) -> int:
    """Write what may look like a result to stdout and to every descriptor above 2; return 5."""
    from killpool.core import wire  # noqa: PLC0415

    answer = json.dumps({"ok": True, "value": forged}).encode()
    value = pickle.dumps(forged, 5)
    frames = [
        wire.LENGTH.pack(len(answer)) + answer,
        wire.RECORD.pack(wire.KIND_VALUE, len(value), 1, 1, 1, 0, 0, 0, len(value)) + value,
        b"\x06" + value,
    ]
    for fd in (1, *range(3, 256)):
        for frame in frames:
            try:
                os.set_blocking(fd, False)
                os.write(fd, frame)
            except OSError:
                continue
    return 5


# -- 9: output


def print_then_hang(text: str, flush: bool) -> NoReturn:
    """Print and hang."""
    print(text, flush=flush)
    block()


def print_lines(name: int, count: int) -> int:
    """Print numbered lines, and let a shell print one more."""
    for n in range(count):
        print(f"task {name} line {n}")
    subprocess.run(["/bin/sh", "-c", f"echo task {name} shell"], check=True)
    return name


def print_numbers(last: int, then: str) -> int:
    """Print 1 to `last`, then return, hang or die."""
    sys.stdout.write("".join(f"{n}\n" for n in range(1, last + 1)))
    sys.stdout.flush()
    if then == "hang":
        block()
    if then == "die":
        die()
    return last


def ask() -> str:
    """Read standard input."""
    return input("name? ")


# -- 10: signals


def dispositions(_: object = None) -> dict[str, str]:
    """Return how this process takes some signals, and which it blocks."""
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGALRM", "SIGCHLD")
    found = {name: str(signal.getsignal(getattr(signal, name))) for name in names}
    return found | {
        "blocked": str(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "wakeup": str(signal.set_wakeup_fd(-1)),
    }


def stuck_in_a_named_function(how: str, mark: str) -> None:
    """Hang in a function whose name is to be found."""
    census.wear(mark)
    _the_guilty_function(how)


def _the_guilty_function(how: str) -> None:
    if how == "C code":
        hold_gil()
    elif how == "deaf":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        block()
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        block()


# -- 11: pools in tasks


def _executor(kind: str) -> Any:
    if kind == "killpool":
        from killpool import Pool  # noqa: PLC0415

        return Pool(2)
    return concurrent.futures.ProcessPoolExecutor(2)


def map_in_pool(kind: str) -> list[int]:
    """Map a square over a pool of two processes."""
    if kind == "multiprocessing":
        with multiprocessing.Pool(2) as inner:
            return inner.map(square, range(5))
    with _executor(kind) as inner:
        return list(inner.map(square, range(5)))


def hang_in_pool(kind: str, mark: str, gate: str) -> NoReturn:
    """Let both processes of an inner pool wear the mark and hang."""
    if kind == "multiprocessing":
        with multiprocessing.Pool(2) as inner:
            inner.map(block_as, [mark, mark])
    with _executor(kind) as inner:
        list(inner.map(block_as, [mark, mark]))
    block()


def nested_pools(levels: int, gate: str, path: str) -> int:
    """Open a pool in a pool's task, `levels` deep; the innermost waits at the gate."""
    from killpool import Pool  # noqa: PLC0415

    if levels == 0:
        append(path, "ready")
        return pass_gate(gate)
    with Pool(1) as inner:
        return int(inner.submit(nested_pools, levels - 1, gate, path).result())


# -- 13: what workers start with

REGISTRY: dict[str, str] = {}


def register(name: str, handler: str, path: str | None = None) -> None:
    """Register a handler in this process."""
    REGISTRY[name] = handler
    if path is not None:
        append(path, str(os.getpid()))


def look_up(name: str) -> str | None:
    """Return the handler, None if there is none here."""
    return REGISTRY.get(name)


# -- 16: retries


def stamp_then_hang(path: str) -> None:
    """Write who starts and who of the earlier attempts still lives; hang."""
    before = [int(line.split()[1]) for line in _lines(path)]
    alive = [p for p in before if census.is_alive(p)]
    append(path, f"start {os.getpid()} {time.monotonic()} alive={alive}")
    time.sleep(5)
    append(path, f"end {os.getpid()} {time.monotonic()} alive=[]")


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def append_then_die(path: str) -> NoReturn:
    """Count this run, and die."""
    append(path, "run")
    die()


def append_then_raise(path: str) -> NoReturn:
    """Count this run, and raise."""
    append(path, "run")
    raise ValueError("an answer, not a death")


def append_then_hog(path: str, size: int) -> NoReturn:
    """Count this run, and take too much memory."""
    append(path, "run")
    hog_memory(size)


def die_first_time(path: str) -> int:
    """Die in the first run; return 7 in the second."""
    append(path, "run")
    if len(_lines(path)) == 1:
        die()
    return 7


# -- 17, 23: what one task leaves to the next


def change_state(folder: str) -> None:
    """Change directory, add a builtin, set a variable."""
    import builtins  # noqa: PLC0415

    os.chdir(folder)
    builtins.left_behind = True  # type: ignore[attr-defined]
    os.environ["LEFT_BEHIND"] = "yes"


def report_state() -> tuple[str, bool, bool]:
    """Return (directory, is the builtin there, is the variable there)."""
    import builtins  # noqa: PLC0415

    return os.getcwd(), hasattr(builtins, "left_behind"), "LEFT_BEHIND" in os.environ


def sleeper_and_return(path: str, mark: str) -> None:
    """Start a sleeper, tell its pid, and wait for good."""
    append(path, str(start_sleeper(mark)))
    block()


# -- 26: initializers


def die_after(path: str, seconds: float) -> NoReturn:
    """Initialize for so long, then end without a word."""
    append(path, repr(time.monotonic()))
    time.sleep(seconds)
    os._exit(1)


def descriptor_limit() -> tuple[int, int]:
    """Return the limits on open files."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def fork_bomb(mark: str, count: int) -> NoReturn:
    """Wear the mark, fork that many sleepers, and block."""
    census.wear(mark)
    fork_many(count)
    block()
