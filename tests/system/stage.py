"""Running a script as somebody: the user of the tests, or an unprivileged one for whom the code is copied.

    OWN.run("script.py", "argument")              -> Finished(status, out, err, wall)
    Place(account, "walk").scenario("bush", …)    -> the dict that `scenarios.py` printed

Each script runs in a session of its own, and is killed with all that carries its mark at an outer limit.
"""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import census

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NOBODY = 64_123  # a uid that no account has; the kernel does not need one
_NEEDED = ("orjson", "cloudpickle", "loky", "filelock")
_bases: list[str] = []


@dataclass(frozen=True)
class Finished:
    """How a script ended."""

    status: int
    out: str
    err: str
    wall: float


@dataclass(frozen=True)
class Account:
    """Who runs scripts: a uid (None: as we are), a Python that it can execute, and where the code lies."""

    name: str
    uid: int | None
    python: str
    path: tuple[str, ...]

    def popen(self, *argv: str, **options: Any) -> "subprocess.Popen[str]":
        """Start `python *argv` in a session of its own; the caller waits for it."""
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(self.path), **options.pop("env", {})}
        if self.uid is not None:
            env |= {"HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
            options |= {"user": self.uid, "group": self.uid, "extra_groups": [], "cwd": "/"}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
        return subprocess.Popen([self.python, *argv], text=True, env=env, start_new_session=True, **options)

    def run(self, *argv: str, limit: float = 60.0, **options: Any) -> Finished:
        """Run `python *argv` to its end; AssertionError if that takes longer than `limit` seconds."""
        mark = census.new_mark()
        options["env"] = {**options.get("env", {}), "KILLPOOL_SCRIPT_MARK": mark}
        started = time.monotonic()
        process = self.popen(*argv, **options)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            left = [census.describe(pid) for pid in census.find_by_environment(mark)]
            end(process, mark)
            out, err = process.communicate()
            raise AssertionError(f"{argv} was still running after {limit} s: {left}\n{out}\n{err}") from None
        return Finished(process.returncode, out or "", err or "", time.monotonic() - started)

    def refusal(self, contain: str) -> str:
        """Return "" if a pool with this `contain` can be had by this account, else the reason."""
        return _refusals(self).get(contain, "")


def end(process: "subprocess.Popen[str]", mark: str = "") -> None:
    """Kill a script that we started, then what carries its mark."""
    process.kill()
    process.wait()
    for pid in census.find_by_environment(mark) if mark else ():
        census.kill_exactly(pid)


@functools.cache
def _refusals(account: Account) -> dict[str, str]:
    code = (
        "import json; from killpool.system import cgroup, namespaces; "
        "print(json.dumps({'cgroup': cgroup.probe(), 'pidns': namespaces.probe()}))"
    )
    done = account.run("-c", code)
    assert done.status == 0, done.err
    reasons: dict[str, str] = json.loads(done.out)
    return reasons


OWN = Account("own", None, sys.executable, (str(ROOT), str(HERE), *filter(None, sys.path)))


@functools.cache
def unprivileged() -> Account | str:
    """Return an account without privileges, with a copy of the code that it can read; or why there is none."""
    if os.geteuid() != 0:
        return "the tests themselves run as an unprivileged user: the own tiers are that case"
    folder = Path(tempfile.mkdtemp(prefix="stage-", dir=base()))
    os.chmod(folder, 0o755)
    for name in _NEEDED:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            return f"{name} is not installed"
        origin = Path(spec.origin)
        _copy(origin.parent if origin.name == "__init__.py" else origin, folder)
    _copy(ROOT / "killpool", folder)
    _copy(HERE, folder / "tests")
    path = (str(folder), str(folder / "tests" / HERE.name))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (os.path.realpath(sys.executable), f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        account = Account("user", NOBODY, python, path)
        try:
            done = account.run("-c", "import sys, orjson, cloudpickle, killpool; print(*sys.version_info[:2], sep='.')")
        except OSError:
            continue  # not there, or below a folder that this user may not enter
        if done.status == 0 and done.out.strip() == version:
            return account
    return f"no Python {version} that an unprivileged user may execute"


def _copy(source: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    target = folder / source.name
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def base() -> str:
    """Return a folder of this session that every user may enter: pytest's own are closed to others."""
    if not _bases:
        _bases.append(tempfile.mkdtemp(prefix="killpool-tests-"))
        os.chmod(_bases[0], 0o755)
    return _bases[0]


def clean() -> None:
    """Remove the session's folder."""
    while _bases:
        shutil.rmtree(_bases.pop(), ignore_errors=True)


@dataclass(frozen=True)
class Place:
    """An account and a containment: where a scenario is played."""

    account: Account
    contain: str

    def scenario(self, name: str, *arguments: str, limit: float = 60.0) -> dict[str, Any]:
        """Play a scenario of `scenarios.py`; return what it printed."""
        file = f"{self.account.path[1]}/scenarios.py"
        done = self.account.run(file, name, self.contain, *arguments, limit=limit)
        assert done.status == 0, f"{name} ended with {done.status}:\n{done.out}\n{done.err}"
        result: dict[str, Any] = last_json(done.out, done.err)
        if done.err:
            result["stderr"] = done.err
        return result


def last_json(out: str, err: str = "") -> Any:
    """Return what the last line of a script's output says; AssertionError shows both streams if it says nothing."""
    try:
        return json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        raise AssertionError(f"no JSON in the output:\n{out}\n{err}") from None
