"""`fwbench compare`: two records, from the shell."""

import argparse
from pathlib import Path

from fwbench.compare import evidence
from fwbench.compare.criteria import CRITERIA, parse, thresholds
from fwbench.compare.saved import compare
from fwbench.compare.testing import UNTESTED
from fwbench.errors import UserError
from fwbench.record import files
from fwbench.record.reading import read
from fwbench.report import outcome_file, verdicts


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compares two records: files of pytest-benchmark (anybody's), journals, or storage folders, whose "
        "newest saved run is read. Exit code: 0 nothing worse, 1 something worse, missing or failed, 4 not comparable."
    )
    parser.add_argument("base", type=Path, metavar="BASE")
    parser.add_argument("head", type=Path, metavar="HEAD")
    parser.add_argument(
        "--fail",
        action="append",
        default=[],
        metavar="METRIC:PERCENT%[+AMOUNT]",
        help=f"how much of a change fails, as in latency:5%% or peak_memory:2%%+1MiB; metrics: {', '.join(CRITERIA)}",
    )
    parser.add_argument("--allow-mismatch", action="store_true", help="compare other machines, settings or profiles")
    parser.add_argument(
        "--summary",
        type=Path,
        metavar="FILE",
        help="write the findings as Markdown; as JSON where the name ends in .json",
    )
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> int:
    asked = parse(options.fail, "--fail")
    for name in asked:
        if CRITERIA[name].saved is None:
            raise UserError(f"records do not hold {name}, which --fail names: `pytest --fwbench-against` measures it.")
    limits = thresholds("saved") | asked
    base, head = read(options.base), read(options.head)
    state = evidence.state(head.machine) if head.machine else UNTESTED
    outcome = compare(base, head, limits, allow_mismatch=options.allow_mismatch, state=state)
    print("\n".join(verdicts.lines(outcome)))
    if options.summary:
        with files.writing("choose another file with --summary."):
            outcome_file.write(options.summary, outcome, outcome.exit_code)
    return outcome.exit_code
