"""Writes problems.jsonl and samples.jsonl beside it, from the readable form below: `python configs/examples/make.py`.

Each sample says what it does (`kind`) and which cause must come out (`expect`).  All of them are bounded in themselves
(at most 150 processes, 4 GiB, two minutes), in case they are ever run without a limit.
"""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

# name -> (signature, what it shall do, a right body, cases as (arguments, answer))
PROBLEMS: dict[str, tuple[str, str, str, list[tuple[tuple[object, ...], object]]]] = {
    "add": ("a: int, b: int) -> int", "Return the sum of a and b.", "return a + b", [((2, 3), 5), ((-4, 4), 0)]),
    "is_palindrome": (
        "text: str) -> bool",
        "Say whether text reads the same from both ends.",
        "return text == text[::-1]",
        [(("",), True), (("level",), True), (("levels",), False)],
    ),
    "running_max": (
        "numbers: list) -> list",
        "Return, for each position, the largest number up to there.",
        """
        best, out = None, []
        for n in numbers:
            best = n if best is None else max(best, n)
            out.append(best)
        return out
        """,
        [(([],), []), (([3, 1, 4, 1, 5],), [3, 3, 4, 4, 5])],
    ),
    "count_words": (
        "text: str) -> dict",
        "Return how often each word stands in text; words are parted by white space.",
        """
        counts = {}
        for word in text.split():
            counts[word] = counts.get(word, 0) + 1
        return counts
        """,
        [(("",), {}), (("a b  a",), {"a": 2, "b": 1})],
    ),
    "gcd": (
        "a: int, b: int) -> int",
        "Return the greatest common divisor of two numbers above 0.",
        """
        while b:
            a, b = b, a % b
        return a
        """,
        [((12, 18), 6), ((7, 13), 1), ((5, 5), 5)],
    ),
    "flatten": (
        "items: list) -> list",
        "Return the leaves of nested lists, left to right.",
        """
        out = []
        for item in items:
            out.extend(flatten(item) if isinstance(item, list) else [item])
        return out
        """,
        [(([1, [2, [3, []]], 4],), [1, 2, 3, 4])],
    ),
    "rotate": (
        "items: list, steps: int) -> list",
        "Return items turned to the right by `steps`.",
        """
        if not items:
            return []
        cut = len(items) - steps % len(items)
        return items[cut:] + items[:cut]
        """,
        [(([1, 2, 3, 4], 1), [4, 1, 2, 3]), (([1, 2, 3], 5), [2, 3, 1]), (([], 3), [])],
    ),
    "roman": (
        "number: int) -> str",
        "Return a number from 1 to 3999 in Roman numerals.",
        """
        values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
        signs = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")
        out = ""
        for value, sign in zip(values, signs):
            out += sign * (number // value)
            number %= value
        return out
        """,
        [((1994,), "MCMXCIV"), ((3999,), "MMMCMXCIX"), ((4,), "IV")],
    ),
    "primes_below": (
        "limit: int) -> list",
        "Return the primes below limit, smallest first.",
        "return [n for n in range(2, limit) if all(n % d for d in range(2, int(n ** 0.5) + 1))]",
        [((2,), []), ((20,), [2, 3, 5, 7, 11, 13, 17, 19])],
    ),
    "median": (
        "numbers: list) -> float",
        "Return the middle of the sorted numbers, or the mean of the two middle ones.",
        """
        ordered = sorted(numbers)
        half = len(ordered) // 2
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
        """,
        [(([3, 1, 2],), 2), (([4, 1, 3, 2],), 2.5)],
    ),
}

RIGHT = object()

