"""A report's tables as dictionaries, and its files read back, each by the rules of its format and none of the code
that wrote them.
"""

import csv
import html
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest

from fwbench.commands.report import _writers


def values(table):
    """A table's rows, each as its values by the columns' names."""
    return [dict(zip((column.name for column in table.columns), row.values, strict=True)) for row in table.rows]


def texts(table):
    """A table's rows, each as its texts by the columns' names."""
    return [dict(zip((column.name for column in table.columns), table.texts(row), strict=True)) for row in table.rows]


# The extension `studies` writes LaTeX.
LATEX = "latex" in _writers()
needs_latex = pytest.mark.skipif(not LATEX, reason="the extension that writes LaTeX is not here")

UNITS = {
    **{"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    **{"B": 1.0, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "MB": 1e6, "GB": 1e9},
    **{"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "x": 1.0, "%": 1e-2, "M": 1e6, "": 1.0},
}
NUMBER = re.compile(r"(-?[\d,]+(?:\.\d+)?)(e-?\d+)?(?:±([\d.]+))? ?([A-Za-z%]*)")


@dataclass
class Parsed:
    """A table as it stands in a file: the names of its columns, and its rows' cells as text.

    Attributes:
        exact: on the page, the number of each cell by which it is sorted.
        numeric: in Markdown, whether each column is set flush right.
    """

    columns: list[str]
    rows: list[list[str]]
    exact: list[list[str]] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)

    def dicts(self):
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def shown(text):
    """A number as people read it: its value and half a unit of its last digit, in SI; None where there is no number."""
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    digits, exponent, _, unit = match.groups()
    scale = UNITS[unit] * float(f"1{exponent or ''}")
    decimals = len(digits.partition(".")[2])
    return float(digits.replace(",", "")) * scale, 0.5000001 * 10**-decimals * scale


def csv_files(folder):
    """Tables by key."""
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            columns, *rows = csv.reader(file)
        tables[path.stem] = Parsed(columns, rows)
    return tables


def markdown(path):
    """Tables by title."""
    tables, title, lines = {}, "", []
    for line in [*path.read_text().splitlines(), "### "]:
        if line.startswith("### "):
            if lines:
                columns, rules, *rows = [
                    [unescaped(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
                ]
                tables[unescaped(title)] = Parsed(columns, rows, numeric=[rule == "---:" for rule in rules])
            title, lines = line[4:], []
        elif line.startswith("|"):
            lines.append(line)
    return tables


def unescaped(text):
    # Zero-width spaces stand where GitHub would find people, issues and addresses.
    return html.unescape(re.sub(r"\\(.)", r"\1", text.replace("&#8203;", "")))


# Of siunitx, and as it is shown elsewhere.
LATEX_UNITS = {
    **{r"\second": "s", r"\milli\second": "ms", r"\micro\second": "us", r"\nano\second": "ns", r"\per\second": ""},
    **{r"\byte": "B", r"\kibi\byte": "KiB", r"\mebi\byte": "MiB", r"\gibi\byte": "GiB"},
    **{r"\mega\byte": "MB", r"\giga\byte": "GB", r"\joule": "J", r"\milli\joule": "mJ", r"\kilo\joule": "kJ"},
    **{r"\percent": "%", "": ""},
}
LATEX_WORDS = {
    **{r"\allowbreak{}": "", r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"},
    **{r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\textquotedbl{}": '"'},
    **{r"\textasciigrave{}": "`", r"\ensuremath{\pm}": "±", "{}": ""},
}


def latex(folder):
    """Tables by key, without those for a column of a paper; names of columns without `/s`, which is a unit there."""
    tables = {}
    for path in sorted(folder.glob("*.tex")):
        text = path.read_text()
        if path.stem.endswith("-column"):
            continue
        assert rf"\label{{tab:{path.stem}}}" in text
        lines = [line[:-3] for line in text.splitlines() if line.endswith(r" \\") and not line.startswith(r"\caption")]
        # A long table repeats its head on each page.
        heads = [_head(head) for head in lines[0].split(" & ")]
        rows = [
            [_cell(cell, unit) for cell, (_, unit) in zip(line.split(" & "), heads, strict=True)]
            for line in lines[1:]
            if line != lines[0]
        ]
        tables[path.stem] = Parsed([name for name, _ in heads], rows)
    return tables


def _head(text):
    """Its name and its unit."""
    stacked = re.fullmatch(r"\{\\shortstack\[[lr]\]\{(.*)\}\}", text)
    lines = stacked[1].split(r" \\ ") if stacked else [text[1:-1]]
    unit = re.fullmatch(r"\(\\unit\{(.*)\}\)", lines[-1])
    return " ".join(map(_plain, lines[:-1] if unit else lines)), LATEX_UNITS[unit[1]] if unit else ""


def _cell(text, unit):
    if text.startswith("{"):
        return _plain(text[1:-1])
    number = re.fullmatch(r"\\num(?:\[.*\])?\{(.*)\}", text)
    shown = number[1].replace(r" \pm ", "±").replace(r"\le", "<=") if number else text
    return f"{shown} {unit}".strip()


def _plain(text):
    for command, character in LATEX_WORDS.items():
        text = text.replace(command, character)
    return re.sub(r"\\([_%$&#{}])", r"\1", text)


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tables, self.title, self._key, self._table = {}, {}, None, None
        self._cell = self._heading = None

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "section" and given.get("class") == "table":
            self._key = re.sub(r"(-table)?-\d+$", "", given["id"])
        elif tag == "table":
            self._table = self.tables[self._key] = Parsed([], [])
        elif tag == "h3":
            self._heading = ""
        elif tag == "tr":
            self._row, self._exact = [], []
        elif tag in ("td", "th"):
            self._cell = ""
            self._exact.append(given.get("data-value", ""))

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._row.append(self._cell.strip())
            self._cell = None
        elif tag == "h3" and self._key:
            self.title.setdefault(self._key, self._heading)
            self._heading = None
        elif tag == "tr" and self._table is not None:
            if self._table.columns:
                self._table.rows.append(self._row)
                self._table.exact.append(self._exact)
            else:
                self._table.columns = self._row
        elif tag == "table":
            self._table = None

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data
        elif self._heading is not None:
            self._heading += data


def page(path):
    """Tables by key, and their titles by key."""
    parser = _Page()
    parser.feed(path.read_text())
    return parser.tables, parser.title
