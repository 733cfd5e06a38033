"""What tests of real processes share: nothing may be left behind, the tiers of containment, and another user.

`tests/system` and `tests/reports` are watched: see `_nothing_is_left`.  Their modules import `census`, `stage` and
`tasks` by these names.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_WATCHED = {ROOT / "tests" / "system", ROOT / "tests" / "reports"}

for folder in (ROOT / "tests" / "system", ROOT):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import census
import stage


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail the test if it leaves a process, thread, descriptor, shared memory, cgroup or temporary file.

    Every process started meanwhile carries a mark in its environment, so one that ran away is found too.  The test
    gets a TMPDIR of its own, writable for everybody.
    """
    if not _WATCHED.intersection(request.path.parents):
        yield
        return
    tmp_path_factory.getbasetemp()  # made once, where TMPDIR pointed before
    mark = census.new_mark()
    folder = tempfile.mkdtemp(prefix="kt-", dir=stage.base())
    os.chmod(folder, 0o1777)
    patch = pytest.MonkeyPatch()
    patch.setenv(census.ENVIRONMENT_MARK, mark)
    patch.setenv("TMPDIR", folder)
    patch.setattr(tempfile, "tempdir", folder)
    before = census.Snapshot.take()
    try:
        yield
        left = before.settle(mark, folder)
    finally:
        for pid in census.find_by_environment(mark):  # the next test must not suffer for this one
            census.kill_exactly(pid)
        patch.undo()
        shutil.rmtree(folder, ignore_errors=True)
    assert left == {}, f"the test left behind: {left}"


@pytest.fixture(params=["auto", "walk", "pidns"], ids=["auto", "walk", "pidns"])
def tier(request: pytest.FixtureRequest) -> str:
    """A value for `contain=` that works for the user who runs the tests: "auto" is the cgroup where there is one."""
    reason = stage.OWN.refusal(request.param)
    if reason:
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture(params=["own-auto", "own-walk", "own-pidns", "user-walk", "user-pidns"])
def place(request: pytest.FixtureRequest) -> stage.Place:
    """Who runs a scenario, and how its trees are contained: the user who runs the tests, and an unprivileged one."""
    who, _, contain = request.param.partition("-")
    account = stage.OWN if who == "own" else stage.unprivileged()
    if isinstance(account, str):
        pytest.skip(account)
    reason = account.refusal(contain)
    if reason:
        pytest.skip(reason)
    return stage.Place(account, contain)


@pytest.fixture
def unprivileged() -> stage.Account:
    """An account without any privilege, to run a script as."""
    account = stage.unprivileged()
    if isinstance(account, str):
        pytest.skip(account)
    return account


def pytest_sessionfinish() -> None:
    """Remove what was staged for the other user."""
    stage.clean()
