"""`Pool`: a `concurrent.futures.Executor` whose workers can really be killed.

At a call's deadline its process, and everything that it started, is gone before anyone is told; the other calls do
not notice; the outcome says exactly what happened.
"""

import atexit
import concurrent.futures
import itertools
import os
import queue
import sys
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, get_args

from killpool.errors import SpecError, UnsupportedPlatform
from killpool.host import payload, settle
from killpool.host.call import Call
from killpool.host.crew import Crew
from killpool.host.engine import Engine
from killpool.host.future import TaskFuture
from killpool.outcome import Outcome
from killpool.spec import (
    CAPTURE_MAX,
    START_TIMEOUT,
    Contain,
    Isolation,
    Limits,
    RestartPolicy,
    Strategy,
    check_choice,
    check_count,
    check_timeout,
)
from killpool.system import rlimits
from killpool.system.platform import require_linux

_EXIT_WAIT = 1.5  # seconds the interpreter's exit waits for the processes of pools that were not closed
_numbers = itertools.count(1)
_open: "weakref.WeakSet[Engine]" = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A snapshot of a pool.

    Counts: `workers` alive and ready, of which `active` serve calls (the rest are spares) and `busy` have one;
    `queued` calls wait, `in_flight` are inside workers, `finished` are settled.  `survivors` counts processes that
    could not be proven dead: above 0 the pool is tainted.  `contain` is how trees are killed here.
    """

    workers: int
    active: int
    busy: int
    queued: int
    in_flight: int
    finished: int
    survivors: int
    supervisor_pid: int
    supervisor_restarts: int
    template_restarts: int
    idle_deaths: int
    worker_pids: tuple[int, ...]
    contain: str
    is_broken: bool


class Pool(concurrent.futures.Executor):
    """A pool of killable worker processes.

    max_workers: processes that run calls at once; by default the CPUs this process may use (`loky.cpu_count()`, which
    respects affinity and cgroup quotas).  timeout: default deadline of a call, in seconds from its start.  limits:
    default `Limits`.  initializer, initargs: run once in each worker that takes a place, before its first call.
    preload: names of modules to import once, in the template that workers are forked from.  isolation: "worker"
    reuses processes, "process" gives each call a fresh one.  max_tasks_per_worker: a worker ends after that many
    calls.  spares: workers forked ahead, so that a kill costs no start.  strategy: "one_for_one", or "one_for_all"
    where one worker's death restarts all.  restart: how many failed starts and idle deaths are stood.
    capture_output: keep what each call prints in its outcome instead of letting it through.  contain: how a tree is
    killed (DESIGN: "cgroup", "pidns", "walk").  codec: "pickle", or "json" for untrusted calls: results are data,
    and the deadline is the supervisor's alone (needs isolation="process").

    Raises SpecError (a ValueError) for a value that cannot be, UnsupportedPlatform for what this machine cannot do.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        timeout: float | None = None,
        limits: Limits | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        preload: Sequence[str] = (),
        isolation: Isolation = "worker",
        max_tasks_per_worker: int | None = None,
        spares: int = 1,
        strategy: Strategy = "one_for_one",
        restart: RestartPolicy | None = None,
        capture_output: bool = False,
        contain: Contain = "auto",
        codec: Literal["pickle", "json"] = "pickle",
        start_timeout: float = START_TIMEOUT,
        name: str | None = None,
    ) -> None:
        require_linux()
        self._name = _check_name(name) if name is not None else f"pool{next(_numbers)}"
        self._max_workers = _cpu_count() if max_workers is None else check_count("max_workers", max_workers, 1, 4096)
        self._limits = _checked_limits("limits", limits)
        self._timeout = None if timeout is None else check_timeout("timeout", timeout)
        if self._timeout is None:
            self._timeout = self._limits.wall
        check_choice("isolation", isolation, get_args(Isolation))
        check_choice("strategy", strategy, get_args(Strategy))
        check_choice("contain", contain, get_args(Contain))
        check_choice("codec", codec, ("pickle", "json"))
        check_count("spares", spares, 0, 1024)
        one_call = isolation == "process"
        if strategy == "one_for_all" and one_call:
            raise SpecError('strategy="one_for_all" needs isolation="worker": fresh processes share nothing')
        if codec == "json" and not one_call:
            raise SpecError('codec="json" needs isolation="process": an untrusted call gets a process of its own')
        if codec == "json" and initializer is not None:
            raise SpecError('initializer cannot be used with codec="json"; preload a module instead')
        if max_tasks_per_worker is not None:
            check_count("max_tasks_per_worker", max_tasks_per_worker)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._captures = bool(capture_output)
        if self._limits.output is not None and not self._captures:
            raise SpecError("limits.output needs capture_output=True: output that is let through is not counted")
        init = b"" if initializer is None else payload.encode(initializer, tuple(initargs), {}).data
        crew = Crew(self._max_workers, one_call, None if one_call else max_tasks_per_worker, init)
        settings = self._settings(preload, strategy, restart or RestartPolicy(), contain, codec, one_call)
        settings["start_timeout"] = check_timeout("start_timeout", start_timeout)
        self._engine = Engine(settings, crew, spares, self._name)
        self._preloaded = {"", "builtins", *preload}
        _open.add(self._engine)
        # A pool that is dropped with work pending finishes that work, and then its processes end.
        weakref.finalize(self, self._engine.abandon).atexit = False

    def _settings(
        self,
        preload: Sequence[str],
        strategy: Strategy,
        restart: RestartPolicy,
        contain: Contain,
        codec: str,
        one_call: bool,
    ) -> dict[str, Any]:
        if isinstance(preload, str) or not all(isinstance(m, str) and m for m in preload):
            raise SpecError(f"preload must be a sequence of module names, got {preload!r}")
        if not isinstance(restart, RestartPolicy):
            raise SpecError(f"restart must be a RestartPolicy, got {restart!r}")
        limits = self._limits
        from killpool.host.link import python_path  # noqa: PLC0415

        return {
            "op": "open", "name": self._name, "sys_path": python_path(), "argv": list(map(str, sys.argv)),
            "preload": list(preload), "uses_site": not sys.flags.no_site, "contain": contain, "codec": codec,
            "capture": self._captures, "capture_keep": CAPTURE_MAX, "one_call": one_call, "strategy": strategy,
            "limits": limits.supervised(), "samples": limits.is_sampled(), "cores": os.cpu_count() or 1,
            "rlimits": _rlimits(limits), "descriptors": rlimits.descriptors(),
            "restart": [restart.max_restarts, restart.within, restart.initial_backoff, restart.max_backoff],
        }  # fmt: skip

    # -- concurrent.futures.Executor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture:
        """Schedule `fn(*args, **kwargs)` with the pool's default options, as `Executor.submit`."""
        return self._schedule(fn, args, kwargs, Call)

    def schedule(
        self,
        fn: Callable[..., Any],
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        queue_timeout: float | None = None,
        limits: Limits | None = None,
        retries: int = 0,
        tag: str | None = None,
        priority: int = 0,
        index: int | None = None,
    ) -> TaskFuture:
        """Schedule a call with options of its own.

        timeout: seconds from the call's start, however long it waited.  queue_timeout: seconds it may wait to be
        started (cause `expired`).  limits: what is None in them comes from the pool's.  retries: how often it is run
        again after a death, a timeout or a broken limit; a raised exception is an answer and is not retried.
        priority: higher ones start first, FIFO within one.  tag, index: carried to the outcome.
        """
        options: dict[str, Any] = {"tag": tag, "index": index}
        if timeout is not None:
            options |= {"timeout": check_timeout("timeout", timeout), "owns_timeout": True}
        if queue_timeout is not None:
            options["queue_timeout"] = check_timeout("queue_timeout", queue_timeout)
            options["expires"] = time.monotonic() + options["queue_timeout"]
        if retries:
            options["retries"] = check_count("retries", retries, 0, 1_000_000)
        if priority:
            options["priority"] = check_count("priority", priority, -(2**31), 2**31)
        if limits is not None:
            options |= self._own_limits(limits, timeout)
        return self._schedule(fn, tuple(args), dict(kwargs or {}), Call, **options)

    def _own_limits(self, limits: Limits, timeout: float | None) -> dict[str, Any]:
        own = _checked_limits("limits", limits)
        if own.output is not None and not self._captures:
            raise SpecError("limits.output needs capture_output=True: output that is let through is not counted")
        for name, value in _rlimits(own).items():
            reason = rlimits.check(name, value)
            if reason:
                raise UnsupportedPlatform(reason)
        options: dict[str, Any] = {"limits": own.over(self._limits)}
        if own.wall is not None and timeout is None:
            options |= {"timeout": own.wall, "owns_timeout": True}
        return options

    def _schedule(self, fn: Callable[..., Any], args: Any, kwargs: Any, make: type[Call], **options: Any) -> TaskFuture:
        engine = self._engine
        future = TaskFuture(engine)
        limits: Limits | None = options.get("limits")
        try:
            encoded = payload.encode(fn, args, kwargs, _rlimits(limits) if limits is not None else None)
        except TypeError as error:
            if not callable(fn):
                raise TypeError(f"fn must be callable, got {fn!r}") from None
            encoded = payload.Encoded(b"", "", getattr(fn, "__qualname__", repr(fn)), False)
            call = make(future, encoded, 0, **options)
            failure = settle.from_exception(call, error)
            future.settle(lambda: failure, "error")
            return future
        if encoded.module not in self._preloaded:
            # Workers that are forked from now on have it: no fresh process and no replacement imports it again.
            self._preloaded.add(encoded.module)
            engine.preload(encoded.module)
        options.setdefault("timeout", self._timeout)
        call = make(future, encoded, 0, **options)
        future._call = call
        engine.submit(call)
        return future

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """Map as `Executor.map`: results in order, the first error raised; `timeout` bounds the whole iteration.

        The inputs are pulled as results are taken, a bounded number ahead, so endless ones work; `chunksize` is
        accepted and has no effect, since calls are sent in batches anyway.
        """
        check_count("chunksize", chunksize, 1, 2**31)
        end = None if timeout is None else time.monotonic() + timeout
        ahead = self._look_ahead()
        calls = zip(*iterables, strict=False)
        first = [self.submit(fn, *args) for args in itertools.islice(calls, ahead)]
        return self._map_results(fn, calls, first, end)

    def _map_results(
        self, fn: Callable[..., Any], calls: Iterator[Any], first: list[TaskFuture], end: float | None
    ) -> Generator[Any, None, None]:
        waiting = list(reversed(first))
        try:
            while waiting:
                future = waiting.pop()
                value = future.result(None if end is None else max(end - time.monotonic(), 0.0))
                for args in itertools.islice(calls, 1):
                    waiting.insert(0, self.submit(fn, *args))
                yield value
        finally:
            for future in waiting:
                future.cancel()

    def outcomes(
        self,
        fn: Callable[..., Any],
        inputs: Iterable[Any],
        *,
        timeout: float | None = None,
        limits: Limits | None = None,
        retries: int = 0,
        ordered: bool = False,
        batch_timeout: float | None = None,
    ) -> Generator[Outcome, None, None]:
        """Yield one `Outcome` for each of `fn(input)`, as they end (or in the order of the inputs if `ordered`).

        Nothing is raised for a call that fails; `outcome.index` is the position of its input.  Inputs are pulled a
        bounded number ahead.  After `batch_timeout` seconds what has not ended is killed and told as cancelled.
        """
        end = None if batch_timeout is None else time.monotonic() + check_timeout("batch_timeout", batch_timeout)
        options: dict[str, Any] = {"timeout": timeout, "limits": limits, "retries": retries}
        done: queue.SimpleQueue[TaskFuture] = queue.SimpleQueue()
        pending: dict[int, TaskFuture] = {}
        source = enumerate(inputs)
        ahead = self._look_ahead()

        def fill() -> None:
            while len(pending) < ahead:
                item = next(source, None)
                if item is None:
                    return
                index, value = item
                future = pending[index] = self.schedule(fn, (value,), index=index, **options)
                future.add_done_callback(done.put)  # type: ignore[arg-type]

        try:
            fill()
            yield from self._outcomes(pending, done, fill, ordered, end)
        finally:
            for future in pending.values():
                future.cancel()

    def _outcomes(
        self,
        pending: dict[int, TaskFuture],
        done: "queue.SimpleQueue[TaskFuture]",
        fill: Callable[[], None],
        ordered: bool,
        end: float | None,
    ) -> Generator[Outcome, None, None]:
        is_over = False
        while pending:
            if end is not None and not is_over and time.monotonic() >= end:
                is_over = True
                for future in list(pending.values()):
                    future.cancel()
            wait = None if end is None or is_over else max(end - time.monotonic(), 0.0)
            try:
                outcome = self._next_outcome(pending, done, ordered, wait)
            except (queue.Empty, TimeoutError):
                continue
            if not is_over:
                fill()
            yield outcome

    @staticmethod
    def _next_outcome(
        pending: dict[int, TaskFuture], done: "queue.SimpleQueue[TaskFuture]", ordered: bool, wait: float | None
    ) -> Outcome:
        if ordered:
            index = min(pending)
            outcome = pending[index].outcome(wait)
        else:
            outcome = done.get(timeout=wait).outcome()
            index = outcome.index if outcome.index is not None else -1
        del pending[index]
        return outcome

    def _look_ahead(self) -> int:
        return 2 * self._max_workers + 128

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, as `Executor.shutdown`; what was submitted is finished, or cancelled if it has not begun.

        With `wait` it returns once every process of the pool is gone.
        """
        self._engine.shutdown(cancel_futures)
        if wait:
            self._engine.join()

    def kill(self) -> None:
        """Cancel everything, kill every process of the pool, and return once they are gone."""
        self._engine.kill()
        self._engine.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is None:
            self.shutdown(wait=True)
        else:
            self.kill()  # leaving by an exception, Ctrl-C too, does not wait for anything
        return None

    def statistics(self) -> PoolStatistics:
        """Return a snapshot of the pool."""
        engine, crew = self._engine, self._engine.crew
        with engine.lock:
            workers = list(crew.workers.values())
            return PoolStatistics(
                workers=len(workers),
                active=crew.active,
                busy=sum(1 for w in workers if w.calls),
                queued=len(crew.line),
                in_flight=crew.in_flight(),
                finished=engine.ledger.finished,
                supervisor_pid=engine.link.pid,
                worker_pids=tuple(w.pid for w in workers),
                contain=engine.link.contain,
                is_broken=engine.ledger.broken is not None,
                survivors=engine.counts["survivors"],
                supervisor_restarts=engine.counts["supervisor_restarts"],
                template_restarts=engine.counts["template_restarts"],
                idle_deaths=engine.counts["idle_deaths"],
            )

    def __repr__(self) -> str:
        return f"<killpool.Pool {self._name!r} max_workers={self._max_workers}>"


def _cpu_count() -> int:
    import loky  # noqa: PLC0415  (150 ms to import; only when the number is not given)

    return max(int(loky.cpu_count()), 1)


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= 64 or not all(c.isalnum() or c in "._-" for c in name):
        raise SpecError(f"name must be 1 to 64 letters, digits, '.', '_' or '-', got {name!r}")
    return name


def _checked_limits(field: str, limits: object) -> Limits:
    if limits is None:
        return Limits()
    if not isinstance(limits, Limits):
        raise SpecError(f"{field} must be a Limits, got {limits!r}")
    return limits


def _rlimits(limits: Limits) -> dict[str, int]:
    values = {"open_files": limits.open_files, "file_size": limits.file_size}
    return {name: value for name, value in values.items() if value is not None}


def _kill_all_at_exit() -> None:
    """A script that falls off its end leaves nothing: what still runs is killed, not waited for."""
    engines = list(_open)
    for engine in engines:
        engine.kill()
    deadline = time.monotonic() + _EXIT_WAIT
    for engine in engines:
        engine.join(max(deadline - time.monotonic(), 0.0))


atexit.register(_kill_all_at_exit)
