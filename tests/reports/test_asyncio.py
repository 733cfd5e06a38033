"""Group 14, as far as a plain Executor goes; the asyncio face itself is a later part."""

from pathlib import Path

import pytest

from reports.support import run_script_and_time_its_end

pytestmark = pytest.mark.timeout(120)

_MAIN = """
import asyncio, os, sys
from reports import tasks
from killpool import Pool
pool = Pool(1)
async def main():
    loop = asyncio.get_running_loop()
    print(await loop.run_in_executor(pool, tasks.square, 3))
    if sys.argv[1] == "its own":
        try:
            await asyncio.wrap_future(pool.schedule(tasks.block, timeout=0.5))
        except TimeoutError as error:
            print(type(error).__name__)
    else:
        try:
            await asyncio.wait_for(loop.run_in_executor(pool, tasks.block), 0.5)
        except TimeoutError as error:
            print(type(error).__name__)
    print(await loop.run_in_executor(pool, tasks.square, 4))
    print("goodbye", flush=True)
asyncio.run(main())
open(os.environ["DONE"], "w").write("done\\n")
"""


@pytest.mark.parametrize("whose", ["its own", "the loop's"])
def test_a_program_that_timed_a_call_out_ends_when_its_main_does(whose: str, tmp_path: Path) -> None:
    """A02."""
    ended = run_script_and_time_its_end(_MAIN, tmp_path / "done", whose)
    name = "TaskTimeout" if whose == "its own" else "TimeoutError"
    assert (ended.status, ended.out, ended.err) == (0, f"9\n{name}\n16\ngoodbye\n", "")
    assert ended.tail < 1.0
