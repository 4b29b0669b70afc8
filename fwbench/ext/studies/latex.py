"""Tables and figures in LaTeX, for a paper: booktabs, numbers by siunitx, long tables over several pages (longtable).

A table or a figure for a paper's page is as wide as its text. A table for a column of the page has fewer columns; a
line above the rows of each model replaces the column of models.
"""

import dataclasses
import re
from collections.abc import Container, Iterable, Sequence
from itertools import groupby, pairwise

from fwbench.ext.studies import latex_numbers
from fwbench.ext.studies.latex_numbers import Set
from fwbench.ext.studies.latex_text import escape
from fwbench.report.tables import Table

# The preamble of every document that includes the tables and figures.
PREAMBLE = r"""% What the tables and figures of this folder need: \input it before \begin{document}.
\usepackage[T1]{fontenc} % fonts in which accents and underscores are characters, which can be copied
\usepackage{array,booktabs,graphicx,longtable,siunitx}
\DeclareSIUnit{\flop}{FLOP}
% What stands below a table. \newcommand{\fwbenchnote}[1]{} before this line leaves it out.
\providecommand{\fwbenchnote}[1]{\par\smallskip\noindent\begin{minipage}{\linewidth}\scriptsize #1\end{minipage}}
"""

# Rows that fit on a page.
_PAGE = 40
# Columns of words longer than the first number of characters are broken into lines; longer than the second, if there is
# still no room for the other columns. And the least number of characters in a line of such a column.
_LONG, _SHORT = (30, 20), 12
# Characters of a line as wide as the text, and of one in a column.
_LINE, _NARROW_LINE = 165, 72
# After these a line may end in a path or a name.
_BREAKS = re.compile(r"(/|\\_|(?<!\\)[=,]|(?<!\\)\.(?=[a-z]))")
# The numbers that studies' tables have from their papers; they are left out, as LaTeX numbers ours.
_NUMBERED = re.compile(r"Table [IVX]+: ")


def document(title: str, parts: Iterable[tuple[str, Iterable[str], Iterable[str]]]) -> str:
    """Format a document that includes the files: each part's heading, the sentences before its tables, and its files,
    which are named without their ending."""
    lines = [
        r"\documentclass{article}",
        r"\usepackage[a4paper,landscape,margin=12mm]{geometry}",
        r"\usepackage{lmodern}",
        r"\input{preamble}",
        r"\begin{document}",
        rf"\section*{{{escape(title)}}}",
    ]
    for heading, sentences, files in parts:
        lines.append(rf"\subsection*{{{escape(heading)}}}")
        lines += [rf"\par {escape(sentence)}" for sentence in sentences]
        lines += [rf"\input{{{file}}}" for file in files]
        lines.append(r"\clearpage")
    return "\n".join([*lines, r"\end{document}", ""])


def write(table: Table, name: str, origin: str) -> str:
    """Format a table as wide as the text, with all columns and rows; `name` is for its label, and no other table's."""
    shape, names, body = _set(_columns(table, range(len(table.columns))), _LINE)
    caption = _caption(table, origin, name)
    # A broken row takes two lines.
    if len(table.rows) * (1 + ("p{" in shape)) <= _PAGE:
        return _float("table*", 3, caption, shape, [names, r"\midrule", *body], _note(table))
    small, opening = r"{\scriptsize\setlength{\tabcolsep}{3pt}", rf"\begin{{longtable}}{{@{{}}{shape}@{{}}}}"
    begin = [small, opening, rf"{caption}\\"]
    head = [r"\toprule", names, r"\midrule", r"\endfirsthead", r"\toprule", names, r"\midrule", r"\endhead"]
    return "\n".join([*begin, *head, *body, r"\bottomrule", r"\end{longtable}", rf"{_note(table)}\par}}", ""])


def write_narrow(table: Table, name: str, origin: str, minor: Container[str]) -> str:
    """Format a table for a column of a paper: its rows under a line for each value of the first column.

    Empty columns are left out. Axes and words that are the same in all rows stand in the caption instead. The ends of
    an interval (columns `from` and `to`) stand in one column. For lack of room, columns named in `minor` are left out;
    an axis with such a name is not.
    """
    texts = [table.texts(row) for row in table.rows]
    grouped = len({row[0] for row in texts}) < len(texts)
    kept, same = [] if grouped else [0], []
    for place, column in enumerate(table.columns[1:], 1):
        words = {row[place] for row in texts}
        if (column.name in minor and not column.axis) or words <= {column.absent}:
            continue
        if len(words) == 1 and len(texts) > 1 and all(isinstance(row.values[place], str | int) for row in table.rows):
            same.append(f"{column.name} {words.pop()}")
        else:
            kept.append(place)
    columns = _columns(table, kept)
    # An axis of the user's may have the name of any column.
    ends = [at for at, two in enumerate(pairwise(table.columns[place].name for place in kept)) if two == ("from", "to")]
    for at in reversed(ends):
        columns[at : at + 2] = [latex_numbers.interval(*columns[at : at + 2])]
    shape, names, body = _set(columns, _NARROW_LINE)
    if grouped:
        body = _under_lines(body, [row[0] for row in texts], len(columns))
    caption = _caption(table, "; ".join(filter(None, [*same, origin])), name)
    return _float("table", 2, caption, shape, [names, r"\midrule", *body], _note(table))


