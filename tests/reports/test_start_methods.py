"""Group 13: workers start fast, from the state they should have, and without running the main script again."""

import os
from pathlib import Path
from typing import Any

import pytest

import census
import stage
from killpool import Cause, Pool
from killpool.spec import Isolation
from reports import tasks
from reports.support import lines, stopwatch

pytestmark = pytest.mark.timeout(120)

_NO_GUARD = """
import sys
from killpool import Pool
with open(sys.argv[1], "a") as file:
    file.write("ran\\n")
def task(n):
    return n * n
pool = Pool(3, isolation=sys.argv[2])
print([f.result(20) for f in [pool.submit(task, n) for n in range(6)]])
print(pool.schedule(sys.exit, timeout=5).outcome(20).cause)
"""


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_script_without_a_main_guard_runs_once(isolation: Isolation, tmp_path: Path, log: Path) -> None:
    """W01."""
    script = tmp_path / "script.py"
    script.write_text(_NO_GUARD)
    done = stage.OWN.run(str(script), str(log), isolation, limit=30)
    assert (done.status, done.out, done.err) == (0, "[0, 1, 4, 9, 16, 25]\nexception\n", "")
    assert lines(log) == ["ran"]


_DERIVED = """
import json, os, sys
from killpool import Pool
ARGV = list(sys.argv)
os.environ["DERIVED"] = ARGV[1]
os.chdir(ARGV[2])
def task():
    return ARGV, sys.argv, os.environ.get("DERIVED"), os.getcwd(), [p for p in sys.path if p]
if __name__ == "__main__":
    with Pool(1, isolation=ARGV[3]) as pool:
        print(json.dumps([pool.submit(task).result(20), task()]))
"""


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_argv_environment_and_folder_are_the_hosts(isolation: Isolation, tmp_path: Path) -> None:
    """W02."""
    script = tmp_path / "script.py"
    script.write_text(_DERIVED)
    done = stage.OWN.run(str(script), "an argument", str(tmp_path), isolation, limit=30)
    assert (done.status, done.err) == (0, "")
    in_worker, in_host = stage.last_json(done.out)
    assert in_worker == in_host
    assert in_host[1:4] == [[str(script), "an argument", str(tmp_path), isolation], "an argument", str(tmp_path)]


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_replacements_do_not_pay_the_imports_again(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Path
) -> None:
    """W03: no latency is told by itself; `started_at` and the caller's clock say it."""
    name = f"slow_{census.new_mark()}"
    (tmp_path / f"{name}.py").write_text(f"import time\ntime.sleep(1)\nopen({str(log)!r}, 'a').write('imported\\n')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Pool(1, preload=[name], isolation=isolation) as pool:
        with stopwatch() as first:
            assert pool.submit(tasks.square, 3).result(30) == 9
        assert first.seconds >= 0.9
        took = []
        for _ in range(10):
            assert pool.submit(tasks.die).outcome(30).cause is Cause.SIGNAL
            with stopwatch() as watch:
                assert pool.submit(tasks.square, 3).result(30) == 9
            took.append(watch.seconds)
    assert max(took) < 0.3, took
    assert lines(log) == ["imported"]


def test_a_killed_template_is_started_again() -> None:
    """W04."""
    with Pool(1) as pool:
        pool.submit(tasks.nothing).result(30)
        supervisor = pool.statistics().supervisor_pid

        def templates_now() -> list[int]:
            return [p for p in census.children(supervisor) if census.command_name(p).startswith("kp-tmpl")]

        assert census.wait_until(lambda: len(templates_now()) == 1)  # a spare has the template's name while it is born
        templates = templates_now()
        assert census.is_alive(templates[0])
        assert census.kill_exactly(templates[0])
        for _ in range(5):  # more than there were spares
            assert pool.submit(tasks.die).outcome(30).cause is Cause.SIGNAL
        assert pool.submit(tasks.square, 3).result(30) == 9
        assert (pool.statistics().template_restarts, pool.statistics().supervisor_restarts) == (1, 0)


def test_a_killed_supervisor_is_started_again() -> None:
    """W04."""
    with Pool(1) as pool:
        pool.submit(tasks.nothing).result(30)
        machinery = census.machinery_of(os.getpid())
        assert census.kill_exactly(pool.statistics().supervisor_pid)
        assert pool.submit(tasks.square, 3).result(30) == 9
        assert census.gone(machinery, 5.0)
        assert pool.statistics().supervisor_restarts == 1


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_state_that_the_host_made_at_run_time_is_set_up_by_an_initializer(
    isolation: Isolation, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W05."""
    monkeypatch.setitem(tasks.REGISTRY, "name", "the host's")
    with Pool(1, isolation=isolation) as pool:
        assert pool.submit(tasks.look_up, "name").result(30) is None
    options: dict[str, Any] = {"initializer": tasks.register, "initargs": ("name", "handler", str(log))}
    with Pool(1, isolation=isolation, **options) as pool:
        for _ in range(3):
            outcome = pool.submit(tasks.look_up, "name").outcome(30)
            assert (outcome.value, str(outcome.pid)) == ("handler", lines(log)[-1])
            assert pool.schedule(tasks.block, timeout=0.1).outcome(30).cause is Cause.TIMEOUT
    assert len(lines(log)) == len(set(lines(log))) == (6 if isolation == "process" else 3)
