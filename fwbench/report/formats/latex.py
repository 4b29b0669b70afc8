"""Tables in LaTeX with booktabs; long ones break over pages (longtable)."""

import unicodedata
from collections.abc import Iterable

from fwbench.report.tables import Table

# Rows that a page takes.
_PAGE = 40
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    '"': "''",
    "±": r"\ensuremath{\pm}",
}


def document(title: str, files: Iterable[tuple[str, str]]) -> str:
    """A document that takes in the tables' files.

    Args:
        files: the heading of a table's setting, and its file without the ending.
    """
    lines = [
        r"\documentclass{article}",
        r"\usepackage[a4paper,landscape,margin=12mm]{geometry}",
        r"\usepackage{booktabs,longtable}",
        r"\setlength{\tabcolsep}{3pt}",
        r"\begin{document}",
        rf"\section*{{{escape(title)}}}",
    ]
    previous = ""
    for setting, file in files:
        if setting != previous:
            lines.append(rf"\subsection*{{{escape(setting)}}}")
            previous = setting
        lines.append(rf"\input{{{file}}}")
    return "\n".join([*lines, r"\end{document}", ""])


def write(table: Table) -> str:
    """One table, to be taken into a document that uses booktabs and longtable."""
    shape = "".join("r" if column.unit else "l" for column in table.columns)
    names = _row([column.name for column in table.columns])
    body = [_row(table.texts(row)) for row in table.rows]
    missing = "".join(f" Missing: {text}." for text in table.missing)
    caption = rf"\caption{{{escape(f'{table.title}. {table.caption}{missing}')}}}"
    label = rf"\label{{tab:{table.key}}}"
    if len(table.rows) > _PAGE:
        start = [r"{\scriptsize", rf"\begin{{longtable}}{{@{{}}{shape}@{{}}}}", rf"{caption}{label}\\"]
        head = [r"\toprule", names, r"\midrule", r"\endfirsthead", r"\toprule", names, r"\midrule", r"\endhead"]
        lines = [*start, *head, *body, r"\bottomrule", r"\end{longtable}", "}"]
    else:
        start = [r"\begin{table}[htbp]", r"\centering\scriptsize", f"{caption}{label}"]
        inner = [rf"\begin{{tabular}}{{@{{}}{shape}@{{}}}}", r"\toprule", names, r"\midrule", *body, r"\bottomrule"]
        lines = [*start, *inner, r"\end{tabular}", r"\end{table}"]
    return "\n".join([*lines, ""])


def escape(text: str) -> str:
    """Text that LaTeX sets as it is; what its standard fonts lack is named instead of shown."""
    return "".join(_character(character) for character in " ".join(text.split()))


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if " " <= character <= "~":
        return character
    name = unicodedata.name(character, f"U+{ord(character):04X}")
    return f"[{name.lower()}]" if not name.startswith("U+") else f"[{name}]"


def _row(texts: list[str]) -> str:
    # Braces: a cell that begins with a bracket would be an option of the line break before it.
    return " & ".join(f"{{{escape(text)}}}" for text in texts) + r" \\"
