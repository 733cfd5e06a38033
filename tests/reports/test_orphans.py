"""Group 4: what a call or a host leaves behind when it dies: nothing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import census
import stage
from killpool import Cause, Pool
from killpool.spec import Isolation
from killpool.supervisor.child import Child, Intent, State
from killpool.supervisor.deaths import Deaths
from killpool.system import treekill
from reports import tasks
from reports.support import stopwatch, wait_lines

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_sleeper_that_holds_the_output_pipe_does_not_hold_the_outcome(isolation: Isolation, mark: str) -> None:
    """O02."""
    with Pool(1, capture_output=True, isolation=isolation) as pool:
        pool.submit(tasks.nothing).result(30)
        with stopwatch() as watch:
            future = pool.schedule(tasks.print_and_leave_sleeper, ("printed before", mark), timeout=1.0)
            assert census.wait_until(lambda: census.find(mark))
            outcome = future.outcome(30)
        assert census.find(mark) == []
    assert (outcome.cause, str(outcome.stdout)) == (Cause.TIMEOUT, "printed before\n")
    assert (outcome.descendants_killed, outcome.survivors) == (1, 0)
    assert watch.seconds <= 1.5


def test_the_children_of_a_worker_that_crashes_die_with_it(mark: str, gate: str, log: Path) -> None:
    """O04."""
    with Pool(1) as pool:
        future = pool.submit(tasks.sleeper_then_death, str(log), gate, mark)
        sleeper = int(wait_lines(log, 1)[0])
        assert census.wait_until(lambda: census.find(mark) == [sleeper])
        tasks.open_gate(gate)
        outcome = future.outcome(30)
        assert not census.is_alive(sleeper)
        assert (outcome.cause, outcome.signal, outcome.survivors) == (Cause.SIGNAL, 9, 0)


_KILLS_ITSELF = """
import os, signal, sys, threading
from reports import tasks
from killpool import Pool
print("armed", flush=True)
threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), signal.SIGKILL)).start()
pool = Pool(2)
for _ in range(4):
    pool.submit(tasks.block)
threading.Event().wait()
"""


@pytest.mark.parametrize("moment", range(20))
def test_a_host_that_dies_while_it_starts_its_workers_leaves_none(moment: int) -> None:
    """O06."""
    mark = census.new_mark()
    host = stage.OWN.popen("-c", _KILLS_ITSELF, str(moment * 0.002), env={"HOST_MARK": mark})
    try:
        assert host.stdout is not None
        assert host.stdout.readline() == "armed\n"
        assert host.wait(30) == -9

        def alive() -> list[int]:
            return sorted({*census.find_by_environment(mark), *census.machinery_of(host.pid)})

        assert census.wait_until(lambda: alive() == [], 2.0), list(map(census.describe, alive()))
    finally:
        stage.end(host, mark)
        host.communicate()


def test_no_zombie_is_there_when_a_timeout_is_told() -> None:
    """O08."""
    with Pool(1) as pool:
        supervisor = pool.statistics().supervisor_pid
        for _ in range(60):
            outcome = pool.schedule(tasks.block, timeout=0.05).outcome(30)
            assert (outcome.cause, census.zombies(), census.zombies(supervisor)) == (Cause.TIMEOUT, [], [])
            assert outcome.pid is not None
            assert census.state(outcome.pid) == ""


def test_a_process_that_was_reaped_is_not_signalled() -> None:
    """O09: a pidfd names a process for good, whoever gets its number."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pidfd = os.pidfd_open(process.pid)
    try:
        assert census.is_alive(process.pid)
        assert treekill.signal_pidfd(pidfd, 0)
        process.communicate(b"\n")
        assert not treekill.signal_pidfd(pidfd, 9)
    finally:
        os.close(pidfd)


@pytest.mark.parametrize("state", [State.EMPTYING, State.KILLED, State.TAINTED, State.FORKING])
def test_a_deadline_that_comes_after_the_end_sends_no_signal(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """O09: the time is an argument, so the late deadline is simply told."""
    sent: list[Any] = []
    monkeypatch.setattr(treekill, "signal_pidfd", lambda *what: sent.append(what) or True)
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    child = Child(number=1, page=None, status=-1, state=state, pid=os.getpid())
    deaths = Deaths({1: child}, "walk", 0, 1, lambda: set(), lambda *_: None)
    deaths.begin(child, Intent("timeout", 1, 1_000, "wall", 1.0), wants_stack=True)
    assert (sent, child.state, child.intent) == ([], state, None)
