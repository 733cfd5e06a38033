"""Calls into bytes, on the host's side.

Plain pickle where it can name everything by import; cloudpickle where it cannot, or where a name belongs to
`__main__`, which no worker imports: so scripts without a main guard, notebooks, lambdas and closures work.
"""

import pickle
from collections.abc import Callable
from typing import Any

from killpool.worker import payload as worker_payload


class Encoded:
    """One call as bytes; `module` is what the worker should import before the clock starts, "" for nothing."""

    __slots__ = ("data", "module", "name", "needs_cloudpickle")

    def __init__(self, data: bytes, module: str, name: str, needs_cloudpickle: bool) -> None:
        self.data = data
        self.module = module
        self.name = name
        self.needs_cloudpickle = needs_cloudpickle


def encode(function: Callable[..., Any], args: Any, kwargs: Any, rlimits: dict[str, int] | None = None) -> Encoded:
    """Pickle a call; raise TypeError naming the argument that cannot be pickled."""
    call = (function, args, kwargs, rlimits) if rlimits else (function, args, kwargs)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    try:
        data = pickle.dumps(call, 5)
        # A reference by name contains the module's name; a false hit only costs time.
        if b"__main__" not in data and b"__mp_main__" not in data:
            return Encoded(data, getattr(function, "__module__", None) or "", name, False)
        error: Exception | None = None
    except Exception as failure:
        error = failure
    import cloudpickle  # noqa: PLC0415  (30 ms to import, and many programs never need it)

    try:
        return Encoded(cloudpickle.dumps(call, 5), "cloudpickle", name, True)
    except Exception as failure:
        raise TypeError(_explain(function, args, kwargs, error or failure)) from failure


def _explain(function: Callable[..., Any], args: Any, kwargs: Any, error: Exception) -> str:
    for path, value in [*((f"argument {i}", a) for i, a in enumerate(args)), *kwargs.items()]:
        try:
            pickle.dumps(value, 5)
        except Exception as failure:
            return f"{path} of {function!r} cannot be pickled: {worker_payload.locate(value, path)}: {failure}"
    return f"{function!r} cannot be pickled: {type(error).__name__}: {error}"
