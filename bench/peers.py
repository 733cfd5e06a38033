"""The pools that are compared, behind one face; what cannot keep a deadline is used without."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.contest import OURS, Skip

PEERS = (OURS, "ProcessPoolExecutor", "mp.Pool", "loky", "pebble", "mpire")
WITHOUT_DEADLINES = frozenset({"ProcessPoolExecutor", "mp.Pool", "loky"})


@dataclass(frozen=True, slots=True)
class Face:
    """How to submit a call, and how to wait for its value."""

    submit: Callable[..., Any]
    result: Callable[[Any], Any]


def _result(future: Any) -> Any:
    return future.result()


def _get(handle: Any) -> Any:
    return handle.get()


@contextmanager
def open_pool(name: str, workers: int, timeout: float) -> Iterator[Face]:
    """Open a contestant's pool; each of its calls has `timeout` seconds, where it can keep that."""
    opener = _OPENERS[name]
    try:
        yield from opener(workers, timeout)
    except ImportError as missing:
        raise Skip(f"not installed: {missing.name}") from missing


def _killpool(workers: int, timeout: float) -> Iterator[Face]:
    from killpool import Pool

    with Pool(workers, timeout=timeout) as pool:
        yield Face(pool.submit, _result)


def _executor(workers: int, timeout: float) -> Iterator[Face]:
    with ProcessPoolExecutor(workers) as pool:
        yield Face(pool.submit, _result)


def _mp_pool(workers: int, timeout: float) -> Iterator[Face]:
    with multiprocessing.Pool(workers) as pool:
        yield Face(lambda fn, *args: pool.apply_async(fn, args), _get)


def _loky(workers: int, timeout: float) -> Iterator[Face]:
    import loky

    with loky.ProcessPoolExecutor(workers) as pool:
        yield Face(pool.submit, _result)


def _pebble(workers: int, timeout: float) -> Iterator[Face]:
    import pebble

    with pebble.ProcessPool(workers) as pool:
        yield Face(lambda fn, *args: pool.schedule(fn, args=args, timeout=timeout), _result)


def _mpire(workers: int, timeout: float) -> Iterator[Face]:
    from mpire.pool import WorkerPool

    with WorkerPool(workers) as pool:
        yield Face(lambda fn, *args: pool.apply_async(fn, args, task_timeout=timeout), _get)


_OPENERS = dict(zip(PEERS, (_killpool, _executor, _mp_pool, _loky, _pebble, _mpire), strict=True))
