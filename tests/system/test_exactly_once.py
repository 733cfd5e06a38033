"""Calls run exactly once, one death costs one call, and every death has its own cause: counted, not believed."""

from collections import Counter
from pathlib import Path

import pytest

import census
import tasks
from killpool import Cause, Outcome, Pool, RestartPolicy
from killpool.spec import Contain

pytestmark = pytest.mark.timeout(180)


def _lines(path: Path) -> Counter[int]:
    return Counter(map(int, path.read_text().split()))


def test_a_thousand_calls_of_which_fifty_kill_their_worker_run_once_each(tmp_path: Path, tier: Contain) -> None:
    path = tmp_path / "lines"
    with Pool(2, contain=tier) as pool:
        futures = [pool.schedule(tasks.line_or_death, (n, 20, str(path)), retries=0) for n in range(1000)]
        outcomes = [f.outcome(120) for f in futures]
    assert _lines(path) == Counter(range(1000))
    assert [o.value for o in outcomes] == [None if n % 20 == 0 else n for n in range(1000)]
    assert [(o.cause, o.signal) for o in outcomes[::20]] == [(Cause.SIGNAL, 9)] * 50
    assert {o.attempts for o in outcomes} == {1}


def test_a_thousand_calls_in_fresh_processes_of_which_fifty_kill_theirs_run_once_each(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with Pool(2, isolation="process") as pool:
        futures = [pool.submit(tasks.line_or_death, n, 20, str(path)) for n in range(1000)]
        outcomes = [f.outcome(120) for f in futures]
    assert _lines(path) == Counter(range(1000))
    assert [o.value for o in outcomes] == [None if n % 20 == 0 else n for n in range(1000)]


def test_a_retried_call_runs_once_more_for_each_death_and_no_other_does(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with Pool(2) as pool:
        futures = [pool.schedule(tasks.line_or_death, (n, 20, str(path)), retries=2) for n in range(200)]
        outcomes = [f.outcome(120) for f in futures]
    assert _lines(path) == Counter({n: 3 if n % 20 == 0 else 1 for n in range(200)})
    assert [o.attempts for o in outcomes] == [3 if n % 20 == 0 else 1 for n in range(200)]


def _ends_near_its_deadline(number: int) -> bool:
    return number % 4 == 0


def test_no_innocent_call_is_charged_when_others_end_within_150_microseconds_of_their_deadline(tier: Contain) -> None:
    timeout, count = 0.004, 3000
    with Pool(2, contain=tier) as pool:
        pool.submit(tasks.add, 1, 2).result(30)
        futures = []
        for n in range(count):
            if _ends_near_its_deadline(n):
                early = 150e-6 * ((n // 4) % 25 - 12) / 12  # from 150 us before the deadline to 150 us after it
                futures.append(pool.schedule(tasks.spin_until_nearly, (timeout, early), timeout=timeout))
            else:
                futures.append(pool.schedule(tasks.add, (n, n), timeout=30))
        outcomes = [f.outcome(120) for f in futures]
    innocent = [(n, o.value, o.cause) for n, o in enumerate(outcomes) if not _ends_near_its_deadline(n)]
    assert innocent == [(n, 2 * n, Cause.OK) for n, _, _ in innocent]
    assert len(innocent) == 2250
    near = Counter(o.cause for n, o in enumerate(outcomes) if _ends_near_its_deadline(n))
    assert set(near) == {Cause.OK, Cause.TIMEOUT}  # both happen, or the race was not there
    assert {o.value for o in outcomes if o.cause is Cause.TIMEOUT} == {None}


def _told(outcome: Outcome) -> tuple[str, int | None, int | None]:
    return str(outcome.cause), outcome.exitcode, outcome.signal


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_hundred_deaths_in_ten_ways_cost_a_hundred_calls_and_each_is_rightly_named(
    tier: Contain, isolation: str
) -> None:
    with Pool(2, contain=tier, isolation=isolation, restart=RestartPolicy(0)) as pool:  # type: ignore[arg-type]
        futures = [pool.submit(tasks.value_or_death, n, 10) for n in range(1000)]
        outcomes = [f.outcome(120) for f in futures]
        assert pool.submit(tasks.add, 1, 2).result(30) == 3
    assert [o.value for n, o in enumerate(outcomes) if n % 10] == [n for n in range(1000) if n % 10]
    expected = [(way[0], way[2]) for way in tasks.WAYS_TO_DIE] * 10
    assert [(e[0], _told(o)) for e, o in zip(expected, outcomes[::10], strict=True)] == expected
    assert {o.killed_by_us for o in outcomes} == {False}
    assert sum(o.survivors for o in outcomes) == 0


def test_workers_killed_in_the_middle_of_a_big_result_cost_their_own_calls_only() -> None:
    size = 30 * 1024 * 1024
    with Pool(4) as pool:
        ok = bad = 0
        for outcome in pool.outcomes(_big, range(60), timeout=60):
            assert outcome.index is not None
            if outcome.index % 6 == 0:
                assert _told(outcome) == ("signal", None, 9)
                bad += 1
            else:
                assert outcome.value == bytes([outcome.index]) * size
                ok += 1
        assert (ok, bad) == (50, 10)


def _big(number: int) -> object:
    return tasks.big_or_killed(number, 6, 30 * 1024 * 1024)


def test_workers_killed_from_outside_while_they_send_big_results_cost_one_call_each() -> None:
    size = 30 * 1024 * 1024
    with Pool(4) as pool:
        futures = [pool.schedule(tasks.big_or_killed, (n, 1000, size), timeout=60) for n in range(1, 41)]
        killed = 0
        while killed < 8 and not all(f.done() for f in futures):
            for pid in pool.statistics().worker_pids[:1]:
                killed += census.kill_exactly(pid)
            census.breathe()
        outcomes = [f.outcome(120) for f in futures]
    values = [o.value == bytes([n]) * size for n, o in enumerate(outcomes, 1) if o.ok]
    deaths = [_told(o) for o in outcomes if not o.ok]
    assert values == [True] * len(values)
    # One that was killed while its worker imported the function's module could not be started.
    assert set(deaths) <= {("signal", None, 9), ("start_failed", None, 9)}
    assert len(deaths) <= killed
    assert killed > 0
