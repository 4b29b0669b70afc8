"""What LaTeX shows of names in records."""

import re

from fwbench.ext.studies import latex
from fwbench.ext.studies.latex_text import escape
from fwbench.report.tables import Column, tabulate
from tests.unit.test_text import BAD


def test_latex_shows_every_command_as_text():
    table = tabulate("x", r"\input{x}", "x", (Column(r"\input{x}", lambda item: r"\input{x}"),), [1])
    assert not re.search(r"\\input", latex.write(table, "x", r"\input{x}"))


def test_latex_has_no_characters_that_nobody_sees():
    assert escape(BAD).isascii()
    assert "\n" not in escape(BAD)
