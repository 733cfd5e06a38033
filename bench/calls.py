"""No-op calls with a deadline, two workers: how many a second when they are many, how long one takes alone."""

from time import perf_counter

from bench import tasks
from bench.contest import OURS, Contest, Goal, Metric, Samples
from bench.peers import PEERS, Face, open_pool

WORKERS = 2
TIMEOUT = 10.0


def measure(contestant: str, *, quick: bool) -> Samples:
    """Return calls a second, and the seconds of single calls."""
    count, singles = (300, 50) if quick else (5000, 500)
    with open_pool(contestant, WORKERS, TIMEOUT) as face:
        _burst(face, 50)  # the workers have started, and have the function
        rates = [count / _burst(face, count) for _ in range(2)]
        latencies = [_single(face) for _ in range(singles)]
    return {"rate": rates, "latency": latencies}


def _burst(face: Face, count: int) -> float:
    submit, result = face.submit, face.result
    start = perf_counter()
    handles = [submit(tasks.noop) for _ in range(count)]
    for handle in handles:
        result(handle)
    return perf_counter() - start


def _single(face: Face) -> float:
    start = perf_counter()
    face.result(face.submit(tasks.noop))
    return perf_counter() - start


RATE = Metric("rate", "submits", "/s", higher_is_better=True)
LATENCY = Metric("latency", "one call alone, p50", "s")

CALLS = Contest(
    name="calls",
    title="no-op calls, 2 workers; deadlines with killpool, pebble and mpire, the others have none",
    contestants=PEERS,
    metrics=(RATE, LATENCY),
    measure=measure,
    goals=(
        Goal(RATE.name, 3.0, at_least=True, of="ProcessPoolExecutor", contestant=OURS),
        Goal(LATENCY.name, 0.5, of="ProcessPoolExecutor", contestant=OURS),
    ),
)
