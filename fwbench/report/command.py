"""`fwbench report`: tables, figures and one page, from records alone."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fwbench import records
from fwbench.errors import UserError
from fwbench.report import answers, cases, contents
from fwbench.report.cases import Setting
from fwbench.report.formats import csv, latex, markdown
from fwbench.report.tables import Table

TITLE = "fwbench report"


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("report", help="tables, figures and one page from records")
    parser.add_argument(
        "records",
        nargs="*",
        type=Path,
        default=[records.STORAGE],
        metavar="RECORD",
        help="files that pytest-benchmark saved, journals, or storage folders, of which the newest run is taken; "
        f"several runs of one machine are replicates. Default: {records.STORAGE}",
    )
    parser.add_argument("--out", type=Path, default=Path("report"), metavar="DIR", help="default: report")
    parser.add_argument(
        "--format",
        type=_formats,
        default=list(_WRITERS),
        metavar=",".join(_WRITERS),
        help="default: all of them",
    )
    parser.set_defaults(run=_run)


class Report:
    """What was read, and where what is made of it goes.

    Attributes:
        settings: each with its tables and the folder of its files: `out` itself where there is one setting alone.
        foreign: benchmarks without a workload, if there are any.
    """

    def __init__(self, read: list[records.Record], out: Path) -> None:
        self.out = out
        self.records = read
        self.settings = cases.settings(read)
        self.tables = [contents.tables(setting) for setting in self.settings]
        several = len(self.settings) > 1
        self.folders = [out / f"setting-{n}" if several else out for n, _ in enumerate(self.settings, 1)]
        plain = cases.plain(read)
        self.foreign = contents.foreign(plain) if plain else None
        self.headings = [heading(setting, number * several) for number, setting in enumerate(self.settings, 1)]

    def everything(self) -> list[tuple[str, Path, Table]]:
        """All tables, each with its setting's heading and folder."""
        found = [
            (name, folder, table)
            for name, folder, tables in zip(self.headings, self.folders, self.tables, strict=True)
            for table in tables
        ]
        return [*found, ("Other benchmarks", self.out, self.foreign)] if self.foreign else found


def heading(setting: Setting, number: int) -> str:
    """A setting in a line: its machine and profile, after its number unless that is 0."""
    machine = setting.machine
    if machine is None:
        where = "an unnamed machine"
    elif machine.device == "gpu":
        where = machine.accelerator
    else:
        where = f"{machine.cpu}, {machine.threads} threads"
    return f"{f'{number}. ' if number else ''}{where}, {setting.profile or 'unknown'} profile"


def _run(options: argparse.Namespace) -> int:
    read = [records.read(path) for path in options.records]
    report = Report(read, options.out)
    if not report.settings:
        names = ", ".join(str(record.path) for record in read)
        raise UserError(f"{names}: no measurement of fwbench in there, so there is nothing to report")
    for record in read:
        print(f"read {record.path}: {len(record.measurements)} measurements, {record.made:%Y-%m-%d %H:%M} UTC")
    try:
        written = [path for name in options.format for path in _WRITERS[name](report)]
    except OSError as error:
        raise UserError(
            f"{error.filename} cannot be written ({error.strerror}): choose another folder with --out"
        ) from None
    for path in written:
        print(f"wrote {path}")
    return 0


def _formats(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in _WRITERS:
            raise argparse.ArgumentTypeError(f"unknown format {name!r}: choose from {', '.join(_WRITERS)}")
    return names


def _markdown(report: Report) -> list[Path]:
    tables = [(name, table) for name, _, table in report.everything()]
    return [_write(report.out / "tables.md", markdown.document(TITLE, tables))]


def _csv(report: Report) -> list[Path]:
    return [
        _write(folder / "tables" / f"{table.key}.csv", csv.write(table)) for _, folder, table in report.everything()
    ]


def _latex(report: Report) -> list[Path]:
    paths, files = [], []
    for name, folder, table in report.everything():
        path = _write(folder / "tables" / f"{table.key}.tex", latex.write(table))
        paths.append(path)
        files.append((name, path.relative_to(report.out).with_suffix("").as_posix()))
    return [_write(report.out / "tables.tex", latex.document(TITLE, files)), *paths]


def _html(report: Report) -> list[Path]:
    try:
        from fwbench.report import figures, page
    except ImportError as error:
        raise UserError(
            f"figures and the page need what is not installed ({error.name}): `pip install 'fwbench[report]'`, or ask "
            "for --format markdown,latex,csv"
        ) from None
    paths, parts = [], []
    given = zip(report.settings, report.headings, report.folders, report.tables, strict=True)
    for setting, name, folder, tables in given:
        saved = [(drawing, figures.save(drawing, folder / "figures")) for drawing in figures.draw(setting.cases)]
        paths += [path for _, both in saved for path in both]
        parts.append(
            page.Part(
                name,
                answers.headline(answers.answers(setting.cases)),
                contents.missing(setting),
                tables,
                [(drawing, svg) for drawing, (svg, _) in saved],
                [
                    (m.workload.id, f"{m.failure.kind}: {m.failure.message}", m.failure.detail)
                    for m in setting.measurements
                    if m.failure and m.failure.detail
                ],
            )
        )
    return [_write(report.out / "report.html", page.write(TITLE, parts, report.foreign)), *paths]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


_WRITERS: dict[str, Callable[[Report], list[Path]]] = {
    "html": _html,
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
}
