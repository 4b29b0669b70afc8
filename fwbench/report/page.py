"""The page: one file that needs nothing else, opens from disk and asks nothing of a network."""

import base64
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from fwbench.report.cards import Card
from fwbench.report.figures import Drawing
from fwbench.report.look import INK, PAGE, PAPER
from fwbench.report.tables import Column, Table, Value
from fwbench.text import visible

_ANSWERS = ("answers", "ratios")
# Cards of a mode that are shown; further ones are folded.
_CARDS = 24
_ABOUT = ("failures", "parity", "sources", "fingerprint", "records")


@dataclass(frozen=True)
class Section:
    """What the page says of one setting.

    Attributes:
        headline: the answers in sentences.
        remarks: what a reader must know before the numbers, a sentence each.
        drawings: each with its SVG file.
        details: of failures: the workload's id, the failure in a sentence, and the traceback or the like.
        cards: of each mode, the answers.
    """

    heading: str
    headline: Sequence[str]
    remarks: Sequence[str]
    tables: Sequence[Table]
    drawings: Sequence[tuple[Drawing, Path]]
    details: Sequence[tuple[str, str, str]]
    cards: Mapping[str, Sequence[Card]]

    @property
    def forest(self) -> list[tuple[Drawing, Path]]:
        """The figure that stands among the answers."""
        return [(drawing, path) for drawing, path in self.drawings if drawing.key in _ANSWERS]

    @property
    def figures(self) -> list[tuple[Drawing, Path]]:
        """All other figures."""
        return [(drawing, path) for drawing, path in self.drawings if drawing.key not in _ANSWERS]

    @property
    def answers(self) -> list[Table]:
        """What comes first."""
        return [table for table in self.tables if table.key in _ANSWERS]

    @property
    def numbers(self) -> list[Table]:
        """The measured and the published numbers."""
        return [table for table in self.tables if table.key not in (*_ANSWERS, *_ABOUT)]

    @property
    def about(self) -> list[Table]:
        """What failed, and what stands behind the numbers."""
        return [table for table in self.tables if table.key in _ABOUT]


def write(title: str, parts: Sequence[Section], foreign: Table | None) -> str:
    """The page's HTML; whatever comes from records is escaped, and only our own script may run."""
    environment = templates()
    environment.filters["inline"] = inline
    environment.globals |= {"exact": exact, "pinned": pinned, "most_cards": _CARDS}
    script = asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        title=title,
        parts=parts,
        foreign=foreign,
        style=Markup(asset("page.css")),
        script=Markup(script),
        digest=digest,
    )


@functools.cache
def templates() -> jinja2.Environment:
    """Where templates come from; whatever they show is escaped, and has no characters that nobody sees."""
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )


def exact(column: Column[object], value: Value) -> str:
    """A number as the record has it, to sort by; empty for text and where there is none."""
    return repr(float(value)) if column.unit and isinstance(value, int | float) else ""


def pinned(table: Table) -> int:
    """How many of the first columns say what a row is about, and stay in sight where there is room."""
    names = [column.name for column in table.columns]
    return next((names.index(name) + 1 for name in ("lane", "batch") if name in names), 1)


def inline(path: Path, prefix: str, words: Drawing) -> Markup:
    """A figure's SVG as part of the page: in its colours, as wide as there is room, with words for screen readers.

    Args:
        path: of the SVG that matplotlib wrote, which has escaped every name in it.
        prefix: sets its identifiers apart from those of the page's other figures.
    """
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    # Within tags alone: a name is text, and may read like any of this.
    svg = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], prefix), svg)
    opening, rest = svg.split(">", 1)
    opening = re.sub(r'\s(width|height|version|xmlns:xlink)="[^"]*"', "", opening)
    # Its share of a whole line, so that text is as large in every figure.
    share = f"{words.figure.get_figwidth() / PAGE.width:.3f}"
    words_of = f'role="img" aria-labelledby="{prefix}-t {prefix}-d"'
    return Markup('{} style="--share: {}" {}><title id="{}-t">{}</title><desc id="{}-d">{}</desc>{}').format(
        Markup(opening),
        share,
        Markup(words_of),
        prefix,
        visible(words.title),
        prefix,
        visible(words.alternative),
        Markup(rest),
    )


def _tag(text: str, prefix: str) -> str:
    text = text.replace(INK, "currentColor").replace(PAPER, "var(--surface)")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    return re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", text)


def asset(name: str) -> str:
    """A file that stands beside this module: a template, a style or a script."""
    return files("fwbench.report").joinpath(name).read_text(encoding="utf-8")
