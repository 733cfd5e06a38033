"""Group 21: many respawns use nothing up, and a start that fails half-way gives back what it took."""

import os
import re

import pytest

import census
import stage
from killpool import Cause, Pool
from killpool.spec import Isolation
from reports import tasks
from reports.support import run_script

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_fifty_kills_leave_no_shared_memory_and_no_file(isolation: Isolation) -> None:
    """Z02."""

    def files() -> set[str]:
        # Other programs of this machine make shared memory too; many put their pid into its name.
        shared = {
            name
            for name in os.listdir("/dev/shm")
            if not any(census.is_alive(int(n)) and int(n) != os.getpid() for n in re.findall(r"\d{2,7}", name))
        }
        return shared | set(os.listdir(census.temporary_folder()))

    with Pool(2, isolation=isolation, capture_output=True) as pool:
        pool.submit(tasks.nothing).result(30)
        before = files()
        outcomes = list(pool.outcomes(tasks.block, range(50), timeout=0.02))
        assert [o.cause for o in outcomes] == [Cause.TIMEOUT] * 50
        assert files() <= before
    assert files() <= before


_NO_DESCRIPTORS = """
import json, os, resource, sys
from reports import tasks
from killpool import KillpoolError, Pool, StartFailed
import orjson, killpool.pool, killpool.host.engine, subprocess

def count():
    return len(os.listdir("/proc/self/fd")) - 1   # without the listing's own

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
with Pool(1) as pool:                             # what is made once a process is made
    pool.submit(tasks.nothing).result(20)
base = count()
told = []
for room in map(int, sys.argv[1:]):
    resource.setrlimit(resource.RLIMIT_NOFILE, (base + room, hard))
    try:
        pool = Pool(2)
        try:
            outcome = pool.schedule(tasks.square, (3,), timeout=5).outcome(4)
            told.append([room, str(outcome.cause), outcome.value])
        except TimeoutError:
            told.append([room, "hangs", None])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            pool.kill()
    except KillpoolError as error:
        told.append([room, type(error).__name__, None])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    told[-1].append(count() - base)
with Pool(1) as pool:
    told.append(pool.submit(tasks.square, 3).result(20))
print(json.dumps(told))
"""


def test_a_start_without_descriptors_fails_clearly_and_leaks_none() -> None:
    """Z03."""
    done = run_script(_NO_DESCRIPTORS, "3", "3", "3")
    told = stage.last_json(done.out, done.err)
    assert told == [[3, "StartFailed", None, 0]] * 3 + [9]
    assert (done.status, done.err) == (0, "")


def test_a_start_with_few_descriptors_either_works_or_fails_clearly() -> None:
    """Z03."""
    done = run_script(_NO_DESCRIPTORS, *map(str, range(24)), limit=110)
    *rooms, last = stage.last_json(done.out, done.err)
    assert last == 9
    assert [leaked for _room, _what, _value, leaked in rooms] == [0] * 24
    what = {room: (name, value) for room, name, value, _leaked in rooms}
    assert set(what.values()) <= {("StartFailed", None), ("PoolBroken", None), ("start_failed", None), ("ok", 9)}, what
    assert what[0] == ("StartFailed", None)
    assert what[23] == ("ok", 9)
    assert "Exception in thread" not in done.err
