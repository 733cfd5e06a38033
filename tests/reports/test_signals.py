"""Group 10: the host's signal handlers are its own; a hung call says where it hung."""

import signal
from typing import Any

import pytest

import census
import stage
from killpool import Cause, Pool
from killpool.spec import Isolation
from reports import tasks
from reports.support import run_script

pytestmark = pytest.mark.timeout(120)

_HANDLES = """
import json, signal, sys
from reports import tasks
from killpool import Pool
def handler(*_):
    raise RuntimeError("the host's handler ran in a worker")
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM, signal.SIGCHLD):
    signal.signal(number, handler)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
with Pool(2, isolation=sys.argv[1], timeout=1.0) as pool:
    found = pool.submit(tasks.dispositions).result(30)
    causes = [pool.submit(tasks.block).outcome(30).cause for _ in range(3)]
    died = pool.submit(tasks.die, signal.SIGTERM).outcome(30)
    found["again"] = pool.submit(tasks.dispositions).result(30) == found
print(json.dumps([found, causes, died.cause, died.signal]))
"""


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_workers_start_with_default_dispositions(isolation: Isolation) -> None:
    """S02."""
    done = run_script(_HANDLES, isolation)
    found, causes, cause, number = stage.last_json(done.out, done.err)
    default = str(signal.SIG_DFL)
    assert found == {
        "SIGTERM": default, "SIGHUP": default, "SIGUSR1": default, "SIGALRM": default, "SIGCHLD": default,
        "SIGINT": found["SIGINT"], "blocked": "[]", "wakeup": "-1", "again": True,
    }  # fmt: skip
    assert "default_int_handler" in found["SIGINT"]
    assert (causes, cause, number) == (["timeout"] * 3, "signal", signal.SIGTERM)
    assert (done.status, done.err) == (0, "")


_LOOPS = """
import asyncio, signal
from reports import tasks
from killpool import Pool
async def main():
    loop = asyncio.get_running_loop()
    seen, beats = [], []
    loop.add_signal_handler(signal.SIGTERM, seen.append, "SIGTERM")
    async def beat():
        while True:
            beats.append(1)
            await asyncio.sleep(0.01)
    heart = asyncio.create_task(beat())
    with Pool(1) as pool:
        for call in (pool.schedule(tasks.block, timeout=0.5), pool.submit(tasks.die, signal.SIGTERM)):
            try:
                await asyncio.wrap_future(call)
            except Exception as error:
                print(type(error).__name__)
        print(await loop.run_in_executor(pool, tasks.square, 3))
    before = len(beats)
    await asyncio.sleep(0.1)
    heart.cancel()
    print(seen, before > 5, len(beats) > before)
asyncio.run(main())
"""


def test_a_killed_worker_does_not_wake_the_hosts_own_handler() -> None:
    """S03."""
    done = run_script(_LOOPS)
    assert (done.status, done.out, done.err) == (0, "TaskTimeout\nWorkerLost\n9\n[] True True\n", "")


@pytest.mark.parametrize("kind", ["worker", "process", "json"])
@pytest.mark.parametrize("how", ["sleep", "C code", "deaf"])
def test_a_hung_call_says_where_it_hung(how: str, kind: str, mark: str) -> None:
    """S05."""
    options: dict[str, Any] = {"isolation": "worker" if kind == "worker" else "process"}
    if kind == "json":
        options["codec"] = "json"
    stacks = []
    with Pool(1, **options) as pool:
        for _ in range(5):  # best effort: no kill waits for more than a few milliseconds, which a busy machine may miss
            future = pool.schedule(tasks.stuck_in_a_named_function, (how, mark), timeout=1.0)
            assert census.wait_until(lambda: census.find(mark))
            outcome = future.outcome(30)
            assert outcome.cause is Cause.TIMEOUT
            assert outcome.kill_latency is not None
            assert outcome.kill_latency < 0.5
            stacks.append(outcome.stack)
            if outcome.stack:
                break
    assert "_the_guilty_function" in stacks[-1]


def test_a_call_that_cannot_say_where_it_hung_is_killed_all_the_same(mark: str) -> None:
    """S05."""
    with Pool(1) as pool:
        future = pool.schedule(tasks.stuck_in_a_named_function, ("stopped", mark), timeout=1.0)
        assert census.wait_until(lambda: any(map(census.is_stopped, census.find(mark))))
        outcome = future.outcome(30)
    assert (outcome.cause, outcome.stack) == (Cause.TIMEOUT, "")
    assert outcome.kill_latency is not None
    assert outcome.kill_latency < 0.5