def figure(file: str, name: str, title: str, caption: str, origin: str, narrow: bool) -> str:
    """Format a figure as wide as a column of a paper, or as all its text; `name` is for its label, no other figure's.

    The file is the picture's path, without its ending, from a folder that `\\graphicspath` names.
    """
    kind, width = ("figure", "columnwidth") if narrow else ("figure*", "textwidth")
    picture = rf"\centering\includegraphics[width=\{width}]{{{file}}}"
    words = rf"\caption[{{{escape(title)}}}]{{{escape(f'{title}: {origin}. {caption}')}}}\label{{fig:{name}}}"
    return "\n".join([rf"\begin{{{kind}}}[htbp]", picture, words, rf"\end{{{kind}}}", ""])


def _under_lines(rows: Sequence[str], names: Sequence[str], columns: int) -> list[str]:
    """Put a line with the name above each sequence of rows that have the same name."""
    lines: list[str] = []
    for name, of_name in groupby(zip(names, rows, strict=True), lambda pair: pair[0]):
        lines += [r"\addlinespace"] if lines else []
        lines.append(rf"\multicolumn{{{columns}}}{{@{{}}l}}{{\itshape {escape(name)}}} \\")
        lines += [row for _, row in of_name]
    return lines


def _columns(table: Table, places: Sequence[int]) -> list[Set]:
    texts = [table.texts(row) for row in table.rows]
    chosen = latex_numbers.choose(table.columns, texts)
    columns = []
    for place in places:
        column, shown = table.columns[place], [row[place] for row in texts]
        if column.unit:
            columns.append(latex_numbers.numbers(column, chosen, [row.values[place] for row in table.rows], shown))
        else:
            columns.append(latex_numbers.text(column, shown))
    return columns


def _set(columns: Sequence[Set], line: int) -> tuple[str, str, list[str]]:
    """The shape of columns, their row of names, and their other rows.

    Columns of long words are broken into lines; such columns share the width that the others leave.
    """
    long: list[Set] = []
    taken = 0
    for most in _LONG:
        long = [column for column in columns if column.shape == "l" and column.width > most]
        taken = sum(column.width for column in columns if column not in long) + 2 * len(columns)
        if taken <= 0.7 * line:
            break
    free = max(1 - taken / line, _SHORT * len(long) / line) / max(1, sum(column.width for column in long))
    fitted = [_broken(column, free * column.width) if column in long else column for column in columns]
    rows = zip(*((column.head, *column.cells) for column in fitted), strict=True)
    names, *body = (" & ".join(cells) + r" \\" for cells in rows)
    return "".join(column.shape for column in fitted), names, body


def _broken(column: Set, share: float) -> Set:
    """A column of words, broken into lines of this share of the full width."""
    shape = rf">{{\raggedright\arraybackslash}}p{{{share:.3f}\linewidth}}"
    cells = tuple(_BREAKS.sub(r"\1\\allowbreak{}", cell) for cell in column.cells)
    return dataclasses.replace(column, shape=shape, cells=cells)


def _caption(table: Table, origin: str, name: str) -> str:
    title = _NUMBERED.sub("", table.title)
    title = title[0].upper() + title[1:]
    said = f"{title}: {origin}" if origin else title
    return rf"\caption[{{{escape(title)}}}]{{{escape(said)}.}}\label{{tab:{name}}}"


def _note(table: Table) -> str:
    missing = "".join(f" Missing: {text}." for text in table.missing)
    return rf"\fwbenchnote{{{escape(f'{table.caption}{missing}')}}}"


def _float(kind: str, gap: int, caption: str, shape: str, rows: Sequence[str], note: str) -> str:
    start = rf"\par\medskip\scriptsize\setlength{{\tabcolsep}}{{{gap}pt}}\begin{{tabular}}{{@{{}}{shape}@{{}}}}"
    inner = [start, r"\toprule", *rows, r"\bottomrule", r"\end{tabular}"]
    return "\n".join([rf"\begin{{{kind}}}[htbp]", rf"\centering{caption}", *inner, note, rf"\end{{{kind}}}", ""])
