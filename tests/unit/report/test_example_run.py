"""The answers that documents quote are those that today's code gives of the committed run."""

import re
from pathlib import Path

import pytest

from fwbench.compare.cases import settings
from fwbench.record.reading import read
from fwbench.report.answers import answers, headline, in_short

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def given():
    (run,) = settings([read(ROOT / ".benchmarks" / "0001_readme.json")])
    return answers(run.cases)


def quoted(page):
    """The rows of the first table of answers in a page, as cells by column."""
    lines = (ROOT / page).read_text().splitlines()
    begin = next(place for place, line in enumerate(lines) if re.match(r"model +mode +batch +answer", line))
    names, *rows = (re.split(r" {2,}", line.strip()) for line in lines[begin : lines.index("```", begin)] if line)
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


@pytest.mark.parametrize("page", ["README.md", "docs/example-run.md"])
def test_the_quoted_answers_are_those_of_the_run(given, page):
    table = in_short(given)
    names = [column.name for column in table.columns]
    texts = [dict(zip(names, table.texts(row), strict=True)) for row in table.rows]
    # Epochs take no turns, and have an answer of single processes.
    answered = [row for row in texts if row["mode"] != "fit"]
    rows = quoted(page)
    assert [{name: row[name] for name in rows[0]} for row in answered] == rows


def test_the_quoted_sentences_are_those_of_the_page(given):
    lines = (ROOT / "docs" / "reports.md").read_text().splitlines()
    sentences = [line.removeprefix("> ") for line in lines if re.match(r"> (Inference|Training|Lowest|Least)", line)]
    assert sentences == [line for line in headline(given) if "pochs of training" not in line]
