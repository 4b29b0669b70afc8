"""The LaTeX tables through a real pdflatex, where there is one."""

import shutil

from tests.ext.studies.tex import compiled, complaints, needs_tex
from tests.unit.recorded import failed, fitted, measured, saved

pytestmark = needs_tex


def test_the_golden_report_compiles_without_a_warning_or_a_table_that_is_too_wide(golden, tmp_path):
    shutil.copytree(golden, tmp_path / "out")
    log = compiled(tmp_path / "out")
    assert complaints(log) == []


def test_hostile_names_compile(hostile, tmp_path):
    shutil.copytree(hostile, tmp_path / "out")
    log = compiled(tmp_path / "out")
    assert "Missing character" not in log


def test_tables_longer_than_a_page_compile(report):
    out = report(saved(*(measured("torch", batch_size=n) for n in range(1, 120)), fitted(), failed()), formats="latex")
    assert r"\begin{longtable}" in (out / "tables" / "inference.tex").read_text()
    compiled(out)
