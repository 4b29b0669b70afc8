"""The `fwbench` command: everything but measuring the suite, which is pytest's."""

import argparse
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence

from fwbench.errors import UserError
from fwbench.text import line
from fwbench.worker import interrupts

# Each module has `add(subparsers)`, which declares its commands and sets `run`: from the parsed arguments to an exit
# code.
_COMMANDS = (
    "fwbench.commands.report",
    "fwbench.commands.compare",
    "fwbench.commands.history",
    "fwbench.commands.prove",
    "fwbench.commands.selftest",
    "fwbench.commands.doctor",
    "fwbench.commands.list",
    "fwbench.commands.ci",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        Its exit code; 4 with one sentence on standard error where the user must correct something. Where a signal ends
        it, 128 and the signal's number, as shells have it: 130 for Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a name shows its code.
            stream.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(
        prog="fwbench",
        description="Reads and compares records, which `pytest --benchmark-only` makes, and proves models.",
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in _COMMANDS:
        importlib.import_module(name).add(subparsers)
    options = parser.parse_args(arguments)
    try:
        with interrupts.in_order():
            code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing is left to be flushed into the pipe.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        return 0
    except UserError as error:
        print(line(f"fwbench: {error}"), file=sys.stderr)
        return UserError.EXIT_CODE
    except interrupts.Ended as ended:
        print(f"\nfwbench: {ended}", file=sys.stderr)
        return ended.exit_code
    except KeyboardInterrupt:
        print("\nfwbench: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return code
