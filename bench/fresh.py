"""A fresh process for each task, against what fork + exit + wait alone costs a lean Python."""

import subprocess
import sys
from time import perf_counter

from bench import tasks
from bench.contest import OURS, Contest, Goal, Metric, Samples, Skip

WORKERS = 2
CONTAINED = {OURS: "auto", f"{OURS} walk": "walk", f"{OURS} pidns": "pidns"}

# -I -S: nothing is imported that such a loop does not need; a fork copies the page tables of what is there.
BARE_FORK = """
import os, sys, time
count = int(sys.argv[1])
start = time.perf_counter()
for _ in range(count):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print(count / (time.perf_counter() - start))
"""


def measure(contestant: str, *, quick: bool) -> Samples:
    """Return fresh processes a second."""
    count = 200 if quick else 2000
    if contestant in CONTAINED:
        return {"rate": [_pool_rate(CONTAINED[contestant], count) for _ in range(1 if quick else 2)]}
    loops = 2 if contestant == "fork, two loops" else 1
    return {"rate": [_fork_rate(count, loops) for _ in range(1 if quick else 2)]}


def _pool_rate(contain: str, count: int) -> float:
    from killpool import Pool, UnsupportedPlatform

    try:
        pool = Pool(WORKERS, isolation="process", preload=["bench.tasks"], contain=contain, timeout=10.0)  # type: ignore[arg-type]
    except UnsupportedPlatform as reason:
        raise Skip(str(reason)) from reason
    with pool:
        for future in [pool.submit(tasks.noop) for _ in range(20)]:
            future.result()
        start = perf_counter()
        for future in [pool.submit(tasks.noop) for _ in range(count)]:
            future.result()
        return count / (perf_counter() - start)


def _fork_rate(count: int, loops: int) -> float:
    argv = [sys.executable, "-I", "-S", "-c", BARE_FORK, str(count)]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(loops)]
    return sum(float(process.communicate(timeout=120)[0]) for process in running)


RATE = Metric("rate", "tasks", "/s", higher_is_better=True)

FRESH = Contest(
    name="fresh",
    title="a fresh process for each task, 2 workers, the task's module preloaded",
    contestants=(*CONTAINED, "fork", "fork, two loops"),
    metrics=(RATE,),
    measure=measure,
    goals=(Goal(RATE.name, 0.7, at_least=True, of="fork"),),
)
