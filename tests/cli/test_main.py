"""The command line itself: help, version, usage errors, and the module form."""

import subprocess
import sys

import pytest

from killpool.cli.main import main


def test_help_is_printed_and_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "eval" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("killpool ")


@pytest.mark.parametrize("argv", [[], ["no-such-command"], ["eval"], ["eval", "a", "b", "--no-such-option"]])
def test_a_usage_error_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage: killpool" in capsys.readouterr().err


def test_the_module_form_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "killpool", "eval", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("usage: killpool eval")


def test_the_command_line_imports_neither_rich_nor_the_json_library() -> None:
    code = "import sys, killpool.cli.main; print({'rich', 'orjson'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"
