"""Group 12: functions that were typed, piped or given as text, and belong to no file."""

import subprocess
from pathlib import Path

import pytest

import stage

pytestmark = pytest.mark.timeout(120)

_TYPED = """
from killpool import Pool
factor = 3
def f(n):
    return n * factor

pool = Pool(1)
print(pool.submit(f, 5).result(20))
print(pool.schedule(lambda n: f(n) + 1, (5,), timeout=5).result(20))
print(list(pool.map(f, range(3))))
print(pool.statistics().idle_deaths)
pool.shutdown()
"""
_SAID = "15\n16\n[0, 3, 6]\n0\n"


@pytest.mark.parametrize("how", [["-"], ["-q", "-i", "-"], ["-c", _TYPED]], ids=["stdin", "interactive", "-c"])
def test_a_function_that_was_typed_in_works(how: list[str], tmp_path: Path) -> None:
    """J01."""
    script = tmp_path / "typed"
    script.write_text(_TYPED)
    with script.open() as stdin:
        done = stage.OWN.run(*how, stdin=stdin, stderr=subprocess.STDOUT, limit=30)
    out = done.out.replace(">>> ", "").replace("... ", "").replace("\n\n", "\n")
    assert (done.status, out.lstrip("\n").rstrip("\n") + "\n") == (0, _SAID)


_BAD = """
import os, sys
from killpool import Pool
def f(stream):
    return stream
with Pool(1) as pool:
    outcome = pool.submit(f, sys.stdin).outcome(20)
print(outcome.cause, "'f'" in str(outcome.error) or " f " in str(outcome.error), pool.statistics().idle_deaths)
"""


def test_what_cannot_be_sent_is_one_error_that_names_the_function() -> None:
    """J01."""
    done = stage.OWN.run("-c", _BAD, limit=30)
    assert (done.status, done.out, done.err) == (0, "exception True 0\n", "")
