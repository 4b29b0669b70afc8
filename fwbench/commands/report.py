"""`fwbench report`: tables, figures and one page, from records alone."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fwbench.errors import UserError
from fwbench.extensions import extensions, resolve
from fwbench.record import files
from fwbench.record import reading as records
from fwbench.record.lanes import BASELINE
from fwbench.record.storage import STORAGE
from fwbench.report.formats import csv, markdown
from fwbench.report.sections import Section, sections
from fwbench.text import line

TITLE = "fwbench report"


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes tables, figures and one page of saved runs into a folder, and says what it has written. It measures "
        "nothing. Ends with 0, or with 4 where there is nothing to report or a file cannot be read or written."
    )
    parser.add_argument(
        "records",
        nargs="*",
        type=Path,
        default=[STORAGE],
        metavar="RECORD",
        help="files that pytest-benchmark saved, journals, or storage folders, of which the newest saved run is taken; "
        f"several runs of one machine are replicates. Default: {STORAGE}",
    )
    parser.add_argument("--output", type=Path, default=Path("report"), metavar="DIR", help="default: report")
    parser.add_argument(
        "--baseline",
        metavar="LANE",
        help="the lane that every other is compared with. Default: "
        f"{BASELINE.name} where it was measured, else the first lane that was",
    )
    parser.add_argument(
        "--format", type=_formats, default=list(_writers()), metavar=",".join(_writers()), help="default: all of them"
    )
    parser.set_defaults(run=_run)


Tell = Callable[[str], None]

# Seconds that a command may take without a word.
_PATIENCE = 5.0


def progress(clock: Callable[[], float]) -> Tell:
    """A function that reports on standard error the steps of a command that takes long; `clock` returns seconds."""
    begun = clock()

    def tell(what: str) -> None:
        if clock() - begun > _PATIENCE:
            print(f"fwbench: {what}", file=sys.stderr, flush=True)

    return tell


def _run(options: argparse.Namespace) -> int:
    tell = progress(time.monotonic)
    read = []
    for path in options.records:
        tell(f"reading {path}")
        read.append(records.read(path))
    if duet := next((record for record in read if record.is_duet), None):
        raise UserError(
            f"{duet.path} is of a duet, which compares two revisions and no lanes: its run prints the table, and "
            "keeps it with --fwbench-summary=FILE"
        )
    tell("weighing and tabulating")
    contents = sections(read, options.output, options.baseline)
    if not any(section.setting for section in contents):
        names = ", ".join(str(record.path) for record in read)
        told = "".join(f"; {told}" for record in read for told in record.told)
        raise UserError(f"{names}: no measurement of fwbench in there, so there is nothing to report{told}")
    for record in read:
        print(line(f"read {record.path}: {len(record.measurements)} measurements, {record.made:%Y-%m-%d %H:%M} UTC"))
    with files.writing("choose another folder with --output"):
        written = [path for name in options.format for path in _writers()[name](options.output, contents, tell)]
    for path in written:
        print(f"wrote {path}")
    return 0


def _formats(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in _writers():
            raise argparse.ArgumentTypeError(f"unknown format {name!r}: choose from {', '.join(_writers())}")
    return names


def _markdown(out: Path, contents: list[Section], tell: Tell) -> list[Path]:
    parts = [(section.heading, [*section.headline, *section.remarks], section.tables) for section in contents]
    return [save(out / "tables.md", markdown.document(TITLE, parts))]


def _csv(out: Path, contents: list[Section], tell: Tell) -> list[Path]:
    return [
        save(section.folder / "tables" / f"{table.key}.csv", csv.write(table))
        for section in contents
        for table in section.tables
    ]


def _html(out: Path, contents: list[Section], tell: Tell) -> list[Path]:
    try:
        from fwbench.report import figures, page
    except ImportError as error:
        raise UserError(
            f"figures and the page need what is not installed ({error.name}): `pip install 'fwbench[report]'`, or ask "
            "for --format markdown,latex,csv"
        ) from None
    settings = [section for section in contents if section.setting]
    paths = []
    for section in settings:
        tell(f"drawing the figures of {section.heading}")
        for drawing in section.drawings:
            tell(f"writing the figure {drawing.key}")
            paths.append(figures.save(drawing, section.svg(drawing)))
    foreign = next((section.tables[0] for section in contents if section.setting is None), None)
    tell("writing the page")
    return [save(out / "report.html", page.write(TITLE, settings, foreign)), *paths]


def save(path: Path, text: str) -> Path:
    """Write a file of the report, in a folder that need not be there; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, text)
    return path


# Writes a report's sections into its folder, and returns the files.
Writer = Callable[[Path, list[Section], Tell], list[Path]]


def _writers() -> dict[str, Writer]:
    own: dict[str, Writer] = {"html": _html, "markdown": _markdown, "csv": _csv}
    return own | {name: resolve(path) for added in extensions() for name, path in added.formats.items()}
