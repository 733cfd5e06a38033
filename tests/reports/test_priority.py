"""Group 25: urgent calls overtake a backlog."""

from pathlib import Path

import pytest

import census
from killpool import Pool
from killpool.spec import Isolation
from reports import tasks
from reports.support import lines

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("isolation", ["worker", "process"])
@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "after many short calls"])
def test_an_urgent_call_is_the_next_and_equal_ones_keep_their_order(
    is_warm: bool, isolation: Isolation, gate: str, log: Path
) -> None:
    """PR1."""
    with Pool(1, isolation=isolation) as pool:
        if is_warm:  # short calls make the pool send the next ones ahead into the worker
            for _ in range(2):
                for future in [pool.submit(tasks.nothing) for _ in range(200)]:
                    future.result(30)
        busy = pool.submit(tasks.pass_gate, gate)
        assert census.wait_until(busy.running)
        names = [f"low {n}" for n in range(50)]
        futures = [pool.schedule(tasks.append, (str(log), name)) for name in names]
        futures += [pool.schedule(tasks.append, (str(log), f"high {n}"), priority=5) for n in range(3)]
        futures.append(pool.schedule(tasks.append, (str(log), "highest"), priority=9))
        futures.append(pool.schedule(tasks.append, (str(log), "lowest"), priority=-1))
        tasks.open_gate(gate)
        for future in futures:
            future.result(30)
    assert lines(log) == ["highest", "high 0", "high 1", "high 2", *names, "lowest"]
