"""The command: runs the contests, prints their tables and what became of the goals.

Exit status 0 unless killpool or a yardstick broke; a missed goal is told and is no failure, for it depends on the
machine and on who else uses it.  A peer that is not installed or that breaks is left out, with its reason.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import child, table
from bench.contest import OURS, Contest, Reached, Samples, Skip, judge, values
from bench.contests import ALL, BY_NAME


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure killpool and its peers in one run.")
    parser.add_argument("--quick", action="store_true", help="one round with few samples: a smoke test, no result")
    parser.add_argument("--only", action="append", choices=sorted(BY_NAME), metavar="NAME", help=", ".join(BY_NAME))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    options = parser.parse_args(argv)
    report: dict[str, Any] = {"machine": machine(), "quick": options.quick, "contests": {}, "goals": []}
    print(f"{report['machine']}\nin brackets: how many times better killpool is\n", flush=True)
    broken: list[str] = []
    judged: list[tuple[Contest, list[Reached]]] = []
    for contest in ALL:
        if options.only and contest.name not in options.only:
            continue
        samples, missing, failures = run(contest, options.quick)
        broken += failures
        numbers = values(contest, samples)
        print(table.table(contest, numbers, missing), flush=True)
        judged.append((contest, judge(contest, numbers)))
        report["contests"][contest.name] = {"values": numbers, "missing": missing, "counts": counts(samples)}
    print("goals" + (" (a quick run says little about them)" if options.quick else ""))
    for contest, reached in judged:
        print(table.goals(contest, reached), end="")
        report["goals"] += [
            {
                "contest": contest.name,
                "who": one.goal.contestant,
                "metric": one.goal.metric,
                "value": one.value,
                "bound": one.bound,
                "met": one.is_met,
            }
            for one in reached
        ]
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    for line in broken:
        print(f"broken: {line}", file=sys.stderr)
    return 1 if broken else 0


def run(contest: Contest, quick: bool) -> tuple[dict[str, Samples], dict[str, str], list[str]]:
    """Measure all contestants in turn; return their samples, who is missing and why, and what must not have failed."""
    samples: dict[str, Samples] = {}
    missing: dict[str, str] = {}
    failures: list[str] = []
    for who in contest.turns(quick):
        if who in missing:
            continue
        progress(f"{contest.name}: {who}")
        try:
            found = child.measure(contest, who, quick=quick)
        except Skip as reason:
            missing[who] = f"skipped: {reason}"
        except child.Broken as reason:
            missing[who] = f"broke: {reason}"
            if who.startswith((OURS, "fork")):
                failures.append(f"{contest.name}, {who}: {str(reason).splitlines()[-1]}")
        else:
            mine = samples.setdefault(who, {})
            for key, new in found.items():
                mine.setdefault(key, []).extend(new)
    progress("")
    return samples, missing, failures


def progress(text: str) -> None:
    """Show what is measured, in the last line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def counts(samples: dict[str, Samples]) -> dict[str, dict[str, int]]:
    """Return how many samples each number rests on."""
    return {who: {key: len(found) for key, found in mine.items()} for who, mine in samples.items()}


def machine() -> str:
    """Return one line that says where the numbers come from."""
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    return (
        f"Python {platform.python_version()}, Linux {platform.release()}, {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} CPUs, load {load}"
    )


if __name__ == "__main__":
    sys.exit(main())
