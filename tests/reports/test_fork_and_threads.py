"""Group 5: a lock that a thread of the host holds is never copied into a worker."""

import pytest

from reports.support import run_script

pytestmark = pytest.mark.timeout(120)

_LOGS = """
import logging, sys, threading, time
from reports import tasks
from killpool import Pool

class Slow(logging.StreamHandler):
    def emit(self, record):           # called with the handler's lock held
        time.sleep(0.002)
        super().emit(record)

logging.getLogger().addHandler(Slow(open("/dev/null", "w")))
over = threading.Event()

def work():
    while not over.is_set():
        logging.getLogger("reports").warning("from the host")
        print("host", file=sys.stderr)

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
try:
    with Pool(20, isolation=sys.argv[1], capture_output=True) as pool:
        outcomes = [f.outcome(60) for f in [pool.submit(tasks.log_once, n) for n in range(20)]]
finally:
    over.set()
print([o.value for o in outcomes] == list(range(20)), {(str(o.stdout), str(o.stderr)) for o in outcomes} ==
      {(f"line {n}\\n", f"record {n}\\n") for n in range(20)}, len({o.pid for o in outcomes}))
"""


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_workers_log_and_print_though_the_host_always_holds_the_locks(isolation: str) -> None:
    """F02."""
    done = run_script(_LOGS, isolation)
    words = done.out.split()
    assert (done.status, words[:2]) == (0, ["True", "True"]), done
    if isolation == "process":
        assert words[2] == "20"


_SHARES = """
import sys, threading
from multiprocessing.shared_memory import SharedMemory
from reports import tasks
from killpool import Pool

over = threading.Event()

def work():
    while not over.is_set():
        block = SharedMemory(create=True, size=4096)
        block.close()
        block.unlink()

thread = threading.Thread(target=work)
thread.start()
try:
    with Pool(4, isolation=sys.argv[1]) as pool:
        print([f.result(60) for f in [pool.submit(tasks.one_shared_block, n) for n in range(20)]] == list(range(20)))
finally:
    over.set()
    thread.join()
"""


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_workers_share_memory_though_the_host_always_holds_the_trackers_lock(isolation: str) -> None:
    """F03."""
    done = run_script(_SHARES, isolation)
    assert (done.status, done.out, done.err) == (0, "True\n", "")
