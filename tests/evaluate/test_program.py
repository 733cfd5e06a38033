"""What runs in the fresh process: its end, its exceptions and its exits come out as they are."""

import subprocess
import sys
import traceback

import pytest

from killpool.evaluate.program import MODULE, run_program


@pytest.fixture(autouse=True)
def _leaves_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, sys)


def run_alone(source: str) -> subprocess.CompletedProcess[str]:
    """Run `source` in a process of its own; it prints "returned" if run_program does."""
    code = f"from killpool.evaluate.program import run_program\nrun_program({source!r})\nprint('returned')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_a_program_that_comes_to_its_end_returns() -> None:
    run_program("x = 1\nassert x == 1")


def test_what_a_program_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        run_program("1 // 0")


@pytest.mark.parametrize(("source", "kind"), [("def", SyntaxError), ("a\0b", ValueError), ("'\ud800'", UnicodeError)])
def test_a_text_that_is_no_program_raises(source: str, kind: type[Exception]) -> None:
    # Newer Pythons say SyntaxError for a zero byte, which is a ValueError only in older ones.
    with pytest.raises((kind, SyntaxError)):
        run_program(source)


def test_a_traceback_quotes_the_programs_lines() -> None:
    with pytest.raises(AssertionError) as caught:
        run_program("def check(f):\n    assert f() == 'as wanted'\ncheck(int)")
    assert "assert f() == 'as wanted'" in "".join(traceback.format_exception(caught.value))


def test_each_program_has_a_namespace_of_its_own() -> None:
    run_program("left_over = 1")
    with pytest.raises(NameError):
        run_program("left_over")


def test_a_main_block_does_not_run() -> None:
    run_program("if __name__ == '__main__':\n    raise RuntimeError('ran')")


def test_dataclasses_find_their_module() -> None:
    run_program(
        "from __future__ import annotations\n"
        "import dataclasses, typing\n"
        "@dataclasses.dataclass\n"
        "class Point:\n"
        "    x: typing.ClassVar[int] = 1\n"
        "    y: int = 2\n"
        "assert typing.get_type_hints(Point)['y'] is int and Point().y == 2"
    )


def test_our_own_future_imports_do_not_reach_a_program() -> None:
    run_program("def f(x: 1 + 1): ...\nassert f.__annotations__['x'] == 2")


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(0)", 0),
        ("exit(25)", 25),
        ("raise SystemExit(256 + 7)", 7),
        ("raise SystemExit(2 ** 80 + 3)", 3),
        ("raise SystemExit(True)", 1),
        ("class E(SystemExit): pass\nraise E(4)", 4),
    ],
)
def test_an_exit_ends_the_process_with_its_code_and_is_no_return(source: str, code: int) -> None:
    done = run_alone(f"print('before')\n{source}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "before\n", "")


def test_an_exit_with_a_message_prints_it_and_is_1() -> None:
    done = run_alone("import sys; sys.exit('no such thing')")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no such thing\n")


def test_an_exit_after_the_streams_were_closed_keeps_its_code() -> None:
    assert run_alone("import sys; sys.stdout.close(); sys.stderr = None; sys.exit(9)").returncode == 9


def test_patching_os_does_not_turn_an_exit_into_a_return() -> None:
    done = run_alone("import os, sys; os._exit = sys.exit = print; raise SystemExit(3)")
    assert (done.returncode, done.stdout) == (3, "")


def test_a_forked_child_that_runs_to_the_end_does_not_answer_too() -> None:
    done = run_alone("import os\nif os.fork(): os.wait()")
    assert (done.returncode, done.stdout) == (0, "returned\n")


def test_a_forked_child_that_raises_does_not_answer_too() -> None:
    done = run_alone("import os\npid = os.fork()\nassert pid\nassert os.waitstatus_to_exitcode(os.wait()[1]) == 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "returned\n", "")


def test_the_preloaded_module_brings_little_with_it() -> None:
    code = (
        "import sys; before = set(sys.modules); import killpool.evaluate.program as p;"
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('killpool.evaluate.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["killpool.evaluate.program"]
