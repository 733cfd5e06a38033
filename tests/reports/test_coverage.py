"""The table in README.md and the tests say the same: which case is tested where, and which is not."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
_ROW = re.compile(r"^\| ([A-Z]+\d+) \| [^|]+ \| (tested|differs|later part) \| ([^|]+) \|$")
_CASE = re.compile(r"\b(?:T|D|R|O|F|P|B|M|C|S|N|J|W|A|G|Y|L|Q|X|E|Z|V|U|H|I)\d\d\b|\b(?:PR|OS)\d\b")


def _table() -> dict[str, tuple[str, str]]:
    """Return {case: (status, last column)}."""
    rows = [line for line in (HERE / "README.md").read_text().splitlines() if line.startswith("| ")][1:]
    found = [_ROW.match(row) for row in rows]
    assert [row for row, match in zip(rows, found, strict=True) if match is None] == []
    cases = [match[1] for match in found if match]
    assert sorted(cases) == sorted(set(cases))
    return {match[1]: (match[2], match[3]) for match in found if match}


def _tests() -> dict[str, set[str]]:
    """Return {name of a test: the cases that its docstring names}."""
    found: dict[str, set[str]] = {}
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and file != Path(__file__):
                assert node.name not in found
                found[node.name] = set(_CASE.findall(ast.get_docstring(node) or ""))
    return found


def test_every_case_that_is_said_to_be_tested_is_named_by_its_tests() -> None:
    tests = _tests()
    for case, (status, text) in _table().items():
        named = set(re.findall(r"\btest_\w+", text))
        if status == "later part":
            assert (case, named) == (case, set())
        else:
            assert (case, named) == (case, {name for name, cases in tests.items() if case in cases})
            assert named, case


def test_every_test_names_its_case() -> None:
    assert [name for name, cases in _tests().items() if not cases] == []


def test_what_is_later_or_differs_says_why() -> None:
    for case, (status, text) in _table().items():
        words = re.sub(r"\btest_\w+,?", "", text).strip(" .")
        assert bool(words) == (status != "tested"), case
