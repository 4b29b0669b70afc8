"""What the report's tests share: a report written by the command, from a record on disk."""

import contextlib
import dataclasses
import itertools
import sys
from pathlib import Path

import pytest

from fwbench.commands.cli import main
from fwbench.commands.report import _writers
from fwbench.record.measurement import Failure
from tests.unit.recorded import MACHINE, failed, fitted, measured, metric, plain, saved, write
from tests.unit.shared import finish, once

FORMATS = ",".join(_writers())
ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).with_name("golden.json")
NAMES = (
    "<script>alert(1)</script>",
    "</title><img src=x onerror=alert(1)>",
    r"\input{/etc/passwd} $x^2_ & 50% #1 ~ {",
    "| a | b | `code` *bold* [link](http://x) ![i](y) <b>",
    "$\\frac{1}{0}$",
    "quote \" and ' and &amp; ]]>",
    "umlaut ä, kanji 漢字, emoji 🙂, bell \x07",
    "../../etc/passwd",
    "=1+cmd|' /C calc'!A0",
)


_REPORT = """
import sys
from fwbench.commands.cli import main
from tests.unit.report.conftest import few_pdfs

with few_pdfs(1):
    assert main(["report", *sys.argv[1:]]) == 0
print(*sys.modules)
"""


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """A folder with the golden record's report in `out`, and in `imported` the modules that writing it has imported."""

    def write_report(folder):
        done = finish(sys.executable, "-W", "error", "-c", _REPORT, GOLDEN, "--out", folder / "out", cwd=ROOT)
        assert done.returncode == 0, done.stderr
        (folder / "imported").write_text(done.stdout.splitlines()[-1])

    return once(tmp_path_factory, "golden", write_report)


@pytest.fixture(scope="session")
def golden(reported):
    """The folder of the golden record's report, in every format."""
    return reported / "out"


@contextlib.contextmanager
def few_pdfs(number):
    """Of a report's figures as PDF the first ones are drawn, so many, and of the others there are the names alone."""
    from matplotlib.figure import Figure

    draw, drawn = Figure.savefig, itertools.count()

    def named(figure, file, **options):
        if options["format"] != "pdf" or next(drawn) < number:
            draw(figure, file, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", named)
        yield


@pytest.fixture
def report(tmp_path, capsys):
    """Write a report of records as JSON primitives, a list for a journal, and return its folder.

    Of figures as PDF, whose fonts take most of its time, it draws as many as `pdfs` says; of the others it writes the
    names alone.
    """

    def run(*records, formats=FORMATS, pdfs=0):
        endings = {dict: "json", list: "jsonl"}
        paths = [write(tmp_path / f"{n}.{endings[type(record)]}", record) for n, record in enumerate(records)]
        with few_pdfs(pdfs):
            assert main(["report", *map(str, paths), "--out", str(tmp_path / "out"), "--format", formats]) == 0
        return tmp_path / "out"

    return run


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """The folder of a report in which every place that a record names something is named badly."""
    return once(tmp_path_factory, "hostile", write_hostile) / "out"


def write_hostile(folder):
    measurements = []
    for name in NAMES:
        memory = {"host_peak_memory": metric(1e6, source=name), "compile_time": metric(1.0, source=name)}
        measurements.append(measured("torch", name, metrics=memory, settings={name: name}, versions={name: name}))
        measurements.append(measured(name, name, throughput=200.0, parity={"weights": name}))
        if name in (NAMES[0], NAMES[2], NAMES[6]):
            measurements.append(fitted("torch", model=name, data=name, variant=name))
        bad = Failure("error", f"{name}\n{name}", name, f"Traceback {name}")
        measurements.append(dataclasses.replace(failed(model=name), failure=bad))
    machine = dataclasses.replace(MACHINE, cpu=NAMES[0], kernel=NAMES[1])
    record = saved(*measurements, machine=machine, commit_info={"id": NAMES[0], "branch": NAMES[3], "dirty": True})
    record["benchmarks"].append(plain(f"tests/y.py::{NAMES[0]}"))
    # The names are drawn as text in every figure, and read from one of each format.
    with few_pdfs(1):
        assert main(["report", str(write(folder / "record.json", record)), "--out", str(folder / "out")]) == 0