# (problem, what it does, expected cause, body of the function; RIGHT for the right one)
SAMPLES: list[tuple[str, str, str, object]] = [
    *((name, "right", "ok", RIGHT) for name in PROBLEMS),
    ("add", "wrong", "exception", "return a - b"),
    ("rotate", "wrong for a corner case", "exception", "return items[-steps:] + items[:-steps]"),
    ("gcd", "raises", "exception", "return a // (b - b)"),
    ("median", "is no Python", "exception", "return sorted(numbers"),
    ("flatten", "recurses without end", "exception", "return flatten(items)"),
    ("roman", "reads stdin, which is empty", "exception", "return input('Roman numeral, please: ')"),
    ("add", "loops without end", "timeout", "while True:\n    pass"),
    ("is_palindrome", "sleeps", "timeout", "import time\ntime.sleep(120)\nreturn text == text[::-1]"),
    (
        "running_max",
        "ignores signals and loops",
        "timeout",
        """
        import signal
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass
        """,
    ),
    (
        "count_words",
        "loops in C with the GIL held",
        "timeout",
        "import collections, itertools\ncollections.deque(itertools.repeat(0), maxlen=0)",
    ),
    (
        "gcd",
        "swallows every exception in a loop",
        "timeout",
        """
        import time
        while True:
            try:
                while True:
                    time.sleep(0.01)
            except BaseException:
                pass
        """,
    ),
    ("flatten", "stops itself", "timeout", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nreturn items"),
    (
        "rotate",
        "closes every descriptor and loops",
        "timeout",
        "import os\nos.closerange(0, 4096)\nwhile True:\n    pass",
    ),
    (
        "roman",
        "patches clocks and exits, then loops",
        "timeout",
        """
        import builtins, os, signal, time
        time.time = time.monotonic = time.perf_counter = lambda: 0.0
        signal.alarm = signal.setitimer = os.kill = os._exit = builtins.exit = lambda *_: None
        while True:
            pass
        """,
    ),
    (
        "primes_below",
        "fork bomb, a session each generation",
        "process_limit|timeout",
        """
        import os, time
        for generation in range(150):
            try:
                if os.fork():
                    break
            except OSError:
                break
            os.setsid()
        time.sleep(120)
        os._exit(1)
        """,
    ),
    (
        "median",
        "kills its parent, then loops",
        "timeout",
        "import os\nos.kill(os.getppid(), 9)\nwhile True:\n    pass",
    ),
    (
        "add",
        "leaves a daemon behind, is right",
        "ok",
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(120)
            os._exit(0)
        os.wait()
        return a + b
        """,
    ),
    (
        "is_palindrome",
        "leaves a child that holds stdout, is right",
        "ok",
        """
        import subprocess
        subprocess.Popen(["sleep", "120"])
        return text == text[::-1]
        """,
    ),
    (
        "running_max",
        "leaves a thread that never ends, is right",
        "ok",
        """
        import itertools, threading, time
        threading.Thread(target=time.sleep, args=(120,)).start()
        return list(itertools.accumulate(numbers, max))
        """,
    ),
    (
        "count_words",
        "forks, and both sides are right",
        "ok",
        """
        import os
        from collections import Counter
        os.fork()
        return dict(Counter(text.split()))
        """,
    ),
    ("gcd", "reads address 0", "signal(11)", "import ctypes\nreturn ctypes.string_at(0)"),
    ("flatten", "kills itself with SIGKILL", "signal(9)", "import os\nos.kill(os.getpid(), 9)"),
    ("rotate", "kills its process group", "signal(9)", "import os\nos.kill(0, 9)"),
    ("roman", "os._exit(0)", "exit(0)", "import os\nos._exit(0)"),
    ("primes_below", "sys.exit(0)", "exit(0)", "import sys\nsys.exit(0)"),
    ("median", "exit(25)", "exit(25)", "exit(25)"),
    (
        "add",
        "takes memory without end",
        "oom",
        """
        import time
        held = []
        for _ in range(256):
            held.append(b"x" * (16 * 1024 * 1024))
        time.sleep(120)
        """,
    ),
    ("is_palindrome", "floods stdout", "output_limit", 'while True:\n    print("spam " * 200)'),
    (
        "running_max",
        "floods stderr",
        "output_limit",
        'import sys\nwhile True:\n    print("spam " * 200, file=sys.stderr)',
    ),
    (
        "count_words",
        "walks the frames for a verdict to forge",
        "exit(0)",
        """
        import os, sys
        frame = sys._getframe()
        while frame is not None:
            for space in (frame.f_locals, frame.f_globals):
                for name in set(space) & {"ok", "passed", "result", "results", "verdict"}:
                    if hasattr(space[name], "append"):
                        space[name].append("passed")
                    space[name] = True
            frame = frame.f_back
        os._exit(0)
        """,
    ),
    (
        "gcd",
        "writes a forged result to every descriptor",
        "protocol",
        """
        import os
        for fd in range(1, 256):
            try:
                os.set_blocking(fd, False)
                os.write(fd, b'{"ok": true, "value": null, "passed": true, "result": "passed"}\\n')
            except OSError:
                pass
        return None
        """,
    ),
]


def problems() -> Iterator[dict[str, str]]:
    """Yield the lines of problems.jsonl."""
    for name, (signature, text, body, cases) in PROBLEMS.items():
        checks = "".join(
            f"    assert candidate({', '.join(map(repr, given))}) == {answer!r}\n" for given, answer in cases
        )
        yield {
            "task_id": f"examples/{name}",
            "prompt": f'def {name}({signature}:\n    """{text}"""\n',
            "entry_point": name,
            "canonical_solution": indented(body),
            "test": f"def check(candidate):\n{checks}",
        }


def samples() -> Iterator[dict[str, str]]:
    """Yield the lines of samples.jsonl."""
    for name, kind, expect, body in SAMPLES:
        text = PROBLEMS[name][2] if body is RIGHT else str(body)
        yield {"task_id": f"examples/{name}", "completion": indented(text), "kind": kind, "expect": expect}


def indented(body: str) -> str:
    """Return `body` as the body of a function."""
    return textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n"


def write(folder: Path) -> None:
    """Write both files into `folder`."""
    for name, rows in (("problems.jsonl", problems()), ("samples.jsonl", samples())):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent)
