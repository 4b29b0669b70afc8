"""The history of a storage folder for readers: the terminal's table, and a page of trends."""

import math
import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from fwbench import text, units
from fwbench.compare.cases import grouped
from fwbench.compare.criteria import CRITERIA
from fwbench.compare.differences import in_words, versions_that_differ
from fwbench.ext.history.trends import History, Point, Run, Series, Shift
from fwbench.record import files
from fwbench.record.plain import PlainTest
from fwbench.record.workload import FIELDS, Workload
from fwbench.report.figures import Drawing, save
from fwbench.report.look import GRID, INK, WIDTH, Style, looking, printable, styles
from fwbench.report.page import asset, inline, templates
from fwbench.report.tables import Column, Table, tabulate
from fwbench.report.tables import lines as for_terminal
from fwbench.text import line

TITLE = "fwbench history"

# Marks of a figure's axis of runs; room above and below its values.
_MARKS, _ROOM = 9, 1.05

# A change, with the series that has it.
_Change = tuple[Series, Shift]


def lines(history: History) -> list[str]:
    """Lines for the terminal: a summary, a row a change, and the commands that measure each again."""
    commands = []
    for names, why, again in _repeated(history):
        commands.append(f"  {line('; '.join(names))}{f' ({line(why)})' if why else ''}")
        commands += [f"    {line(again)}"] if again else []
    first = line(f"{heading(history)}: {summary(history)}")
    return [first, *for_terminal(changes(history)), *(["to measure again:", *commands] if commands else [])]


def changes(history: History) -> Table:
    """The change points, the latest first; what became worse is marked as failed."""

    def how(change: _Change) -> str:
        runs = change[1].after.run.number - change[1].before.run.number
        return f"drift over {runs} runs" if change[1].drift else "step"

    return tabulate(
        "changes",
        "Changes",
        "Change points, the latest first. The interval is that of the change at this place, at 95 %. A commit with a + "
        "was measured with changes that were not committed.",
        (
            Column("workload", lambda change: change[0].workload.id),
            Column("metric", lambda change: change[0].metric),
            Column("change", lambda change: text.change(change[1].ratio)),
            Column("interval", lambda change: " to ".join(map(text.change, sorted(change[1].interval)))),
            Column("how", how),
            Column("from", lambda change: _where(change[1].before)),
            Column("to", lambda change: _where(change[1].after)),
        ),
        _all(history),
        failure=lambda change: "worse" if change[1].worse else "",
    )


def _repeated(history: History) -> list[tuple[list[str], str, str]]:
    """For each command: the changes that it measures again, what to know of it, and the command itself."""
    return [
        ([f"{change[0].workload.id}, {change[0].metric}, {text.change(change[1].ratio)}" for change in of], why, again)
        for (again, why), of in grouped(_all(history), lambda change: _again(*change)).items()
    ]


def runs(history: History) -> Table:
    """The runs, oldest first."""
    return tabulate(
        "runs",
        "The runs",
        "Oldest first, by their own times.",
        (
            Column("run", lambda run: str(run.number)),
            Column("made, UTC", lambda run: f"{run.record.made:%Y-%m-%d %H:%M}"),
            Column("commit", lambda run: _commit(run) or None),
            Column("file", lambda run: run.record.path.name),
            Column("measurements", lambda run: str(len(run.record.measurements) + len(run.record.plain))),
        ),
        history.runs,
    )


def heading(history: History) -> str:
    """The machine in a line."""
    return history.machine.title if history.machine else history.runs[0].record.node or "an unnamed machine"


def summary(history: History) -> str:
    """One sentence: the series and runs that were read, and the number of changes found."""
    first, last = history.runs[0].record.made, history.runs[-1].record.made
    of = f"{len(history.series)} series of {len(history.runs)} runs, {first:%Y-%m-%d} to {last:%Y-%m-%d}"
    if unsure := sum(len(series.unsure) for series in history.series):
        points = sum(len(series.points) for series in history.series)
        of += f"; {unsure} of {points} points were disturbed, and say nothing"
    shifts = _all(history)
    if not shifts:
        return f"no change point in {of}"
    worse = sum(shift.worse for _, shift in shifts)
    return f"{len(shifts)} change point{'s' * (len(shifts) > 1)}, {worse} for the worse, in {of}"


def _all(history: History) -> list[tuple[Series, Shift]]:
    """Every change, the latest first."""
    pairs = [(series, shift) for series in history.series for shift in series.shifts]
    return sorted(pairs, key=lambda pair: -pair[1].after.run.number)


def _where(point: Point) -> str:
    return f"{_commit(point.run) or 'no commit'}, {point.run.record.made:%Y-%m-%d %H:%M}"


def _commit(run: Run) -> str:
    return f"{run.commit[:10]}{'+' if run.dirty else ''}"


