"""The answers that README and docs/example-run.md quote are those that today's code gives of the committed run."""

import re
from pathlib import Path

import pytest

from fwbench.compare.cases import settings
from fwbench.record.reading import read
from fwbench.report.answers import answers, in_short

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def table():
    (run,) = settings([read(ROOT / ".benchmarks" / "0001_readme.json")])
    return in_short(answers(run.cases))


def quoted(page):
    """The rows of the first table of answers in a page, as cells by column."""
    lines = (ROOT / page).read_text().splitlines()
    begin = next(place for place, line in enumerate(lines) if re.match(r"model +mode +batch +answer", line))
    names, *rows = (re.split(r" {2,}", line.strip()) for line in lines[begin : lines.index("```", begin)] if line)
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


@pytest.mark.parametrize("page", ["README.md", "docs/example-run.md"])
def test_the_quoted_answers_are_those_of_the_run(table, page):
    names = [column.name for column in table.columns]
    given = [dict(zip(names, table.texts(row), strict=True)) for row in table.rows]
    # Epochs take no turns, and have an answer of single processes.
    answered = [row for row in given if row["mode"] != "fit"]
    rows = quoted(page)
    assert [{name: row[name] for name in rows[0]} for row in answered] == rows
