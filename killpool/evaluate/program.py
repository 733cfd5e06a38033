"""What runs in the fresh process: execute one assembled program; to return is the pass.

It is preloaded into the process that candidates are forked from, so it imports next to nothing, and what it calls
once a candidate has run it took beforehand: a candidate that patches `os` does not change it.  That is tidiness, not a
defence.  Program and tests share this process, and a program that sets out to forge a pass can.
"""

import os
import sys
from typing import NoReturn

FILENAME = "<program>"
MODULE = "__program__"

_exit, _getpid = os._exit, os.getpid


def run_program(source: str) -> None:
    """Execute `source` in a module of its own; return if it came to its end, raise what it raised.

    sys.exit() never returns: whatever its code, the program left before its tests were through, so the process ends
    with that code, as it would have ended alone.
    """
    # Not "__main__": in the HumanEval family the program is a text given to exec(), where a trailing
    # `if __name__ == "__main__":` block does not run, and scores must agree.  It is registered because dataclasses
    # and typing look their module up by name.
    module = type(sys)(MODULE)
    sys.modules[MODULE] = module
    pid = _getpid()
    try:
        exec(compile(source, FILENAME, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        _leave(_exit_code(error.code))
    except BaseException:
        if _getpid() != pid:
            _leave(1)
        _show_source(source)
        raise
    if _getpid() != pid:
        # A child that the program forked and that ran on to the end: the answer is its parent's to give, once.
        _leave(0)


def _exit_code(code: object) -> int:
    """Return the exit status that the interpreter makes of a SystemExit's code."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        print(code, file=sys.stderr)
    except Exception:  # the program closed or replaced stderr
        return 1
    return 1


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the program closed or replaced the stream
            continue
    _exit(code)
    raise RuntimeError("the program tried to exit")  # only if somebody replaced `_exit`: still not a pass


def _show_source(source: str) -> None:
    """Let a traceback quote the program's lines."""
    import linecache  # noqa: PLC0415  (only a failure needs it)

    linecache.cache[FILENAME] = (len(source), None, source.splitlines(keepends=True), FILENAME)
