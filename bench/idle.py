"""Wake-ups of an idle pool: voluntary context switches of every thread, read from outside.

python -m bench.idle CONTESTANT      a host: opens a pool, uses it, says "ready", and waits for the end of stdin
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import tasks
from bench.child import ROOT
from bench.contest import OURS, Contest, Goal, Metric, Samples, Skip
from bench.peers import open_pool

WORKERS = 2
SETTLE = 1.0  # seconds after the last call until the pool must be idle


def measure(contestant: str, *, quick: bool) -> Samples:
    """Return the wake-ups in 10 s of the host, of killpool's supervisor, and of all other processes of the pool."""
    try:
        import psutil
    except ImportError as missing:
        raise Skip("not installed: psutil") from missing
    seconds = 2.0 if quick else 10.0
    host = subprocess.Popen(
        [sys.executable, "-m", "bench.idle", contestant], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert host.stdin is not None
    assert host.stdout is not None
    try:
        if host.stdout.readline() != b"ready\n":
            raise Skip(f"{contestant} could not be opened")
        time.sleep(SETTLE)
        others = psutil.Process(host.pid).children(recursive=True)
        supervisors = [p.pid for p in others if p.ppid() == host.pid] if contestant == OURS else []
        groups = {
            "host": [host.pid],
            "supervisor": supervisors,
            "workers": [p.pid for p in others if p.pid not in supervisors],
        }
        before = {name: wake_ups(pids) for name, pids in groups.items()}
        time.sleep(seconds)
        after = {name: wake_ups(pids) for name, pids in groups.items()}
    finally:
        host.stdin.close()
        try:
            host.wait(20.0)
        except subprocess.TimeoutExpired:
            host.kill()
            host.wait()
    return {name: [(after[name] - before[name]) * 10.0 / seconds] for name, pids in groups.items() if pids}


def wake_ups(pids: Sequence[int]) -> float:
    """Return the voluntary context switches so far of all threads of some processes."""
    total = 0
    for pid in pids:
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            for line in status.read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
    return float(total)


def main(contestant: str) -> None:
    """Be a host with an idle pool."""
    with open_pool(contestant, WORKERS, 10.0) as face:
        for handle in [face.submit(tasks.noop) for _ in range(100)]:
            face.result(handle)
        print("ready", flush=True)
        sys.stdin.read()


IDLE = Contest(
    name="idle",
    title="wake-ups of an idle pool of 2 workers, per 10 s",
    contestants=(OURS, "ProcessPoolExecutor", "mp.Pool", "loky", "pebble"),
    metrics=(
        Metric("host", "host, all its threads", ""),
        Metric("supervisor", "supervisor", ""),
        Metric("workers", "workers and helpers", ""),
    ),
    measure=measure,
    goals=(Goal("host p50", 0.0), Goal("supervisor p50", 0.0), Goal("workers p50", 0.0)),
    repeats=1,
)

if __name__ == "__main__":
    main(sys.argv[1])
