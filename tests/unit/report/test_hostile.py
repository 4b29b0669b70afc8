"""Names and messages from records are text in every format."""

import html
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.unit.recorded import measured, saved
from tests.unit.report import parsing
from tests.unit.report.conftest import NAMES
from tests.unit.shared import needs

# A bell is not seen.
SHOWN = tuple(name.replace("\x07", "\N{REPLACEMENT CHARACTER}") for name in NAMES)


def models(rows, column="model"):
    return list(dict.fromkeys(row[column] for row in rows.dicts()))


def test_html_holds_no_markup_of_a_record(hostile):
    text = (hostile / "report.html").read_text()
    assert text.count("<script") == 1
    assert "<img" not in text
    assert "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", text)
    found, _ = parsing.page(hostile / "report.html")
    assert models(found["inference"]) == list(SHOWN)
    assert len(found["failures"].rows) == len(NAMES)


def test_markdown_keeps_its_cells(hostile):
    table = parsing.markdown(hostile / "tables.md")["Table II: inference"]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert models(table) == [" ".join(name.split()) for name in SHOWN]
    assert "<script" not in re.sub(r"\\<", "", (hostile / "tables.md").read_text())


@pytest.mark.parametrize("name", ["#333333", "#fffffe", 'id="x', 'href="#x', "url(#x)"])
def test_a_name_that_reads_like_a_figures_markup_is_a_name_there(report, name):
    out = report(saved(measured("torch", name), measured("jax", name)), formats="html")
    figures = (out / "report.html").read_text().partition("<figure")[2].partition("<footer")[0]
    assert f">{html.escape(name, quote=False)} b1</text>" in figures
    assert "fill: #333333" not in figures


def test_csv_reads_back_and_starts_no_formula(hostile):
    table = parsing.csv_files(hostile / "tables")["inference"]
    assert models(table) == [*SHOWN[:-1], f"'{SHOWN[-1]}"]
    for found in parsing.csv_files(hostile / "tables").values():
        assert not [cell for row in found.rows for cell in row if cell.startswith(("=", "@", "+"))]


@needs("studies")
def test_figures_are_well_formed_and_show_the_names(hostile):
    svg = ElementTree.parse(hostile / "figures" / "throughput-bars.svg")
    shown = "".join(svg.getroot().itertext())
    for name in NAMES[:5]:
        # Cut where it would leave no room for the figure.
        assert name[:29] in shown


def test_files_are_named_by_us_alone(hostile):
    names = {path.name for path in hostile.rglob("*")}
    assert all(re.fullmatch(r"[a-z0-9_-]+(\.[a-z]+)?", name) for name in names), names


@parsing.needs_latex
def test_latex_holds_no_command_of_a_record(hostile):
    text = (hostile / "tables" / "inference.tex").read_text().replace(r"\allowbreak{}", "")
    assert r"\input" not in text
    assert r"\frac" not in text
    assert r"\textbackslash{}input\{/etc/passwd\} \$x\textasciicircum{}2\_ \& 50\% \#1 \textasciitilde{} \{" in text
