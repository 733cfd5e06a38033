"""Group 17, as far as a pool goes: a lock of the host's is no lock of its workers'; the journal is a later part."""

import fcntl
import os
import sys
from pathlib import Path

import pytest

import census
import stage
from killpool import Cause, Pool
from killpool.spec import Isolation
from reports import tasks
from reports.support import stopwatch, wait_lines

pytestmark = pytest.mark.timeout(120)

_LOCKS = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked')"


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_lock_that_the_host_releases_is_free_whatever_its_calls_left(
    isolation: Isolation, tmp_path: Path, log: Path, mark: str
) -> None:
    """L02."""
    file = tmp_path / "lock"
    file.touch()
    assert sys.platform == "linux"
    with Pool(1, isolation=isolation) as early, file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        os.set_inheritable(held.fileno(), True)
        with Pool(1, isolation=isolation) as late:  # one made before the lock was taken, and one after
            futures = [pool.submit(tasks.sleeper_and_return, str(log), mark) for pool in (early, late)]
            sleepers = [int(line) for line in wait_lines(log, 2)]
            assert census.wait_until(lambda: sorted(sleepers) == census.find(mark))
            assert "BlockingIOError" in stage.OWN.run("-c", _LOCKS, str(file)).err
            fcntl.flock(held, fcntl.LOCK_UN)
            held.close()
            with stopwatch() as watch:
                assert stage.OWN.run("-c", _LOCKS, str(file)).out == "locked\n"
            assert watch.seconds < 5
            assert all(map(census.is_alive, sleepers))
            for future in futures:
                assert future.cancel()
                assert future.outcome(30).cause is Cause.CANCELLED
