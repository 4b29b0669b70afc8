"""The `fwbench` command: everything but measuring the suite, which is pytest's."""

import argparse
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence

import fwbench
from fwbench.errors import UserError
from fwbench.extensions import extensions
from fwbench.text import line
from fwbench.worker.client import interrupts

# Each is a module beside this one, whose `add(parser)` declares the command's options and sets `run`, a function from
# the parsed arguments to an exit code. Extensions add more. Only the one that is asked for is imported: some of them
# need SciPy, which takes longer to import than the others take to run.
_COMMANDS = {
    "report": "tables, figures and one page from records",
    "compare": "compare two records, and fail where the second one is worse",
    "measure": "measure one workload, in the ranks that torchrun, srun or the like has started",
    "doctor": "what this machine can measure, and whether its numbers can be trusted",
    "list": "models, frameworks, lanes, studies, and metrics with their units",
}


def commands() -> dict[str, tuple[str, str]]:
    """Every command's line for the help, and its module."""
    known = {name: (told, f"fwbench.commands.{name}") for name, told in _COMMANDS.items()}
    for added in extensions():
        known |= added.commands
    return known


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        Its exit code; 4 with one sentence on standard error where the user must correct something. Where a signal ends
        it, 128 and the signal's number, as shells have it: 130 for Ctrl-C.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # A user who has closed the stream wants to see nothing.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a name shows its code.
            stream.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(
        prog="fwbench",
        description="Reads and compares records, which `pytest --benchmark-only` makes, and proves models.",
    )
    parser.add_argument("--version", action="version", version=f"fwbench {fwbench.__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    given = sys.argv[1:] if arguments is None else arguments
    # The first word that is no option, as argparse has it: no option before the command takes a value.
    chosen = next((word for word in given if not word.startswith("-")), None)
    for name, (told, module) in commands().items():
        command = subparsers.add_parser(name, help=told)
        if name == chosen:
            importlib.import_module(module).add(command)
    options, unknown = parser.parse_known_args(given)
    # argparse takes no further words of a list that an option has interrupted.
    if unknown and (not hasattr(options, "fields") or any(word.startswith("-") for word in unknown)):
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if unknown:
        options.fields = [*options.fields, *unknown]
    try:
        with interrupts.in_order():
            code: int = options.run(options)
        sys.stdout.flush()
    except OSError as error:
        # No command expects it; most often what it prints cannot be written. Nothing more is flushed there.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        if isinstance(error, BrokenPipeError):
            # The reader of the output has seen enough.
            return 0
        print(line(f"fwbench: {error.filename or 'the output'} cannot be used ({error.strerror})"), file=sys.stderr)
        return UserError.EXIT_CODE
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