def _again(series: Series, shift: Shift) -> tuple[str, str]:
    """The command that measures both sides of a change as a duet, and what to know of it; one of them may be empty."""
    before, after = shift.before.run, shift.after.run
    versions = _updates(shift.before, shift.after)
    told = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in versions.items())
    dirty = "measured with changes that were not committed" if before.dirty or after.dirty else ""
    criterion, again, more = CRITERIA[series.metric], "", ""
    if isinstance(series.workload, Workload) and series.workload.mode == "fit":
        more = "epochs take no turns in a duet: train again on both sides"
    elif not before.commit or not after.commit:
        more = "the records do not tell both commits, so nothing can be built again"
    elif before.commit != after.commit:
        old, new = (shlex.quote(run.commit[:10]) for run in (before, after))
        again = f"git switch --detach {new} && {_pytest(series.workload, shift.after)} --fwbench-against={old}"
        if isinstance(series.workload, PlainTest) and "::" not in series.workload.name:
            again = f"asv continuous {old} {new} --bench {shlex.quote(series.workload.name.partition('(')[0])}"
    elif versions:
        # jax brings its jaxlib, and torch its torchvision, so one name is enough.
        name, (old, _) = next(iter(versions.items()))
        again = f"{_pytest(series.workload, shift.after)} --fwbench-against={name}=={old}"
    else:
        more = "the same commit and versions on both sides: look at the machine"
    if again and criterion.asked:
        again += f" --fwbench-fail={series.metric}:{criterion.asked.share:.0%}"
    return again, "; ".join(filter(None, (told, dirty, more)))


def _updates(before: Point, after: Point) -> dict[str, tuple[str, str]]:
    """Versions that differ between two points."""
    of = [point.measurement.versions if point.measurement else {} for point in (before, after)]
    return versions_that_differ(*of)


def _pytest(workload: Workload | PlainTest, point: Point) -> str:
    """The command that measures a workload, or a plain benchmark, and nothing else."""
    if isinstance(workload, PlainTest) or point.measurement is None:
        return shlex.join(["pytest", workload.id, "--benchmark-only"])
    profile = point.measurement.protocol.get("profile")
    name = point.run.record.names.get(point.measurement.workload, "")
    words = ["pytest", *([name] if name else []), "--benchmark-only", *([] if name else ["-k", workload.id])]
    words += [f"--fwbench-profile={profile}"] if profile is not None else []
    for field in FIELDS.values():
        value = getattr(workload, field.name)
        if field.option and (value != field.default or field.name == "batch_size"):
            words.append(f"{field.option}={field.text(value)}")
    return shlex.join(words)


def page(histories: Sequence[History], notes: Sequence[str]) -> str:
    """The page's HTML: one file that needs nothing else; whatever comes from records is escaped."""
    source = resources.files(__package__).joinpath("history.html").read_text(encoding="utf-8")
    parts = [_part(history, number) for number, history in enumerate(histories, 1)]
    style = Markup(asset("page.css"))
    return templates().from_string(source).render(title=TITLE, parts=parts, notes=notes, style=style)


def drawings(history: History) -> list[tuple[Drawing, bool]]:
    """A figure for each workload with a trend, a panel a metric; True beside it if anything in it has changed."""
    by_workload = grouped(history.series, lambda series: series.workload)
    figures = [
        (_draw(history, workload, of, f"trend-{place}"), any(series.shifts for series in of))
        for place, (workload, of) in enumerate(by_workload.items())
    ]
    return [(drawing, changed) for drawing, changed in figures if drawing is not None]


def _part(history: History, number: int) -> dict[str, Any]:
    """One machine's part of the page, by the names that the template has for it."""
    figures: dict[bool, list[tuple[Drawing, Markup]]] = {True: [], False: []}
    with files.temporary(), TemporaryDirectory() as folder:
        for drawing, has_changed in drawings(history):
            svg = inline(save(drawing, Path(folder) / "trend.svg"), f"machine-{number}-{drawing.key}", drawing)
            figures[has_changed].append((drawing, svg))
    splits = dict.fromkeys(
        f"{series.workload.id} from {_where(series.points[0])} on: {in_words(series.breaks, 'before', 'now')}"
        for series in history.series
        if series.breaks
    )
    return {
        "heading": heading(history),
        "summary": summary(history),
        "changes": changes(history),
        # The changes' names, what to know of them, and the command that measures them again.
        "repeated": _repeated(history),
        # Figures of the workloads with a change and without, each with its SVG.
        "changed": figures[True],
        "steady": figures[False],
        # The points at which series begin anew, and the reasons.
        "splits": splits,
        "runs": runs(history),
    }


