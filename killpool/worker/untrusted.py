"""One untrusted task in one process: take the call, run it, answer with one JSON frame, end.

The answer is data, and only the program's claim: it shares this process with whatever it was made of.  Status, usage
and deadline are the supervisor's, over descriptors that are not here.
"""

import os
import pickle
import socket
import sys
import traceback
from typing import Any, NoReturn

from killpool.core import wire
from killpool.core.classify import WORKER_CLEAN_EXIT
from killpool.worker import payload
from killpool.worker.serve import Calls

# Taken before any task runs: what a program patches in the modules later is not used here.
_send, _exit, _format = socket.socket.sendall, os._exit, traceback.format_exception


def serve_one(sock: socket.socket) -> NoReturn:
    """Serve exactly one call; a program that broke this very code has no result."""
    try:
        _serve(sock)
    finally:
        _exit(WORKER_CLEAN_EXIT)


def _serve(sock: socket.socket) -> NoReturn:
    import orjson  # noqa: PLC0415  (preloaded by the template of such workers)

    strict = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
    dumps = orjson.dumps
    calls = Calls(sock)
    flags, _number, _timeout, _limits, body = calls.next()
    try:
        function, args, kwargs, *_ = pickle.loads(calls.big() if flags & wire.CALL_BIG else body)
        value = function(*args, **kwargs)
        answer: dict[str, Any] = {"ok": True, "value": value}
        data = dumps(answer, None, strict)
    except SystemExit as end:
        _flush()
        _exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except BaseException as error:  # the child's edge
        data = dumps(_describe(error))
    _flush()
    _send(sock, wire.LENGTH.pack(len(data)) + data)
    _exit(0)


def _describe(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message, text = str(error), "".join(_format(kind, error, payload.strip_frames(error)))
    except BaseException:  # a hostile __str__
        message, text = "<the exception cannot be printed>", ""

    def clean(raw: str) -> str:
        return raw[:16384].encode("utf-8", "replace").decode()

    return {"ok": False, "type": clean(str(name)), "message": clean(message), "traceback": clean(text)}


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the task closed or replaced it
            continue
