"""Text on its way out: one function for each kind of output, so that what somebody wrote in a record stays text there.

Names, reasons and paths of a record are anybody's. On a terminal they could clear the screen, in a spreadsheet run a
formula, on GitHub call people, and anywhere turn the direction of what follows. LaTeX has its function where LaTeX is
written.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# What Markdown (GitHub's flavour) takes for markup, and what could be HTML or end a cell.
_MARKUP = re.compile(r"[\\`*_~\[\]{}$!#&<>|]|^[-+=](?=\s|[-+=]|$)|^\d+(?=[.)](?:\s|$))")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
# Where GitHub finds people, issues and addresses after it has undone all escapes: `@org/team`, `#1`, `GH-1`, `http://`.
_LIVE = re.compile(r"(?<=[@#])(?=\w)|(?<=GH)(?=-\d)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
# It has no width, and keeps them apart.
_APART = "&#8203;"
# A spreadsheet runs a cell that begins with one of these, be it in the wide form of East Asian fonts.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def line(text: str, most: int | None = None) -> str:
    """For a terminal or a log: on one line, and nothing but characters that are seen.

    Args:
        most: characters that are kept.
    """
    return cut(visible(" ".join(text.split())), most)


def visible(text: str) -> str:
    """For HTML, which escapes the rest itself: line breaks stay, and whatever else is not seen shows as a mark.

    That is controls, half characters, and marks that turn the direction of what follows.
    """
    if text.isprintable():
        return text
    return "".join(map(_seen, text))


def _seen(character: str) -> str:
    if character in "\n\t" or not unicodedata.category(character).startswith("C"):
        return character
    return "\N{REPLACEMENT CHARACTER}"


def storable(value: Any) -> Any:
    """For a record: JSON primitives whose texts are UTF-8.

    A variable or a path that is not UTF-8 has half characters in Python. Their codes take their place.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {storable(name): storable(each) for name, each in value.items()}
    return [storable(each) for each in value] if isinstance(value, list | tuple) else value


def cut(text: str, most: int | None) -> str:
    """The text, or its beginning where it is longer than `most` characters."""
    return text if most is None or len(text) <= most else f"{text[: most - 3]}..."


def change(ratio: float, share: Callable[[float], str] = "{:+.1%}".format) -> str:
    """A ratio as a change: +12.3%, and beyond tenfold 1,459 times or 1/1,459; an infinite one is unknown.

    Args:
        share: shows a smaller change.
    """
    if not math.isfinite(ratio):
        return "unknown"
    if ratio >= 10:
        return f"{_three(ratio)} times"
    return f"1/{_three(1 / ratio)}" if 0 < ratio <= 0.1 else share(ratio - 1)


def _three(number: float) -> str:
    return f"{number:.1f}" if number < 99.95 else f"{number:,.0f}"


def columns(rows: Sequence[Sequence[str]], left: int | None = None) -> list[str]:
    """For a terminal: the lines of a table.

    Args:
        left: how many columns are set flush left, the others flush right; None: all are.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = ["<" if left is None or place < left else ">" for place in range(len(widths))]
    layout = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return [layout.format(*cells).rstrip() for cells in rows]


def row(cells: Iterable[str]) -> str:
    """For Markdown: a row of a table, of cells that are Markdown already."""
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """For a cell or a header of CSV: on one line, and no formula."""
    shown = line(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def markdown(text: str, most: int | None = None) -> str:
    """For Markdown: on one line, and without a meaning to it, to HTML or to GitHub.

    Args:
        most: characters that are kept.
    """
    return _MARKUP.sub(_escape, _LIVE.sub("\0", line(text, most))).replace("\0", _APART)


def _escape(match: "re.Match[str]") -> str:
    markup = match[0]
    if markup.isdigit():
        # A number and a point would begin a list; the point follows.
        return f"{markup}\\"
    return _ENTITIES.get(markup, f"\\{markup}")
