"""The rules of the house: who may import whom, what stays lean, and what may not be in any file."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "killpool"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 450

# A room may import itself and the rooms named here, or single modules of them.  Imports go one way:
# words ← core ← system ← worker, supervisor ← host ← pool ← evaluate, cli.
WORDS = {"spec", "errors", "faults", "outcome"}
ALLOWED = {
    "faults": set(),
    "spec": {"faults"},
    "errors": {"faults"},
    "outcome": set(),
    "core": WORDS,
    "system": {"core.wire", "faults", "spec", "errors"},
    "worker": WORDS | {"core", "system"},
    "supervisor": WORDS | {"core", "system", "worker"},
    # The host and a worker speak one format of payloads; nothing else of a worker runs in the host.
    "host": WORDS | {"core", "system", "worker.payload"},
    "pool": WORDS | {"core", "system", "host"},
    "__init__": WORDS | {"host.future", "pool"},
    "evaluate": WORDS | {"__init__", "pool"},
    "cli": WORDS | {"__init__", "pool", "evaluate"},
    "__main__": {"cli"},
}

# What reads a clock, waits, touches the machine, or rolls dice is an argument of the core or another room's job.
NOT_IN_CORE = {
    "ctypes", "logging", "multiprocessing", "os", "random", "select", "signal", "socket", "subprocess", "threading",
    "time",
}  # fmt: skip

# Each of these costs a forked worker an after-fork handler, a lock, or a thread.
NOT_IN_A_SUPERVISOR = {"asyncio", "concurrent.futures", "logging", "multiprocessing", "random", "threading"}
SUPERVISOR_ENTRIES = ("killpool.supervisor.main", "killpool.supervisor.loop", "killpool.worker.serve")

NOT_AT_IMPORT = {
    "asyncio", "cloudpickle", "loky", "multiprocessing", "orjson", "pebble", "prometheus_client", "rich", "subprocess",
}  # fmt: skip

# A broad except is for edges: where a user's own code runs (whatever it raises is an answer), and where a loop must
# tell its waiters of a fault of ours.  Its reason is a comment beside it.
BROAD_EXCEPTS = {
    "evaluate/program.py",
    "host/engine.py",
    "host/future.py",
    "host/loop.py",
    "host/payload.py",
    "host/settle.py",
    "supervisor/template.py",
    "worker/payload.py",
    "worker/serve.py",
    "worker/untrusted.py",
}


def relative(path: Path) -> str:
    """Return the path as messages name it."""
    return path.relative_to(PACKAGE).as_posix()


def room(module: str) -> str:
    """Return the room of "core.wire": "core"."""
    return module.partition(".")[0]


def name_of(path: Path) -> str:
    """Return a module's name without "killpool."; the package itself is "__init__"."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of each module that a file imports, wherever in it; `from x import y` yields x.y."""
    here = ["killpool", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*here[: len(here) + 1 - node.level], *filter(None, [node.module])] if node.level else [node.module]
            yield from (".".join([*map(str, base), alias.name]) for alias in node.names)


def ours(path: Path) -> Iterator[str]:
    """Yield the modules of this package that a file imports, without "killpool."."""
    known = {name_of(module) for module in MODULES}
    for name in imports(path):
        head, _, rest = name.partition(".")
        if head != "killpool":
            continue
        while rest and rest not in known:  # what remains after the module is a name in it
            rest = rest.rpartition(".")[0]
        yield rest or "__init__"


def is_allowed(importer: str, imported: str) -> bool:
    """Say whether a module may import another, both without "killpool."."""
    allowed = ALLOWED[room(importer)] | ({room(importer)} if room(importer) != "__init__" else set())
    return room(imported) in allowed or any(imported == one or imported.startswith(f"{one}.") for one in allowed)


def test_every_room_has_its_rule() -> None:
    assert {room(name_of(path)) for path in MODULES} == set(ALLOWED)


def test_the_rules_themselves_go_one_way() -> None:
    order: list[str] = []
    left = dict(ALLOWED)
    while left:
        ready = sorted(name for name, needs in left.items() if not {room(need) for need in needs} & set(left))
        assert ready, f"a circle among {sorted(left)}"
        order += ready
        for name in ready:
            del left[name]
    assert set(order) == set(ALLOWED)


