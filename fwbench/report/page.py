"""The page: one file that needs nothing else, opens from disk and asks nothing of a network."""

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from matplotlib.transforms import Affine2D

from fwbench.report.figures import Drawing
from fwbench.report.look import INK, PAPER, WIDTH, looking
from fwbench.report.sections import Section
from fwbench.report.tables import Column, Table, Value
from fwbench.text import visible

# Cards of a mode that are shown; further ones are folded.
_CARDS = 24
# Points at the sides of a panel's own picture.
_ROOM = 8
# Keys of the tables and of the figure that stand among the answers, and keys of the tables at the end.
_ANSWERS = ("answers", "ratios")
_ABOUT = ("failures", "parity", "sources", "fingerprint", "records")


def write(title: str, parts: Sequence[Section], foreign: Table | None) -> str:
    """The page's HTML; whatever comes from records is escaped, and only our own script may run.

    Args:
        parts: a section of each setting; their figures lie where `Section.svg` says.
        foreign: the table of the benchmarks that fwbench did not measure; None: there are none.
    """
    environment = templates()
    environment.filters |= {"inline": inline, "panels": panels}
    environment.globals |= {"exact": exact, "pinned": pinned}
    environment.globals |= {"most_cards": _CARDS, "answers": _ANSWERS, "about": _ABOUT}
    style, script = Markup(asset("page.css")), Markup(asset("page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template("page.html")
    return page.render(title=title, parts=parts, foreign=foreign, style=style, script=script, digest=digest)


@functools.cache
def templates() -> jinja2.Environment:
    """The environment of the templates. It escapes the values that they show, and marks invisible characters."""
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )


def exact(column: Column[object], value: Value) -> str:
    """A number with all the record's digits, to sort by; empty for text and for a missing value."""
    return repr(float(value)) if column.unit and isinstance(value, int | float) else ""


def pinned(table: Table) -> int:
    """The number of first columns that name a row's workload; they stay in sight if there is room."""
    names = [column.name for column in table.columns]
    return next((names.index(name) + 1 for name in ("lane", "batch") if name in names), 1)


def inline(path: Path, prefix: str, words: Drawing) -> Markup:
    """A figure's SVG as part of the page: in its colours, as wide as there is room, with words for screen readers.

    Args:
        path: the SVG's path; matplotlib wrote it, and has escaped every name in it.
        prefix: sets its identifiers apart from those of the page's other figures.
    """
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'<g id="row-(\d+)">(\s*<path[^>]*>\s*)</g>', lambda row: _link(row, words.rows), svg)
    # Within tags alone: a name is text, and may read like any of these patterns.
    svg = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], prefix), svg)
    opening, rest = svg.split(">", 1)
    opening = re.sub(r'\s(width|height|version|xmlns:xlink)="[^"]*"', "", opening)
    # The figure's share of a whole line, so that text has the same size in every figure.
    style = f'style="--share: {words.figure.get_figwidth() / WIDTH:.3f}"'
    role = f'role="img" aria-labelledby="{prefix}-t {prefix}-d"'
    title, description = (escape(visible(text)) for text in (words.title, words.alternative))
    named = f'<title id="{prefix}-t">{title}</title><desc id="{prefix}-d">{description}</desc>'
    return Markup(f"{opening} {style} {role}>{named}{rest}")


@looking()
def panels(drawing: Drawing, prefix: str) -> Markup:
    """The legend and each panel of a saved figure as pictures of their own, for a narrow page; empty if it has one.

    Args:
        prefix: as in `inline`, whose SVG the pictures show parts of.
    """
    figure = drawing.figure
    drawn = [(f"axes_{number}", axes) for number, axes in enumerate(figure.axes, 1) if axes.axison]
    if len(drawn) == 1:
        return Markup()
    parts: list[tuple[str, Any]] = [(f"legend_{number}", legend) for number, legend in enumerate(figure.legends, 1)]
    pictures = []
    for key, part in (*parts, *drawn):
        # Points from above, with room for text that is wider as SVG; a panel's neighbours are not in its picture.
        box = part.get_tightbbox().transformed(Affine2D().scale(72 / figure.dpi))
        width, top = box.width + 2 * _ROOM, 72 * figure.get_figheight() - box.y1
        view = f'viewBox="{box.x0 - _ROOM:.1f} {top - 2:.1f} {width:.1f} {box.height + 4:.1f}"'
        pictures.append(f'<svg {view} style="--width: {width:.1f}"><use href="#{prefix}-{key}"/></svg>')
    return Markup(f'<div class="panels" aria-hidden="true">{"".join(pictures)}</div>')


def _link(row: re.Match[str], rows: Sequence[str]) -> str:
    """A figure's row as a link to the table's row; its words show under a pointer."""
    return f'<a href="#row-{row[1]}"><title>{escape(visible(rows[int(row[1]) - 1]))}</title>{row[2]}</a>'


def _tag(text: str, prefix: str) -> str:
    text = text.replace(INK, "currentColor").replace(PAPER, "var(--surface)")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    return re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", text)


def asset(name: str) -> str:
    """A file that stands beside this module: a template, a style or a script."""
    return files("fwbench.report").joinpath(name).read_text(encoding="utf-8")
