"""Escapes text from records, by one function for each kind of output, so that it stays plain text there.

Anybody may have written the names, reasons and paths in a record. On a terminal they could clear the screen, in a
spreadsheet run a formula, on GitHub notify people, and anywhere reverse the direction of the text that follows. The
function for LaTeX stands where LaTeX is written.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# Markup in Markdown (GitHub's flavour), and characters that could begin HTML or end a cell.
_MARKUP = re.compile(r"[\\`*_~\[\]{}$!#&<>|]|^[-+=](?=\s|[-+=]|$)|^\d+(?=[.)](?:\s|$))")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
# Places inside the names of people, issues and addresses, which GitHub finds after it has undone all escapes:
# `@org/team`, `#1`, `GH-1`, `http://`.
_LIVE = re.compile(r"(?<=[@#])(?=\w)|(?<=GH)(?=-\d)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
# A space without width, which is inserted at these places to break the names up.
_APART = "&#8203;"
# A spreadsheet runs a cell that begins with one of these, also in the wide forms of East Asian fonts.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def line(text: str, most: int | None = None) -> str:
    """Escape text for a terminal or a log: one line of visible characters, at most `most` (None: any number)."""
    return cut(visible(" ".join(text.split())), most)


def visible(text: str) -> str:
    """Prepare text for HTML, which escapes the rest itself: keep line breaks, replace invisible characters by a mark.

    Invisible are control characters, half characters (lone surrogates), and marks that change the direction of text.
    """
    if text.isprintable():
        return text
    return "".join(map(_seen, text))


def _seen(character: str) -> str:
    if character in "\n\t" or not unicodedata.category(character).startswith("C"):
        return character
    return "\N{REPLACEMENT CHARACTER}"


def storable(value: Any) -> Any:
    """Prepare JSON primitives for a record: every text becomes UTF-8.

    In Python, a variable or a path that is not UTF-8 holds half characters (lone surrogates). Their codes replace them.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {storable(name): storable(each) for name, each in value.items()}
    return [storable(each) for each in value] if isinstance(value, list | tuple) else value


def cut(text: str, most: int | None) -> str:
    """The text, shortened to `most` characters if it is longer."""
    return text if most is None or len(text) <= most else f"{text[: most - 3]}..."


def change(ratio: float, share: Callable[[float], str] = "{:+.1%}".format) -> str:
    """A ratio as a change: +12.3%, from tenfold on 1,459 times or 1/1,459; `unknown` if it is not finite.

    Args:
        share: formats a change of less than tenfold.
    """
    if not math.isfinite(ratio):
        return "unknown"
    if ratio >= 10:
        return f"{_three(ratio)} times"
    return f"1/{_three(1 / ratio)}" if 0 < ratio <= 0.1 else share(ratio - 1)


def _three(number: float) -> str:
    return f"{number:.1f}" if number < 99.95 else f"{number:,.0f}"


def columns(rows: Sequence[Sequence[str]], left: int | None = None) -> list[str]:
    """The lines of a table for a terminal.

    Args:
        left: the number of columns set flush left, the others being flush right; None: all are flush left.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = ["<" if left is None or place < left else ">" for place in range(len(widths))]
    layout = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return [layout.format(*cells).rstrip() for cells in rows]


def listed(names: Iterable[str]) -> str:
    """Names for a sentence: `jax, torch and mlx`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def shortened(names: Sequence[str], most: int) -> str:
    """Names for a sentence, of which it shows at most so many: `jax, torch and 5 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def row(cells: Iterable[str]) -> str:
    """A row of a Markdown table, of cells that are Markdown already."""
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Escape a cell or a header of CSV: one line, and no formula."""
    shown = line(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def markdown(text: str, most: int | None = None) -> str:
    """Escape text for Markdown: one line, without markup, HTML, or anything that GitHub turns into a link.

    At most `most` characters of the text are kept; None: all.
    """
    return _MARKUP.sub(_escape, _LIVE.sub("\0", line(text, most))).replace("\0", _APART)


def _escape(match: "re.Match[str]") -> str:
    markup = match[0]
    if markup.isdigit():
        # A number and a point would begin a list. The point follows, so the backslash escapes it.
        return f"{markup}\\"
    return _ENTITIES.get(markup, f"\\{markup}")
