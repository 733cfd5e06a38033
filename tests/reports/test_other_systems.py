"""Group 27: where killpool cannot keep its promises it says so when the pool is built, and pretends nothing."""

import os
import sys

import pytest

import killpool.pool
from killpool import Pool, UnsupportedPlatform
from killpool.system.platform import require_linux

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("missing", ["pidfd_open", "memfd_create", "eventfd", "waitid"])
def test_a_missing_function_is_named_when_the_pool_is_built(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OS1."""
    monkeypatch.delattr(os, missing)
    with pytest.raises(UnsupportedPlatform, match=missing):
        Pool(1)


@pytest.mark.parametrize("release", ["5.3.0", "4.19.0-6-amd64", "3.10.0"])
def test_an_old_kernel_is_named(release: str) -> None:
    """OS1."""
    with pytest.raises(UnsupportedPlatform, match=release):
        require_linux("linux", release)


@pytest.mark.parametrize("release", ["5.4.0", "6.18.0-rc1", "10.0"])
def test_a_new_kernel_is_accepted(release: str) -> None:
    """OS1."""
    require_linux(sys.platform, release)


@pytest.mark.parametrize("system", ["win32", "cygwin"])
def test_windows_is_refused(system: str) -> None:
    """OS2, OS3: no kill path and no number of workers is reached there."""
    with pytest.raises(UnsupportedPlatform, match=f"(?s)Linux.*{system}"):
        require_linux(system)


def test_macos_is_refused() -> None:
    """OS4, OS5: nothing is forked and no group is killed there."""
    with pytest.raises(UnsupportedPlatform, match="darwin"):
        require_linux("darwin")


def test_a_pool_asks_before_it_does_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """OS1."""
    monkeypatch.setattr(killpool.pool, "require_linux", lambda: require_linux("darwin"))
    with pytest.raises(UnsupportedPlatform, match="darwin"):
        Pool("not even looked at")  # type: ignore[arg-type]
