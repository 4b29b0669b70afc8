"""A table's columns in LaTeX: numbers for siunitx, all in one unit, which stands in the column's head."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fwbench.ext.studies.latex_text import escape
from fwbench.record.metrics import SCALES
from fwbench.report.tables import Column, Value
from fwbench.units import SCALED

# siunitx's names for prefixes and for units.
_PREFIXES = {
    **{"T": r"\tera", "G": r"\giga", "M": r"\mega", "k": r"\kilo", "": "", "m": r"\milli", "u": r"\micro"},
    **{"n": r"\nano", "Gi": r"\gibi", "Mi": r"\mebi", "Ki": r"\kibi"},
}
_NAMES = {
    **{"s": r"\second", "B": r"\byte", "J": r"\joule"},
    **{"FLOP": r"\flop", "FLOP/s": r"\flop\per\second", "B/s": r"\byte\per\second"},
}

# By a column's unit, the units in which its numbers can be shown: each with its size in the column's unit, and its name
# in siunitx.
_UNITS: dict[str, dict[str, tuple[float, str]]] = {
    **{
        unit: {
            shown: (factor, _PREFIXES[shown.removesuffix(unit)] + name)
            for shown, factor in {**SCALED[unit], **SCALES.get(unit, {})}.items()
        }
        for unit, name in _NAMES.items()
    },
    "FLOP/B": {"": (1.0, r"\flop\per\byte")},
    "1/s": {"": (1.0, r"\per\second"), "M": (1e6, r"\per\second")},
    "1": {"": (1.0, ""), "x": (1.0, ""), "%": (1e-2, r"\percent")},
}
_SHOWN = re.compile(r"(<= )?(-?[\d,]+(?:\.\d+)?)(e[-+]?\d+)?(?:±([\d.]+))? ?([A-Za-z%/]*)")
# Words of a head stand side by side up to this many characters, even over a narrower column.
_NARROW = 8


@dataclass(frozen=True)
class Set:
    """A column, ready to be set by LaTeX: its letter for `tabular` with options, its name over its unit, and its cells.

    Its width is that of the widest cell, in visible characters.
    """

    shape: str
    head: str
    cells: tuple[str, ...]
    width: int


def choose(columns: Sequence[Column[object]], texts: Sequence[Sequence[str]]) -> dict[str, str]:
    """By SI unit, the unit in which most numbers of such columns are shown, so that columns can be compared."""
    shown: dict[str, Counter[str]] = {}
    for row in texts:
        for column, cell in zip(columns, row, strict=True):
            match = _SHOWN.fullmatch(cell)
            if match and match[5] in _UNITS.get(column.unit, {}):
                # There is no unit of a million per second.
                shown.setdefault(column.unit, Counter())["" if column.unit == "1/s" else match[5]] += 1
    return {unit: counts.most_common(1)[0][0] for unit, counts in shown.items()}


def text(column: Column[object], texts: Sequence[str], shape: str = "l") -> Set:
    """A column of words."""
    longest = max(map(len, texts), default=0)
    head, width = _head(column.name, "", longest, shape)
    return Set(shape, head, tuple(map(_braced, texts)), max(longest, width))


def numbers(column: Column[object], chosen: Mapping[str, str], values: Sequence[Value], texts: Sequence[str]) -> Set:
    """A column of numbers, each with the digits with which it is shown; words replace a missing number.

    Args:
        chosen: by SI unit, the unit to show numbers in.
        values, texts: for each row, its number, and the text that shows it.
    """
    known = _UNITS.get(column.unit, {})
    matches = [
        match if isinstance(value, int | float) and (match := _SHOWN.fullmatch(shown)) and match[5] in known else None
        for value, shown in zip(values, texts, strict=True)
    ]
    suffixes = {match[5] for match in matches if match}
    if not suffixes:
        return text(column, texts, "r")
    # Shares, ratios and counts share the unit 1, so a column with one suffix keeps its own.
    main = suffixes.pop() if column.unit == "1" and len(suffixes) == 1 else chosen[column.unit]
    factor, unit = known[main]
    cells = tuple(
        _braced(shown) if match is None else _number(match, float(value or 0), main, factor)
        for match, value, shown in zip(matches, values, texts, strict=True)
    )
    longest = max(map(len, texts))
    name = column.name.replace("/s", "").rstrip() if column.unit == "1/s" else column.name
    head, width = _head(name, unit, longest, "r")
    shape = _aligned([cell for match, cell in zip(matches, cells, strict=True) if match])
    return Set(shape, head, cells, max(longest, width))


def interval(low: Set, high: Set) -> Set:
    """Join two columns of plain numbers, the ends of an interval; a row without one has the first column's word."""
    cells = tuple(
        first if first.startswith("{") else rf"\numrange{{{first}}}{{{second}}}"
        for first, second in zip(low.cells, high.cells, strict=True)
    )
    return Set("r", "{interval}", cells, low.width + high.width)


def _number(match: re.Match[str], value: float, main: str, factor: float) -> str:
    """A number in the column's unit, for siunitx to read: plain, or in `\\num` if no column can align it."""
    at_most, digits, exponent, deviation, suffix = match.groups()
    digits = digits.replace(",", "")
    if suffix != main:
        # As many significant digits as are shown, and all those before the decimal point.
        magnitude = math.floor(math.log10(abs(value / factor))) if value else 0
        significant = len(digits.lstrip("-0.").replace(".", ""))
        digits = f"{value / factor:.{max(0, significant - 1 - magnitude)}f}"
    if at_most:
        return rf"\num{{\le {digits}}}"
    if deviation:
        return rf"\num[separate-uncertainty]{{{digits} \pm {deviation}}}"
    return rf"\num{{{digits}{exponent}}}" if exponent else digits


def _aligned(cells: Sequence[str]) -> str:
    """The shape of a column: aligned at the decimal points where all its numbers are plain."""
    if any(cell.startswith("\\") for cell in cells):
        return "r"
    parts = [cell.lstrip("-").partition(".") for cell in cells]
    sign = "-" if any(cell.startswith("-") for cell in cells) else ""
    before, after = max(len(part[0]) for part in parts), max(len(part[2]) for part in parts)
    return rf"S[table-format={sign}{before}.{after}]"


def _head(name: str, unit: str, width: int, side: str) -> tuple[str, int]:
    """A column's name, broken between words where that makes the column narrower, over its unit; and how wide it is."""
    lines: list[str] = []
    for word in name.split():
        # A name such as torch.compile counts as two words.
        for place, part in enumerate(re.split(r"(?<=\.)(?=\w)", word)):
            joint = "" if place else " "
            if lines and len(lines[-1]) + len(joint) + len(part) <= max(width, _NARROW):
                lines[-1] += joint + part
            else:
                lines.append(part)
    told = [*map(escape, lines), *([rf"(\unit{{{unit}}})"] if unit else [])]
    # A line that began with a bracket or a star would be an option of the line break before it.
    stacked = r" \\ ".join(f"{{}}{line}" if line[0] in "[*" else line for line in told)
    head = f"{{{stacked}}}" if len(told) == 1 else rf"{{\shortstack[{side}]{{{stacked}}}}}"
    return head, max(map(len, lines), default=0)


def _braced(words: str) -> str:
    # A cell that began with a bracket would be an option of the line break before it, and siunitx would read words in
    # a column of numbers as one.
    return f"{{{escape(words)}}}"
