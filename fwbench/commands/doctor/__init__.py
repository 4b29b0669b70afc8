"""`fwbench doctor`: reports what this machine can measure, and whether its numbers can be trusted."""

import argparse
import json
import os
import sys
from pathlib import Path

from fwbench.commands.doctor.findings import as_json, lines, sound
from fwbench.commands.doctor.looks import Looks
from fwbench.extensions import needed
from fwbench.machine import machine, nvml
from fwbench.meters.energy import counter
from fwbench.record import files
from fwbench.record.measurement import Measurement

_STDOUT = "-"

# On a GPU: the first step, and once that is done, the next one.
_BEGIN = "Begin with `fwbench doctor --check --json doctor.json`: it runs what can be wrong on this GPU."
_MEASURE = "Begin with `pytest --pyargs fwbench.suite.benchmarks --benchmark-only --benchmark-autosave`."


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Says what this machine can measure and what stands in the way; with --check it also tries that out. "
        "Ends with 0 where numbers can be trusted, and with 1 where something is bad."
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const=_STDOUT,
        metavar="FILE",
        help="as JSON; into FILE with all that a maintainer needs, and without user names, paths and host names",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="also run what can be wrong here, five minutes at most; exit code 1 if numbers cannot be trusted",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    here = machine()
    check = needed("check", "--check") if options.check else None
    sent = needed("sending", "--json FILE") if options.json and options.json != _STDOUT else None
    findings = Looks(here, nvml.find(), counter(here.device), os.environ).findings()
    measured: list[Measurement] = []
    if check:
        judged, measured = check(here, lambda text: print(text, file=sys.stderr, flush=True))
        # A trial shows more than a look at the same thing, and replaces it.
        findings = [*{finding.subject: finding for finding in (*findings, *judged)}.values()]
    if options.json == _STDOUT:
        print(json.dumps(as_json(findings), indent=1))
    else:
        print("\n".join(lines(findings)))
        if sent:
            with files.writing("choose another file with --json."):
                files.write(Path(options.json), sent(here, findings, measured))
            print(f"{options.json} holds all of it: docs/gpu.md says how to send it.")
        if here.device == "gpu" and sound(findings):
            print(_MEASURE if options.check else _BEGIN)
    return 0 if sound(findings) else 1
