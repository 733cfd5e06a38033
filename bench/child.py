"""One measurement in a process of its own, so that no contestant's threads, children or garbage disturb another's.

python -m bench.child CONTEST CONTESTANT full|quick RESULT_FILE
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.contest import Contest, Samples, Skip

ROOT = Path(__file__).resolve().parents[1]


class Broken(Exception):
    """A measurement failed; the message is the end of what it said."""


def measure(contest: Contest, contestant: str, *, quick: bool) -> Samples:
    """Measure once in a child process; raise Skip or Broken."""
    with tempfile.TemporaryDirectory(prefix="kp-bench-") as folder:
        result = Path(folder, "result.json")
        pace = "quick" if quick else "full"
        argv = [sys.executable, "-m", "bench.child", contest.name, contestant, pace, str(result)]
        environment = {**os.environ, "TMPDIR": folder}
        with Path(folder, "said").open("w+b") as said:
            child = subprocess.Popen(
                argv,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            try:
                status = child.wait(contest.patience)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                end_session(child)
            if result.exists():
                answer = json.loads(result.read_text())
                if "skip" in answer:
                    raise Skip(answer["skip"])
                return dict(answer["samples"])
            said.seek(0)
            text = said.read().decode("utf-8", "replace").strip()[-2000:]
            why = f"not done within {contest.patience:g} s" if status is None else f"exit status {status}"
            raise Broken(f"{why}\n{text}")


def end_session(child: "subprocess.Popen[bytes]") -> None:
    """Kill a child that did not end, and its process group with it: until it is reaped its number is nobody else's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
    if child.returncode is None:
        child.kill()
        child.wait()


def main(argv: Sequence[str]) -> int:
    """Measure and write the result."""
    from bench.contests import BY_NAME

    name, contestant, pace, path = argv
    try:
        answer = {"samples": BY_NAME[name].measure(contestant, quick=pace == "quick")}
    except Skip as reason:
        answer = {"skip": str(reason)}  # type: ignore[dict-item]
    Path(path).write_text(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
