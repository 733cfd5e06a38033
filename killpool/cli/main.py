"""The `killpool` command's entry: parse, hand to the command, turn what went wrong into one line and an exit code.

Exit codes of every command: 0 done; 1 the thing asked about failed; 2 a usage or file error, nothing was run;
130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import killpool
from killpool.cli import eval_command
from killpool.errors import KillpoolError, SpecError, UnsupportedPlatform

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"killpool {killpool.__version__}")
        parser.exit(DONE)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command."""
    parser = argparse.ArgumentParser(
        prog="killpool",
        description="Run work that may have to be killed.",
        epilog="exit codes: 0 done; 1 the thing asked about failed; 2 usage or file error; 130 interrupted",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    eval_command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as end:  # argparse ends the process itself: 0 after --help, 2 after a usage error
        return end.code if isinstance(end.code, int) else USAGE
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output left.  The interpreter flushes once more at its end: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
        return FAILED
    except (KillpoolError, OSError) as error:
        print(f"killpool: error: {error}", file=sys.stderr)
        is_callers = isinstance(error, (SpecError, OSError)) and not isinstance(error, UnsupportedPlatform)
        return USAGE if is_callers else FAILED
    return code
