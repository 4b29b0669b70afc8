"""The LaTeX tables through a real pdflatex, where there is one."""

import shutil
import subprocess

import pytest

from tests.unit.recorded import failed, fitted, measured, saved

pytestmark = pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="pdflatex is not installed (Debian: texlive-latex-base and texlive-latex-recommended)",
)


def compiled(folder):
    """Run pdflatex twice, as references need, and return its log."""
    for _ in range(2):
        done = subprocess.run(
            ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
        )
        assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "tables.pdf").read_bytes().startswith(b"%PDF")
    return (folder / "tables.log").read_text(errors="replace")


def test_the_golden_report_compiles_without_a_warning(golden, tmp_path):
    shutil.copytree(golden, tmp_path / "out")
    log = compiled(tmp_path / "out")
    assert "Missing character" not in log
    assert "LaTeX Warning" not in log, log


def test_hostile_names_compile(hostile, tmp_path):
    shutil.copytree(hostile, tmp_path / "out")
    log = compiled(tmp_path / "out")
    assert "Missing character" not in log


def test_tables_longer_than_a_page_compile(report):
    out = report(saved(*(measured("torch", batch_size=n) for n in range(1, 120)), fitted(), failed()), formats="latex")
    assert r"\begin{longtable}" in (out / "tables" / "inference.tex").read_text()
    compiled(out)
