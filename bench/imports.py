"""How long `import killpool` takes, in a fresh interpreter, beside the imports of the peers."""

import os
import subprocess
import sys
import tempfile

from bench.child import ROOT
from bench.contest import OURS, Contest, Goal, Metric, Samples, Skip

STATEMENTS = {
    OURS: "import killpool",
    "killpool.Pool": "from killpool import Pool",
    "concurrent.futures": "import concurrent.futures.process",
    "multiprocessing.pool": "import multiprocessing.pool",
    "pebble": "import pebble",
    "loky": "import loky",
}
CODE = "import time; start = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"


def measure(contestant: str, *, quick: bool) -> Samples:
    """Return the seconds that the statement takes, byte code being there."""
    with tempfile.TemporaryDirectory(prefix="kp-pyc-") as folder:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        argv = [sys.executable, "-c", CODE.format(STATEMENTS[contestant])]
        seconds = []
        for _ in range(3 if quick else 6):
            done = subprocess.run(
                argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
            )
            if done.returncode:
                raise Skip(f"cannot be imported: {done.stderr.strip().splitlines()[-1]}")
            seconds.append(float(done.stdout))
    return {"import": seconds[1:]}  # the first one compiled


IMPORT = Contest(
    name="import",
    title="import in a fresh interpreter",
    contestants=tuple(STATEMENTS),
    metrics=(Metric("import", "p50", "s"),),
    measure=measure,
    goals=(Goal("import p50", 0.060), Goal("import p50", 0.060, contestant="killpool.Pool")),
    repeats=3,
)
