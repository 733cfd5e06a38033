"""Values into bytes and back, on the worker's side, and the reason when a value cannot go.

Plain pickle first; cloudpickle only for what it cannot do by reference (a class of `__main__`, a closure).
"""

import pickle
import traceback
from collections.abc import Iterator
from typing import Any

_WALK_MAX = 2000  # objects looked at to name the culprit
_WALK_DEPTH = 12


def dump(value: object) -> bytes:
    """Return `value` pickled; raise TypeError that names the type and the path of what cannot be pickled."""
    try:
        return pickle.dumps(value, 5)
    except Exception as error:
        try:
            import cloudpickle  # noqa: PLC0415  (slow to import, seldom needed)

            data: bytes = cloudpickle.dumps(value)
            return data
        except Exception:
            raise TypeError(f"the result cannot be pickled: {locate(value, 'result')}: {error}") from None


def dump_error(error: BaseException) -> bytes:
    """Return (pickled exception or None, type name, message, traceback text), pickled."""
    text = "".join(traceback.format_exception(type(error), error, strip_frames(error)))
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception as broken:
        message = f"<str() of the exception raised {type(broken).__name__}>"
    try:
        body: bytes | None = dump(error.with_traceback(None))
    except TypeError:
        body = None
    return pickle.dumps((body, name, message, text), 5)


def strip_frames(error: BaseException) -> Any:
    """Return the traceback without the worker's own frames at its top."""
    trace = error.__traceback__
    while trace is not None and "/killpool/worker/" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return trace


def locate(value: object, path: str) -> str:
    """Return "path is a type" of the deepest part of `value` that cannot be pickled, in a bounded search."""
    budget = [_WALK_MAX]
    for _ in range(_WALK_DEPTH):
        step = next(((p, v) for p, v in _parts(value, path) if _fails(v, budget)), None)
        if step is None:
            break
        path, value = step
    return f"{path} is a {type(value).__module__}.{type(value).__qualname__}"


def _fails(value: object, budget: list[int]) -> bool:
    budget[0] -= 1
    if budget[0] < 0:
        return False
    try:
        pickle.dumps(value, 5)
    except Exception:
        return True
    return False


def _parts(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}[{key!r}]", item
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item
    elif isinstance(value, (set, frozenset)):
        for item in value:
            yield f"{path}{{...}}", item
    elif isinstance(value, BaseException):
        for index, item in enumerate(value.args):
            yield f"{path}.args[{index}]", item
    for name, item in getattr(value, "__dict__", {}).items() if not isinstance(value, type) else ():
        yield f"{path}.{name}", item
