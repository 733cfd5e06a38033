"""Task functions: importable by name in a worker, each small enough to see what it does to its process.

A `mark` is worn as command name, so whatever a task forks is found by `census.find`.  A `gate` is a FIFO: the task
waits in `pass_gate` until the test has seen what it wanted to see and calls `open_gate`.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import census

BUSH = 100

# -- harmless ones


def add(a: int, b: int) -> int:
    """Return the sum."""
    return a + b


def echo(value: Any) -> Any:
    """Return the argument."""
    return value


def pid(_: object = None) -> int:
    """Return the worker's pid as the host sees it."""
    return census.outer_pid()


def append(path: str, line: str) -> str:
    """Append a line with one write, which O_APPEND makes atomic; return it."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)
    return line


def block() -> NoReturn:
    """Never return, whatever signal comes: signal.pause() would."""
    while True:
        time.sleep(1000)


def block_as(mark: str) -> NoReturn:
    """Wear the mark and never return."""
    census.wear(mark)
    _complete(mark)


def _complete(mark: str) -> NoReturn:
    """Say that all that was to be started is started, and never return."""
    census.wear(census.complete(mark))
    block()


def spin(seconds: float) -> float:
    """Keep a CPU busy for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return seconds


def pass_gate(gate: str, mark: str = "") -> int:
    """Wait until somebody opens the FIFO at the other end; return the worker's pid."""
    if mark:
        census.wear(census.complete(mark))
    with open(gate, "rb") as file:
        file.read()
    return census.outer_pid()


def open_gate(gate: str) -> None:
    """Let those who wait at the gate pass."""
    with open(gate, "wb"):
        pass


# -- trees: each wears the mark, starts what it has to start, and blocks


def _fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def alone(mark: str) -> NoReturn:
    """Block; nothing else."""
    block_as(mark)


def single_fork(mark: str) -> NoReturn:
    """Fork once; both block."""
    census.wear(mark)
    _fork(block)
    _complete(mark)


def double_fork(mark: str) -> NoReturn:
    """Daemonise a grandchild the classical way; its parent ends at once."""
    census.wear(mark)

    def between() -> None:
        _fork(block)

    os.waitpid(_fork(between), 0)
    _complete(mark)


def new_session(mark: str) -> NoReturn:
    """Fork a child that leads a session of its own."""
    census.wear(mark)

    def leader() -> None:
        os.setsid()
        block()

    _fork(leader)
    _complete(mark)


def daemon(mark: str) -> NoReturn:
    """Double fork with a session in between, and an exec with an empty environment at the end."""
    census.wear(mark)

    def between() -> None:
        os.setsid()
        _fork(lambda: os.execve("/bin/sleep", [mark, "1000"], {}))

    os.waitpid(_fork(between), 0)
    _complete(mark)


