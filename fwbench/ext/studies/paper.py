"""The files of a report in LaTeX, for a paper: tables, figures, and a document that includes them."""

from pathlib import Path

from fwbench.commands.report import TITLE, Tell, save
from fwbench.ext.studies import latex
from fwbench.record.workload import STATEFUL
from fwbench.report.origin import origin
from fwbench.report.sections import Section

# The mode that a table is about, by its key; others are about all that was measured.
MODES = {
    **dict.fromkeys(("summary", "inference"), "inference"),
    **{mode: mode for mode in STATEFUL},
    "training-steps": "train_step",
    **dict.fromkeys(("final-epoch", "epochs", "epoch-time", "training-time"), "fit"),
}

# The tables that have a form for a column of a paper, each with the columns that there is no room for.
MINOR = {
    "ratios": {"at", "disturbed by"},
    "summary": {"precision"},
    "inference": {"mode", "p95", "p99", "compile", "to steady", "n"},
    "training-steps": {"mode", "p95", "p99", "compile", "to steady", "n"},
    "limits": {"FLOP a call", "bytes a call"},
    "final-epoch": {"train loss", "val. loss"},
    "epoch-time": {"waiting", "evaluating", "throughput/s", "train loss", "val. loss"},
    "training-time": set[str](),
}


def write(out: Path, contents: list[Section], tell: Tell) -> list[Path]:
    """Write tables and figures for a paper, and a document of them all, into a report's folder; return the files."""
    paths, parts = [save(out / "preamble.tex", latex.PREAMBLE)], []
    for section in contents:
        # Several settings have tables of the same names, and labels must differ.
        place = section.folder.relative_to(out)
        prefix = "".join(f"{part}-" for part in place.parts)
        files = []
        for table in section.tables:
            told = origin(section.setting, MODES.get(table.key, "")) if section.setting else ""
            file = section.folder / "tables" / f"{table.key}.tex"
            files.append(save(file, latex.write(table, f"{prefix}{table.key}", told)))
            if table.key in MINOR:
                name, minor = f"{table.key}-column", MINOR[table.key]
                text = latex.write_narrow(table, f"{prefix}{name}", told, minor)
                paths.append(save(file.with_stem(name), text))
        names = [path.relative_to(out).with_suffix("").as_posix() for path in files]
        parts.append((section.heading, [*section.headline, *section.remarks], names))
        paths += [*files, *_figures(section, place / "figures", prefix, tell)]
    return [save(out / "tables.tex", latex.document(TITLE, parts)), *paths]


def _figures(section: Section, place: Path, prefix: str, tell: Tell) -> list[Path]:
    """Write each figure as wide as a paper's text and as a column: its PDF, and the LaTeX that includes it."""
    if section.setting is None:
        return []
    try:
        from fwbench.ext.studies.figures import draw, panels
        from fwbench.report import figures
    except ImportError as error:
        print(f"no figures for LaTeX: they need what is not installed ({error.name}): pip install 'fwbench[report]'")
        return []
    tell(f"drawing the figures of {section.heading} for LaTeX")
    narrow = draw(section.setting.cases, section.baseline, panels.COLUMN)
    paths = []
    for drawn, ending in ((section.drawings, ""), (narrow, "-column")):
        for drawing in drawn:
            if drawing.figure.get_figheight() > panels.TALLEST:
                continue
            name = f"{drawing.key}{ending}"
            paths.append(figures.save(drawing, section.folder / "figures" / f"{name}.pdf"))
            told, file = origin(section.setting, drawing.mode), (place / name).as_posix()
            text = latex.figure(file, f"{prefix}{name}", drawing.title, drawing.caption, told, bool(ending))
            paths.append(save(section.folder / "figures" / f"{name}.tex", text))
    return paths
