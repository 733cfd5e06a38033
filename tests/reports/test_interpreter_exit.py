"""Group 20: futures end, interpreters end, and nobody complains."""

import gc
from pathlib import Path

import pytest

import census
import stage
from killpool import Pool, TaskFuture
from reports import tasks
from reports.support import run_script, run_script_and_time_its_end

pytestmark = pytest.mark.timeout(120)


def _futures_of_a_local_pool() -> list[TaskFuture]:
    pool = Pool(2)
    return [pool.submit(tasks.sleep_then, 0.05, n) for n in range(20)]


def test_futures_outlive_a_pool_that_nobody_holds_any_more() -> None:
    """E02."""
    futures = _futures_of_a_local_pool()
    gc.collect()
    assert [f.result(30) for f in futures] == list(range(20))


_LOCAL_POOL = """
import os
from reports import tasks
from killpool import Pool
def start():
    pool = Pool(2)
    return [pool.submit(tasks.sleep_then, 0.01, n) for n in range(10)] + [pool.submit(tasks.block)]
futures = start()
print([f.result(20) for f in futures[:10]])
open(os.environ["DONE"], "w").write("done\\n")
"""


def test_a_script_ends_though_such_a_pool_still_works(tmp_path: Path) -> None:
    """E02."""
    ended = run_script_and_time_its_end(_LOCAL_POOL, tmp_path / "done")
    assert (ended.status, ended.out, ended.err) == (0, f"{list(range(10))}\n", "")
    assert ended.tail < 2.0


_UNREAD = """
import os, sys
from reports import tasks
from killpool import Pool
pool = Pool(2)
argument = bytes(100_000)
futures = [pool.submit(tasks.size_of, argument) for _ in range(1000)]
for future in futures[:10]:
    assert future.result(30) == 100_000
open(os.environ["DONE"], "w").write("done\\n")
if sys.argv[1] == "close":
    pool.shutdown(cancel_futures=True)
    print({str(f.outcome(0).cause) for f in futures} <= {"ok", "cancelled"})
"""


@pytest.mark.parametrize("end", ["close", "fall off"])
def test_unread_arguments_and_results_hold_no_interpreter(end: str, tmp_path: Path) -> None:
    """E03."""
    ended = run_script_and_time_its_end(_UNREAD, tmp_path / "done", end)
    assert (ended.status, ended.out, ended.err) == (0, "True\n" if end == "close" else "", "")
    assert ended.tail < 2.0


_KILLS = """
import multiprocessing, sys, warnings
warnings.simplefilter("always")
from reports import tasks
from killpool import Pool
lock = multiprocessing.Lock()   # a named semaphore, known to the tracker of this process
pool = Pool(2, isolation=sys.argv[1])
for _ in range(5):
    print(pool.schedule(tasks.block, timeout=0.1).outcome(30).cause)
if sys.argv[2] == "close":
    pool.shutdown()
"""


@pytest.mark.parametrize("end", ["close", "fall off"])
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_script_with_kills_ends_without_a_word_and_leaves_nobody(isolation: str, end: str) -> None:
    """E04."""
    mark = census.new_mark()
    done = stage.OWN.run("-c", _KILLS, isolation, end, env={"E04_MARK": mark}, limit=30)
    assert (done.status, done.out, done.err) == (0, "timeout\n" * 5, "")
    assert census.wait_until(lambda: census.find_by_environment(mark) == [], 2.0)


def test_killing_a_pool_twice_or_after_its_end_is_nothing() -> None:
    """E04."""
    done = run_script("from killpool import Pool\npool = Pool(1)\npool.kill()\npool.kill()\npool.shutdown()\n")
    assert (done.status, done.out, done.err) == (0, "", "")
