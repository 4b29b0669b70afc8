"""LaTeX as a reader of a paper has it, where it is installed."""

import re
import shutil

import pytest

from tests.unit.shared import finish

PACKAGES = ("siunitx.sty", "booktabs.sty", "lmodern.sty")


def _is_installed():
    if not shutil.which("pdflatex") or not shutil.which("kpsewhich"):
        return False
    return finish("kpsewhich", *PACKAGES).stdout.count("\n") == len(PACKAGES)


needs_tex = pytest.mark.skipif(
    not _is_installed(),
    reason="LaTeX is not installed (Debian: texlive-latex-base, texlive-latex-recommended, texlive-science, lmodern)",
)


def compiled(folder, name="tables"):
    """Run pdflatex twice, as references need, and return its log, one line a message."""
    for _ in range(2):
        options = ("-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error")
        done = finish("pdflatex", *options, f"{name}.tex", cwd=folder, errors="replace")
        assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    return (folder / f"{name}.log").read_text(errors="replace")


def complaints(log):
    """What a log says of the document's looks; less than a point too wide is nobody's."""
    wide = [line for line in re.findall(r"Overfull \\hbox \((\d+\.\d+)pt", log) if float(line) > 1]
    return [*re.findall(r"LaTeX Warning: .*|Missing character.*", log), *(f"{points}pt too wide" for points in wide)]


def copied(pdf):
    """The text of a PDF, as copying it gives it."""
    if not shutil.which("pdftotext"):
        pytest.skip("pdftotext is not installed (Debian: poppler-utils)")
    return finish("pdftotext", "-layout", pdf, "-", check=True).stdout
