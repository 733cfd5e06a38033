"""The host is SIGKILLed, at whatever moment: nothing of it lives on.  One that only ends leaves nothing either."""

import os
import time
from pathlib import Path

import pytest

import census
import stage
import tasks
from killpool import Pool
from killpool.spec import Contain
from stage import Place

pytestmark = pytest.mark.timeout(120)

_HOST = """
import os, sys, census, tasks
from killpool import Pool
print("start", flush=True)
pool = Pool(2, contain=sys.argv[1])
marks = os.environ["MARKS"].split()
futures = [pool.submit(tasks.daemon, marks[0]), pool.submit(tasks.bush, marks[1], 20)]
for mark, size in zip(marks, (2, 21)):
    census.wait_for(size, mark)
print("ready", flush=True)
futures[0].result()
"""


def _living(environment: str, marks: list[str], host: int) -> list[int]:
    found = {*census.find_by_environment(environment), *census.machinery_of(host)}
    return sorted(found.union(*map(census.find, marks)))


def _kill_host_after(place: Place, word: str, delay: float, limit: float) -> tuple[int, list[str]]:
    """Start a host, SIGKILL it `delay` s after it printed `word`; tell how many lived before, who `limit` s after."""
    marks, environment = [census.new_mark(), census.new_mark()], census.new_mark()
    host = place.account.popen("-c", _HOST, place.contain, env={"MARKS": " ".join(marks), "HOST_MARK": environment})
    try:
        assert host.stdout is not None
        assert any(line.strip() == word for line in iter(host.stdout.readline, ""))
        moment = time.monotonic() + delay
        while time.monotonic() < moment:
            os.sched_yield()
        before = len(_living(environment, marks, host.pid))
        assert census.kill_exactly(host.pid)
        host.wait(30)
        census.wait_until(lambda: not _living(environment, marks, host.pid), limit)
        after = [census.describe(pid) for pid in _living(environment, marks, host.pid)]
    finally:
        stage.end(host, environment)
        host.communicate()
        for pid in {p for mark in marks for p in census.find(mark)}:
            census.kill_exactly(pid)
    return before, after


def test_nothing_of_a_killed_host_lives_two_seconds_later(place: Place) -> None:
    before, after = _kill_host_after(place, "ready", 0.0, 2.0)
    assert before >= 2 + 2 + 21  # host, supervisor, and the two trees at the least
    assert after == []


# Seconds after the start: every 2 ms while the supervisor starts, then until the trees are grown.
_MOMENTS = [n * 0.002 for n in range(10)] + [0.02 + n * 0.02 for n in range(10)]

# A supervisor that is just being exec'd learns of its host's death when its interpreter has started.  On two loaded
# cores the kernel was seen to leave such a process runnable and without a turn for more than 7 s.
_STARTING = census.PATIENCE


@pytest.mark.parametrize("moment", _MOMENTS)
def test_nothing_of_a_host_killed_while_it_starts_lives_on(tier: Contain, moment: float) -> None:
    before, after = _kill_host_after(Place(stage.OWN, tier), "start", moment, _STARTING)
    assert before >= 1
    assert after == []


@pytest.mark.parametrize("contain", ["walk", "pidns"])
@pytest.mark.parametrize("moment", _MOMENTS[::5])
def test_nothing_of_an_unprivileged_host_killed_while_it_starts_lives_on(
    unprivileged: stage.Account, contain: Contain, moment: float
) -> None:
    reason = unprivileged.refusal(contain)
    if reason:
        pytest.skip(reason)
    before, after = _kill_host_after(Place(unprivileged, contain), "start", moment, _STARTING)
    assert before >= 1
    assert after == []


def test_a_supervisor_killed_at_any_moment_of_its_start_leaves_nothing_and_the_pool_works() -> None:
    for moment in range(20):
        with Pool(2) as pool:
            future = pool.submit(tasks.add, 1, 2)
            machinery = census.machinery_of(os.getpid())
            end = time.monotonic() + moment * 0.002
            while time.monotonic() < end:
                os.sched_yield()
            census.kill_exactly(pool.statistics().supervisor_pid)
            assert future.outcome(30).cause in ("ok", "lost")
            assert pool.submit(tasks.add, 1, 2).result(30) == 3
            assert census.gone(machinery, 2.0)


_FALLS_OFF = """
import os, sys, census, tasks
from killpool import Pool
mark = os.environ["MARK"]
pool = Pool(2, contain=sys.argv[1])
futures = [pool.submit(tasks.daemon, mark)] + [pool.submit(tasks.block) for _ in range(50)]
census.wait_for(2, mark)
open(os.environ["READY"], "w").write("ready\\n")
"""


def test_a_script_that_falls_off_its_end_ends_soon_and_silently_and_leaves_nothing(place: Place) -> None:
    mark, environment = census.new_mark(), census.new_mark()
    ready = f"{census.temporary_folder()}/ready"
    env = {"MARK": mark, "READY": ready, "HOST_MARK": environment}
    host = place.account.popen("-c", _FALLS_OFF, place.contain, env=env)
    try:
        census.wait_file(ready)
        started = time.monotonic()
        out, err = host.communicate(timeout=60)
        took = time.monotonic() - started
        left = _living(environment, [mark], host.pid)
    finally:
        stage.end(host, environment)
        Path(ready).unlink()
    assert (host.returncode, out, err, left) == (0, "", "", [])
    assert took < 2.0


_FORKS = """
import os, sys, tasks
from killpool import Pool, PoolClosed
pool = Pool(1)
assert pool.submit(tasks.add, 1, 2).result(30) == 3
child = os.fork()
if child == 0:
    try:
        pool.submit(tasks.add, 1, 2)
        os._exit(1)
    except PoolClosed:
        pass
    with Pool(1) as mine:
        os._exit(0 if mine.submit(tasks.add, 2, 2).result(30) == 4 else 2)
print(os.waitpid(child, 0)[1])
assert pool.submit(tasks.add, 1, 2).result(30) == 3
child = os.fork()
if child == 0:
    sys.exit(0)     # runs the exit handlers of the copy
print(os.waitpid(child, 0)[1])
print(pool.submit(tasks.add, 1, 2).result(30))
pool.shutdown()
print("closed")
"""


def test_a_forked_child_of_the_host_has_a_closed_pool_and_may_make_its_own() -> None:
    done = stage.OWN.run("-c", _FORKS)
    assert (done.status, done.out, done.err) == (0, "0\n0\n3\nclosed\n", "")


_MAIN = """
from killpool import Pool
pool = Pool(1)
factor = 3
class Point:
    def __init__(self, x): self.x = x
def work(p): return Point(p.x * factor)
print(pool.submit(work, Point(5)).result(30).x)
print(pool.submit(lambda x: x + factor, 1).result(30))
pool.shutdown()
"""


def test_functions_of_a_script_without_a_main_guard_work_from_a_file_and_from_stdin(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_MAIN)
    done = stage.OWN.run(str(script))
    assert (done.status, done.out, done.err) == (0, "15\n4\n", "")
    with script.open() as stdin:
        done = stage.OWN.run("-", stdin=stdin)
    assert (done.status, done.out, done.err) == (0, "15\n4\n", "")