def _draw(history: History, workload: Workload | PlainTest, of: Sequence[Series], key: str) -> Drawing | None:
    """Draw the trends of one workload, a panel a metric; None if no metric has two points."""
    metrics = [metric for metric in CRITERIA if sum(len(series.points) for series in of if series.metric == metric) > 1]
    if not metrics:
        return None
    with looking():
        height = 0.5 + 1.5 * len(metrics)
        figure = Figure(figsize=(WIDTH, height))
        panels = figure.subplots(len(metrics), 1, squeeze=False, sharex=True)[:, 0]
        figure.subplots_adjust(0.09, 0.45 / height, 0.98, 1 - 0.3 / height, hspace=0.4)
        for axes, metric in zip(panels, metrics, strict=True):
            lane = workload.lane if isinstance(workload, Workload) else ""
            _panel(axes, [series for series in of if series.metric == metric], styles([lane])[lane])
        _runs(panels[-1], history)
    changes = sum(len(series.shifts) for series in of)
    return Drawing(
        key,
        printable(workload.id, 80),
        "",
        f"{', '.join(metrics)} over {len(history.runs)} runs, {changes} change points, which are in the table above.",
        figure,
    )


def _panel(axes: Axes, of: Sequence[Series], look: Style) -> None:
    """Draw one metric: lines between runs that follow each other, never over a gap; changes with their size."""
    metric = of[0].metric
    asides = [{point.run.number for point in (*series.spikes, *series.unsure)} for series in of]
    sure = [[p for p in series.points if p.run.number not in aside] for series, aside in zip(of, asides, strict=True)]
    values = [p.value for points in sure for p in points] or [p.value for series in of for p in series.points]
    low, high = min(values) / _ROOM, max(values) * _ROOM
    axes.set_ylim(low, high)
    axes.set_yscale("log")
    for series, points in zip(of, sure, strict=True):
        by_run = {p.run.number: p.value for p in points}
        numbers = range(min(by_run, default=0), max(by_run, default=0) + 1)
        axes.plot(numbers, [by_run.get(n, math.nan) for n in numbers], color=look.colour, linewidth=0.8)
        _dots(axes, points, look, (low, high), marker=look.marker)
        _dots(axes, series.unsure, look, (low, high), marker=look.marker, fillstyle="none")
        _dots(axes, series.spikes, look, (low, high), marker="x")
        for shift in series.shifts:
            _mark(axes, shift)
        if series.breaks:
            axes.axvline(series.points[0].run.number - 0.5, color=INK, linewidth=0.8)
        _versions(axes, series)
    show = units.SHOW[CRITERIA[metric].unit]
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(metric.replace("_", " "), loc="left", pad=9)


def _dots(axes: Axes, points: Sequence[Point], look: Style, limits: tuple[float, float], **how: Any) -> None:
    """Draw the marks of runs; a point beyond the axis is drawn at its edge."""
    heights = np.clip([point.value for point in points], *limits)
    numbers = [point.run.number for point in points]
    axes.plot(numbers, heights, color=look.colour, markersize=3.5, linestyle="", clip_on=False, **how)


def _mark(axes: Axes, shift: Shift) -> None:
    begin, end = shift.before.run.number, shift.after.run.number
    if shift.drift:
        axes.axvspan(begin, end, color=GRID, alpha=0.25, linewidth=0)
    else:
        axes.axvline((begin + end) / 2, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    change = text.change(shift.ratio, "{:+.0%}".format)
    _write(axes, change, ((begin + end) / 2, 1), xytext=(0, 1), ha="center", va="bottom", fontsize=7)


def _write(axes: Axes, words: str, place: tuple[float, float], **how: Any) -> None:
    """Write words at a run, and at the bottom (0) or the top (1) of the axis."""
    axes.annotate(words, place, xycoords=("data", "axes fraction"), textcoords="offset points", **how)


def _versions(axes: Axes, series: Series) -> None:
    """Draw a dotted line at each update, with the new version of the lane's first distribution that differs."""
    for one, other in zip(series.points, series.points[1:], strict=False):
        if differ := _updates(one, other):
            name, (_, new) = next(iter(differ.items()))
            place = other.run.number - 0.5
            axes.axvline(place, color=GRID, linewidth=0.8, linestyle=":")
            _write(axes, printable(f"{name} {new}", 24), (place, 0), xytext=(2, 2), fontsize=6)


def _runs(axes: Axes, history: History) -> None:
    """Draw the axis of runs: their days, and their commits if they have one."""
    last = len(history.runs) - 1
    places = sorted({round(step * last / (_MARKS - 1)) for step in range(_MARKS)})
    runs = [history.runs[place] for place in places]
    axes.set_xticks(places, [f"{run.record.made:%m-%d}\n{printable(run.commit[:7])}" for run in runs])
    axes.set_xlim(-0.5, last + 0.5)
