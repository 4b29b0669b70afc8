"""`fwbench history`: the trends over all saved runs, from the storage folder alone."""

import argparse
from pathlib import Path

from fwbench.errors import UserError
from fwbench.ext.history import asv
from fwbench.record import files
from fwbench.record import reading as records
from fwbench.record.storage import STORAGE
from fwbench.text import line


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draws a trend for each workload and metric over all runs in a storage folder, and finds where it "
        "has changed. It is a report, and no gate: it ends with 0 whatever it finds."
    )
    parser.add_argument(
        "storage",
        nargs="?",
        type=Path,
        default=STORAGE,
        metavar="STORAGE",
        help=f"a folder with records, and folders of them; or asv's results, .asv/results. Default: {STORAGE}",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("report/history.html"), metavar="FILE", help="default: report/history.html"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        from fwbench.ext.history import page as history
        from fwbench.ext.history.trends import histories
    except ImportError as error:
        raise UserError(
            f"the history needs what is not installed ({error.name}): `pip install 'fwbench[report]'`"
        ) from None
    if not options.storage.is_dir():
        what = "is no folder" if options.storage.exists() else "does not exist"
        raise UserError(
            f"{options.storage} {what}: name a storage folder; `pytest --benchmark-only --benchmark-autosave` makes one"
        )
    if asv.holds_results(options.storage):
        read, faults = asv.series(options.storage)
    else:
        read, faults = records.series(options.storage, journals=True)
    if not read and not faults:
        records.read(options.storage)  # Says what is wrong with an empty folder.
    machines = histories(read)
    if not any(len(one.runs) > 1 for one in machines):
        count = sum(len(one.runs) for one in machines)
        held = {0: "no run that has benchmarks", 1: "one run"}.get(count, "one run of each machine")
        raise UserError(
            f"{options.storage} holds {held}{f' ({faults[0]})' if faults else ''}, and a trend needs several: `pytest "
            "--benchmark-only --benchmark-autosave`"
        )
    for one in machines:
        print("\n".join(history.lines(one)))
    for fault in faults:
        print(line(fault))
    with files.writing("choose another file with --output"):
        options.output.parent.mkdir(parents=True, exist_ok=True)
        files.write(options.output, history.page(machines, faults))
    print(f"wrote {options.output}")
    return 0