def bush(mark: str, size: int = BUSH) -> NoReturn:
    """Fork a chain of size / 10 and nine from each, all in sessions of their own; their parents go on living."""
    census.wear(mark)

    def leaf() -> None:
        os.setsid()
        block()

    def stem(left: int) -> None:
        os.setsid()
        for _ in range(9):
            _fork(leaf)
        if left > 1:
            _fork(lambda: stem(left - 1))
        block()

    _fork(lambda: stem(size // 10))
    _complete(mark)


def pipe_held(mark: str) -> NoReturn:
    """Print, then leave stdout and stderr open in a daemon."""
    print("before the fork", flush=True)
    double_fork(mark)


def stopped(mark: str) -> NoReturn:
    """Stop this process by SIGSTOP."""
    census.wear(census.complete(mark))
    os.kill(os.getpid(), signal.SIGSTOP)
    block()


def in_c_code(mark: str) -> None:
    """Sit in C code that holds the GIL: no Python signal handler can run, and read(2) starts again after any."""
    read, _write = os.pipe()
    census.wear(census.complete(mark))
    ctypes.PyDLL(None).read(read, ctypes.create_string_buffer(1), 1)


def in_c_sleep(mark: str) -> str:
    """Sleep in C code that returns early when any signal comes."""
    census.wear(census.complete(mark))
    ctypes.PyDLL(None).sleep(1000)
    return "woken"


def in_big_power(mark: str) -> int:
    """Compute, in one C call that holds the GIL, a number that takes minutes."""
    census.wear(census.complete(mark))
    return 10 ** (10**8)


def deaf(mark: str) -> NoReturn:
    """Ignore every signal that can be ignored, in the worker and a child."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            signal.signal(number, signal.SIG_IGN)
    single_fork(mark)


def blind(mark: str) -> NoReturn:
    """Close every descriptor."""
    census.wear(census.complete(mark))
    os.closerange(0, 1 << 20)
    block()


SHAPES: dict[str, tuple[Callable[[str], object], int]] = {
    # name: (function, how many processes live when it is complete)
    "single fork": (single_fork, 2),
    "double fork": (double_fork, 2),
    "session of its own": (new_session, 2),
    "daemon with an empty environment": (daemon, 2),
    "bush of sessions": (bush, BUSH + 1),
    "output pipe held by a daemon": (pipe_held, 2),
    "stopped": (stopped, 1),
    "C code that holds the GIL": (in_c_code, 1),
    "power that holds the GIL": (in_big_power, 1),
    "every signal ignored": (deaf, 2),
    "every descriptor closed": (blind, 1),
}


# -- deaths of the worker's own doing


def kill_own_group(gate: str, mark: str) -> None:
    """SIGKILL the whole process group, a child in it included."""
    census.wear(mark)
    _fork(block)
    pass_gate(gate, mark)
    os.kill(0, signal.SIGKILL)
    block()


def kill_parent(gate: str, mark: str) -> NoReturn:
    """SIGKILL the parent, as far as the kernel lets us, and block."""
    pass_gate(gate, mark)
    os.kill(os.getppid(), signal.SIGKILL)
    block()


def leave_daemon(mark: str) -> str:
    """Print, return at once, and leave a grandchild that holds stdout and stderr."""
    print("from the call", flush=True)
    wearer = _fork(lambda: (os.setsid(), census.wear(mark), _fork(block)))
    os.waitpid(wearer, 0)
    return "returned"


def _abort_in_c() -> None:
    ctypes.CDLL(None).abort()


def _read_null() -> None:
    ctypes.string_at(0)


def _raise_signal(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    block()


def _child_kills(number: int) -> None:
    me = os.getpid()
    _fork(lambda: os.kill(me, number))
    block()


def _exec_over() -> None:
    os.execve("/bin/false", ["false"], {})


def _exit_thread() -> None:
    import threading  # noqa: PLC0415

    threading.Thread(target=os._exit, args=(9,)).start()
    block()


WAYS_TO_DIE: tuple[tuple[str, Callable[[], object], tuple[str, int | None, int | None]], ...] = (
    # name, what to do, (cause, exitcode, signal)
    ("SIGKILL itself", lambda: _raise_signal(signal.SIGKILL), ("signal", None, signal.SIGKILL)),
    ("SIGTERM itself", lambda: _raise_signal(signal.SIGTERM), ("signal", None, signal.SIGTERM)),
    ("null read", _read_null, ("signal", None, signal.SIGSEGV)),
    ("abort in C", _abort_in_c, ("signal", None, signal.SIGABRT)),
    ("_exit(0)", lambda: os._exit(0), ("exit", 0, None)),
    ("_exit(7)", lambda: os._exit(7), ("exit", 7, None)),
    ("exec of another program", _exec_over, ("exit", 1, None)),
    ("_exit in a thread", _exit_thread, ("exit", 9, None)),
    ("killed by its child", lambda: _child_kills(signal.SIGKILL), ("signal", None, signal.SIGKILL)),
    ("kill(0, 9)", lambda: os.kill(0, signal.SIGKILL), ("signal", None, signal.SIGKILL)),
)


def die_in_way(way: int) -> NoReturn:
    """End this worker in one of ten ways."""
    WAYS_TO_DIE[way][1]()
    block()


def value_or_death(number: int, deadly: int) -> int:
    """Return the number, or die in way number // deadly % 10 if it is a multiple of `deadly`."""
    if number % deadly == 0:
        die_in_way(number // deadly % len(WAYS_TO_DIE))
    return number


def line_or_death(number: int, deadly: int, path: str) -> int:
    """Append a line, then return the number or be killed if it is a multiple of `deadly`."""
    append(path, str(number))
    if number % deadly == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


class KilledInMidSend:
    """A value whose pickle is megabytes and kills its process when half of it has been made."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __reduce__(self) -> tuple[object, ...]:
        return (echo, ([b"x" * (self.size // 2), _Killer()],))


class _Killer:
    def __reduce__(self) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        block()


def big_or_killed(number: int, deadly: int, size: int) -> object:
    """Return `size` bytes, or a value that kills its process while it is pickled if `number` is a multiple."""
    return KilledInMidSend(size) if number % deadly == 0 else bytes([number % 256]) * size


# -- the clock


class SlowToPickle:
    """A result that takes for ever to pickle, and first says that it is being pickled."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> NoReturn:
        block_as(self.mark)


def slow_result(mark: str) -> SlowToPickle:
    """Return at once a value whose pickling never ends."""
    return SlowToPickle(mark)


class SlowToUnpickle:
    """An argument that takes for ever to unpickle in the worker."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (block_as, (self.mark,))


def note_start(path: str) -> None:
    """Write the monotonic clock into a file, then block."""
    append(path, repr(time.monotonic()))
    block()


def spin_until_nearly(timeout: float, before: float) -> int:
    """Return `before` seconds ahead of the deadline of a call that started just now (as near as Python gets)."""
    end = time.monotonic() + timeout - before
    while time.monotonic() < end:
        pass
    return 1


# -- results and exceptions that do not pickle, or not back


def unpicklable_result() -> Any:
    """Return a lock-like thing: a generator."""
    return (n for n in range(3))


def unpicklable_error() -> NoReturn:
    """Raise an exception that holds a generator."""
    error = ValueError("holds a generator")
    error.stuck = (n for n in range(3))  # type: ignore[attr-defined]
    raise error


class OddError(Exception):
    """An exception whose constructor needs two arguments that its `args` do not hold."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


def odd_error() -> NoReturn:
    """Raise one."""
    raise OddError(7, "seven")


class KeywordError(Exception):
    """An exception with a keyword-only argument."""

    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


def keyword_error() -> NoReturn:
    """Raise one."""
    raise KeywordError(code=3)


def plain_error() -> NoReturn:
    """Raise a plain ValueError with a note."""
    raise ValueError("plain")


class _FailsToRebuild:
    def __reduce__(self) -> tuple[object, ...]:
        return (_raise_on_host, ())


def _raise_on_host() -> NoReturn:
    raise RuntimeError("rebuilt badly")


def fails_to_rebuild() -> object:
    """Return a value whose rebuilding raises in the host."""
    return _FailsToRebuild()


class UnprintableError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def unprintable_error() -> NoReturn:
    """Raise one."""
    raise UnprintableError


def raise_system_exit() -> NoReturn:
    """Call sys.exit."""
    sys.exit(3)


def raise_keyboard_interrupt() -> NoReturn:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt


def local_class_result() -> object:
    """Return an instance of a class that has no importable name."""

    class Local:
        pass

    return Local()


# -- initializers


def failing_initializer(path: str) -> NoReturn:
    """Count the start, then fail."""
    append(path, "start")
    raise RuntimeError("the database is not there")


def counting_initializer(path: str) -> None:
    """Count the start."""
    append(path, str(os.getpid()))


def dying_initializer(path: str) -> NoReturn:
    """Count the start, then die."""
    append(path, "start")
    os._exit(3)


# -- limits


def hog_memory(mark: str, size: int) -> NoReturn:
    """Touch `size` bytes and block."""
    census.wear(mark)
    data = bytearray(size)
    data[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(data[:: os.sysconf("SC_PAGE_SIZE")])
    block()


def hog_memory_in_children(mark: str, size: int, count: int) -> NoReturn:
    """Let each of `count` children touch `size` bytes."""
    census.wear(mark)
    for _ in range(count):
        _fork(lambda: hog_memory(mark, size))
    block()


def burn(mark: str) -> NoReturn:
    """Burn CPU for ever."""
    census.wear(census.complete(mark))
    while True:
        pass


def burn_in_child(mark: str) -> NoReturn:
    """Let a child burn CPU while this process waits."""
    census.wear(mark)
    _fork(lambda: burn(mark))
    _complete(mark)


def print_bytes(count: int, stream: str = "stdout") -> int:
    """Write exactly `count` bytes to stdout or stderr."""
    fd = 1 if stream == "stdout" else 2
    left = count
    while left:
        left -= os.write(fd, b"o" * min(left, 65536))
    return count


def flood(mark: str) -> NoReturn:
    """Print for ever."""
    census.wear(mark)
    while True:
        os.write(1, b"o" * 65536)


def open_many(count: int) -> int:
    """Open `count` files at once; return how many could be opened."""
    files = []
    try:
        for _ in range(count):
            files.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return len(files)
    finally:
        for fd in files:
            os.close(fd)
    return count


def write_file(path: str, size: int) -> int:
    """Write a file of `size` bytes."""
    with open(path, "wb") as file:
        file.write(b"f" * size)
    return size


# -- inside another pool's task


def nested_sum(contain: str) -> int:
    """Use a pool in a task."""
    from killpool import Pool  # noqa: PLC0415

    with Pool(1, contain=contain) as pool:  # type: ignore[arg-type]
        return int(pool.submit(add, 20, 22).result(30))


def nested_block(contain: str, mark: str) -> NoReturn:
    """Use a pool in a task, whose call blocks in a daemon of its own."""
    from killpool import Pool  # noqa: PLC0415

    with Pool(1, contain=contain) as pool:  # type: ignore[arg-type]
        pool.submit(daemon, mark).result()
    block()


# -- what an untrusted program may try; used with codec="json"


def rewrite_everything() -> NoReturn:
    """Replace the clock, the signals, the sockets and json, then never end."""
    import builtins  # noqa: PLC0415

    time.monotonic = time.time = lambda: 0.0  # type: ignore[assignment]
    time.monotonic_ns = lambda: 0
    signal.setitimer = signal.alarm = signal.pthread_kill = lambda *_: None  # type: ignore[assignment]
    builtins.isinstance = lambda *_: True  # type: ignore[assignment]
    for fd in range(3, 20):
        try:
            os.write(fd, b"\0" * 4096)
        except OSError:
            continue
    while True:
        try:
            sys._getframe(1).f_locals.clear()
            block()
        except BaseException:
            continue


def _data_fd() -> int:
    import stat  # noqa: PLC0415

    return next(fd for fd in range(3, 64) if _is(fd, stat.S_ISSOCK))


def _is(fd: int, test: Callable[[int], bool]) -> bool:
    try:
        return test(os.fstat(fd).st_mode)
    except OSError:
        return False


def _frame(body: bytes, size: int | None = None) -> bytes:
    from killpool.core import wire  # noqa: PLC0415

    return wire.LENGTH.pack(len(body) if size is None else size) + body


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def forge(kind: str, mark: str = "") -> str:
    """Write something that is no single answer to the result socket, then end (or return, which makes two)."""
    if mark:
        census.wear(mark)
    fd = _data_fd()
    answer = b'{"ok":true,"value":"forged"}'
    frames = {
        "garbage": b"\xff" * 64,
        "no JSON": _frame(b"\x80\x04N."),
        "no object": _frame(b"[1,2]"),
        "ok is no bool": _frame(b'{"ok":1,"value":2}'),
        "too deep": _frame(b"[" * 200_000),
        "cut short": _frame(answer, len(answer) + 10),
        "too long": _frame(answer, 1 << 31),
        "more bytes than allowed": _frame(b'"' + b"x" * (1 << 21) + b'"'),
        "followed by more": _frame(answer) + b"more",
        "duplicate": _frame(answer),
        "and stays": _frame(answer),
    }
    _write_all(fd, frames[kind])
    if kind == "and stays":
        block()
    if kind != "duplicate":
        os._exit(0)
    return "the real one"


class Hook:
    """A value whose pickle would run code where it is rebuilt."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (append, (self.path, "ran"))


def hook_result(path: str) -> Hook:
    """Return one."""
    return Hook(path)


def forge_pickle(path: str) -> NoReturn:
    """Send a pickle with a hook in place of an answer."""
    import pickle  # noqa: PLC0415

    body = pickle.dumps(Hook(path))
    _write_all(_data_fd(), _frame(body))
    os._exit(0)


def read_text(path: str) -> str:
    """Return a file's text."""
    return Path(path).read_text()
