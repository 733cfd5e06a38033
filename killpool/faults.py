"""The errors that every process of ours may need, with nothing imported: see `killpool.errors` for the whole tree.

`concurrent.futures` brings `threading` and `logging`, whose after-fork handlers cost every forked worker 0.5 ms.
"""

from typing import Any


class KillpoolError(Exception):
    """Root of what killpool raises about its own work."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        # BaseException's own __reduce__ calls cls(*args): keyword attributes would be lost without the state.
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class SpecError(KillpoolError, ValueError):
    """The caller's value cannot be used; the message names the field and the value."""


class UnsupportedPlatform(KillpoolError, OSError):
    """This machine is not Linux 5.4 or newer, or lacks a kernel mechanism that was asked for."""
