"""The project's own problems and samples: in step with their readable form, and right without any pool."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from killpool.evaluate import Sample, read_problems, read_samples
from killpool.evaluate.program import run_program
from killpool.evaluate.runner import assemble


@pytest.fixture
def maker(examples: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_examples", examples / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_what_their_readable_form_makes(examples: Path, maker: ModuleType, tmp_path: Path) -> None:
    maker.write(tmp_path)
    for name in ("problems.jsonl", "samples.jsonl"):
        assert (examples / name).read_text() == (tmp_path / name).read_text(), f"run {examples / 'make.py'}"


def test_every_sample_says_what_it_does_and_what_must_come_out(examples: Path) -> None:
    samples = read_samples(examples / "samples.jsonl", read_problems(examples / "problems.jsonl"), needs_expect=True)
    assert len(samples) >= 25
    assert all(sample.kind for sample in samples)


def test_every_canonical_solution_passes(maker: ModuleType, examples: Path) -> None:
    problems = read_problems(examples / "problems.jsonl")
    for row in maker.problems():
        run_program(assemble(problems[row["task_id"]], Sample(row["task_id"], row["canonical_solution"])))