def test_imports_go_one_way() -> None:
    broken = [
        f"{relative(path)} imports {imported}"
        for path in MODULES
        for imported in ours(path)
        if not is_allowed(name_of(path), imported)
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("core.classify", "system.procfs"), ("system.cgroup", "core.budget"), ("system.cgroup", "outcome"),
        ("worker.serve", "supervisor.loop"), ("worker.serve", "host.payload"), ("supervisor.loop", "host.link"),
        ("host.link", "worker.serve"), ("host.engine", "supervisor.main"), ("host.engine", "pool"),
        ("pool", "evaluate"), ("evaluate.runner", "cli.main"), ("spec", "errors"), ("outcome", "core.wire"),
        ("__init__", "host.engine"),
    ],
)  # fmt: skip
def test_the_rules_refuse_what_they_are_there_for(importer: str, imported: str) -> None:
    assert not is_allowed(importer, imported)


def test_the_core_neither_acts_nor_reads_a_clock() -> None:
    broken = [
        f"{relative(path)} imports {name}"
        for path in MODULES
        if room(name_of(path)) == "core"
        for name in imports(path)
        if room(name) in NOT_IN_CORE
    ]
    assert broken == []


def in_a_fresh_interpreter(code: str, *flags: str) -> object:
    """Run code that prints JSON in a new interpreter that finds the package; return what it printed."""
    paths = [str(ROOT), *(path for path in sys.path if path and Path(path).is_dir())]
    head = f"import sys; sys.path[:] = {paths!r}\n"
    done = subprocess.run(
        [sys.executable, *flags, "-c", head + code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_supervisor_and_what_it_forks_stay_lean() -> None:
    code = f"import {', '.join(SUPERVISOR_ENTRIES)}\nimport json; print(json.dumps(sorted(sys.modules)))"
    loaded = in_a_fresh_interpreter(code, "-I", "-S")
    assert isinstance(loaded, list)
    assert set(SUPERVISOR_ENTRIES) <= set(loaded)
    assert NOT_IN_A_SUPERVISOR.intersection(loaded) == set()


def test_importing_the_package_loads_nothing_heavy_and_starts_nothing() -> None:
    code = """
before = set(sys.modules)
import killpool
loaded = sorted(set(sys.modules) - before)
import json, os
print(json.dumps([loaded, len(os.listdir("/proc/self/task")),
    open(f"/proc/self/task/{os.getpid()}/children").read().split()]))
"""
    answer = in_a_fresh_interpreter(code)
    assert isinstance(answer, list)
    loaded, threads, children = answer
    assert "killpool" in loaded
    assert NOT_AT_IMPORT.intersection(loaded) == set()
    assert (threads, children) == (1, [])


def test_every_public_name_can_be_had_and_is_listed() -> None:
    code = """
import json, killpool
print(json.dumps([sorted(n for n in killpool.__all__ if getattr(killpool, n, None) is None), dir(killpool)]))
"""
    answer = in_a_fresh_interpreter(code)
    assert isinstance(answer, list)
    missing, listed = answer
    assert missing == []
    assert listed == sorted(listed)


def test_no_module_is_too_long_to_be_read() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: count for path, count in lengths.items() if count > MAX_LINES} == {}


def has_broad_except(path: Path) -> bool:
    """Say whether a file catches Exception, BaseException or everything."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            caught = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"Exception"}
            if caught & {"Exception", "BaseException"}:
                return True
    return False


def test_errors_are_caught_broadly_only_at_the_edges() -> None:
    assert {relative(path) for path in MODULES if has_broad_except(path)} == BROAD_EXCEPTS


def project_files() -> Iterator[tuple[str, str]]:
    """Yield path and text of what belongs to the project: what git tracks or would, or else all but what is made."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive, or git is not here
        made = {".venv", "__pycache__", ".hypothesis", "dist", ".git"}
        paths = [path for path in ROOT.rglob("*") if not made & set(path.parts) and "cache" not in path.parent.name]
    for path in paths:
        if path.is_file() and path != Path(__file__).resolve():
            try:
                yield path.relative_to(ROOT).as_posix(), path.read_text()
            except UnicodeDecodeError:
                continue  # a binary file


# Places where somebody worked, and hosts that an install should get from its user's own configuration.
FOREIGN = re.compile(
    r"/(?:root|home|Users|work|mnt|workspace)/[\w.]|/opt/(?:wheels|pypi)|/tmp/[\w.-]*venv"
    r"|https?://[\w.-]*(?:pypi|python[h]osted|artifactory|nexus|devpi|proxy)[\w.-]*"
    r"|--(?:extra-)?index-url|--find-links|--trusted-host"
)


def test_no_file_names_a_workplace_or_a_package_registry() -> None:
    found = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in project_files()
        for number, line in enumerate(text.splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert found == []


def test_scripts_can_be_run() -> None:
    wanted = ["scripts/run", "scripts/test", ".ci/run"]
    assert [name for name in wanted if not os.access(ROOT / name, os.X_OK)] == []
