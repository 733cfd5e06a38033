"""The whole harness on real programs: HumanEval's own solutions, hostile sample sets, and the project's examples."""

import gzip
import json
import re
import secrets
from collections import Counter
from pathlib import Path

import pytest

from killpool.cli.main import main
from killpool.evaluate import Options, Problem, Sample, Verdict, evaluate, read_problems, read_samples

# What the programs of the hostile sets do to themselves; every other line is a canonical solution.
HOSTILE = {
    "segv": {"signal(11)"},
    "gil": {"timeout"},
    "forkok": {"ok"},  # right, and leaves a child
    "exit": {"exit(0)"},
    "fork": {"timeout"},
    "sigign": {"timeout"},
    "swallow": {"timeout"},
    "loop": {"timeout"},
    "forge": {"exit(0)", "exception"},  # finds a list to forge in, or returns the wrong thing
    "killparent": {"timeout"},
    "": {"ok"},
}


def one_problem(prompt: str = "def f():\n") -> dict[str, Problem]:
    return {"t/0": Problem("t/0", prompt, "def check(candidate):\n    assert candidate() == 1", "f")}


def judge_one(completion: str, options: Options) -> Verdict:
    (verdict,) = evaluate(one_problem(), [Sample("t/0", completion)], options)
    return verdict


def alive_with(argument: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it ended as we looked
            continue
        if argument.encode() in words:
            found.append(folder.name)
    return found


def test_every_line_of_the_examples_is_judged_rightly_and_nothing_survives(
    examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(examples / "problems.jsonl"), str(examples / "samples.jsonl")]
    limits = ["--timeout", "2", "--memory", "384M", "--processes", "24", "-o", str(tmp_path / "out.jsonl"), "--check"]
    code = main(["eval", *files, *limits])
    out = capsys.readouterr().out
    assert code == 0, out
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert f"check      {len(rows)} of {len(rows)} lines as expected" in out
    assert "survivors  0" in out


def test_all_canonical_solutions_of_humaneval_pass(shared_data: Path) -> None:
    path = shared_data / "humaneval" / "HumanEval.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    samples = [Sample(row["task_id"], row["canonical_solution"]) for row in rows]
    verdicts = list(evaluate(read_problems(path), samples, Options(timeout=30.0)))
    assert len(verdicts) == 164
    assert [(v.task_id, v.result) for v in verdicts if not v.passed] == []


@pytest.mark.parametrize("name", ["hostile20", "killparent", "pipehang"])
def test_a_hostile_sample_set_is_judged_line_by_line(shared_data: Path, name: str) -> None:
    problems = read_problems(shared_data / "humaneval" / "HumanEval.jsonl.gz")
    samples = read_samples(shared_data / "samples" / f"{name}.jsonl", problems)
    verdicts = list(evaluate(problems, samples, Options(timeout=2.0)))
    assert len(verdicts) == len(samples)
    wrong = [(v.sample.line, v.sample.kind, v.result) for v in verdicts if v.label not in HOSTILE[v.sample.kind]]
    assert wrong == []
    assert sum(v.outcome.survivors for v in verdicts) == 0


def test_humanevals_own_example_samples_are_judged_like_there(shared_data: Path) -> None:
    problems = read_problems(shared_data / "humaneval" / "example_problem.jsonl")
    samples = read_samples(shared_data / "humaneval" / "example_samples.jsonl", problems)[1:]  # the first runs `rm`
    verdicts = evaluate(problems, samples, Options(timeout=2.0))
    assert {v.completion_id: re.sub(": .*", "", v.result) for v in verdicts} == {
        1: "timed out",
        2: "failed",  # reads stdin
        3: "passed",
        4: "passed",
        5: "passed",
    }


def test_what_a_right_program_left_behind_is_gone_when_its_verdict_comes() -> None:
    argument = f"600.{secrets.randbelow(10**12):012d}"
    verdict = judge_one(
        "    import glob, subprocess\n"
        f"    subprocess.Popen(['sleep', '{argument}'], start_new_session=True)\n"
        "    seen = []\n"
        "    while not seen:\n"  # not by its pid: /proc may be that of another namespace
        "        for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "            try: text = open(path).read()\n"
        "            except OSError: continue\n"
        f"            if text.split(chr(0)) == ['sleep', '{argument}', '']: seen.append(text)\n"
        "    print(seen)\n"
        "    return 1\n",
        Options(timeout=20.0),
    )
    assert verdict.passed, verdict.result
    assert argument in verdict.outcome.stdout, "the child was never alive"
    assert alive_with(argument) == []
    assert verdict.outcome.survivors == 0


def test_a_killed_program_says_what_it_printed_and_how_long_it_took() -> None:
    verdict = judge_one("    print('so far', flush=True)\n    while True: pass\n", Options(timeout=0.5))
    assert (verdict.result, verdict.label) == ("timed out", "timeout")
    assert str(verdict.outcome.stdout) == "so far\n"
    assert 0.5 <= verdict.outcome.usage.wall < 5.0
    assert verdict.outcome.usage.cpu > 0.02


def test_each_program_starts_clean() -> None:
    spoils = "    import builtins, os\n    builtins.spoilt = os.environ['SPOILT'] = '1'\n    return 1\n"
    looks = "    import builtins, os\n    return 0 if hasattr(builtins, 'spoilt') or 'SPOILT' in os.environ else 1\n"
    samples = [Sample("t/0", body, number) for number, body in enumerate([spoils, looks] * 4)]
    verdicts = list(evaluate(one_problem(), samples, Options(timeout=20.0, workers=1)))
    assert Counter(v.result for v in verdicts) == {"passed": 8}


def test_leaving_the_loop_early_kills_what_runs() -> None:
    argument = f"600.{secrets.randbelow(10**12):012d}"
    hang = f"    import subprocess\n    subprocess.run(['sleep', '{argument}'])\n"
    verdicts = evaluate(one_problem(), [Sample("t/0", "    return 1"), Sample("t/0", hang)], Options(timeout=500.0))
    assert next(verdicts).passed
    verdicts.close()
    assert alive_with(argument) == []
