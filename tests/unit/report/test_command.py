"""The command line: what is read by default, what is refused and how."""

import csv
import os
import subprocess
import sys

import pytest

from fwbench.commands.cli import main
from fwbench.commands.report import progress
from tests.unit.recorded import journal, measured, plain, saved, write
from tests.unit.report.conftest import GOLDEN


def refused(capsys, *arguments):
    """The one sentence with which the command ends."""
    assert main(["report", *map(str, arguments)]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fwbench: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "is not JSON"),
        ("[]", "no record"),
        ('{"benchmarks": []}', "no record of pytest-benchmark"),
        ("", "not JSON"),
    ],
)
def test_a_corrupt_or_foreign_file_is_one_sentence_with_its_name(tmp_path, capsys, content, fault):
    path = tmp_path / "broken.json"
    path.write_text(content)
    sentence = refused(capsys, GOLDEN, path, "--out", tmp_path / "out")
    assert "broken.json" in sentence
    assert fault in sentence
    assert not (tmp_path / "out").exists()


def test_a_file_without_our_measurements_has_nothing_to_report(tmp_path, capsys):
    foreign = saved(benchmarks=[plain()], machine_info={})
    sentence = refused(capsys, write(tmp_path / "x.json", foreign), "--out", tmp_path / "out")
    assert "no measurement of fwbench" in sentence


def test_nothing_measured_yet(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "does not exist" in refused(capsys)


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    assert main(["report", str(GOLDEN), "--out", str(tmp_path / "out"), "--format", "csv"]) == 4
    assert "cannot be written" in capsys.readouterr().err


def reported_by_default(tmp_path, monkeypatch, **files):
    """The throughputs in the report of a storage folder that holds these runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".benchmarks").mkdir(exist_ok=True)
    for name, run in files.items():
        write(tmp_path / ".benchmarks" / f"{name}.{'jsonl' if isinstance(run, list) else 'json'}", run)
    assert main(["report", "--format", "csv,markdown"]) == 0
    (row,) = csv.DictReader((tmp_path / "report" / "tables" / "inference.csv").read_text().splitlines())
    return row["throughput/s [1/s]"]


def test_the_newest_saved_run_is_the_default_and_a_newer_journal_is_named(tmp_path, monkeypatch):
    older, newer = (
        saved(measured(throughput=speed), datetime=f"2026-11-2{speed:.0f}T10:00:00+00:00") for speed in (1, 2)
    )
    unsaved = journal(measured(throughput=3.0), started="2026-11-23T10:00:00+00:00")
    assert reported_by_default(tmp_path, monkeypatch, a=newer, b=older, c=unsaved) == "2.0"
    said = (tmp_path / "report" / "tables.md").read_text()
    assert "a newer run was not saved: to read it, name its journal, .benchmarks/c.jsonl" in said


def test_neither_a_duet_saved_or_not_nor_its_pairs_alone_are_the_default(tmp_path, monkeypatch):
    """Where no run was saved, the newest journal of one is."""
    duet = measured(throughput=9.0, duet={"base": "HEAD~1", "head": "HEAD"})
    late = "2026-11-24T10:00:00+00:00"
    pairs = journal(started="2026-11-25T10:00:00+00:00", against={})
    runs = {"a": saved(duet, datetime=late), "b": journal(duet, started=late), "c": journal(measured(throughput=1.0))}
    assert reported_by_default(tmp_path, monkeypatch, **runs, d=pairs) == "1.0"


def test_a_folder_of_duets_alone_holds_no_run(tmp_path, capsys):
    write(tmp_path / "a.jsonl", journal(measured(duet={"base": "HEAD~1", "head": "HEAD"})))
    assert "holds no records" in refused(capsys, tmp_path)


def test_a_newer_duet_is_no_run_that_was_not_saved(tmp_path, monkeypatch):
    """Neither that of one that was played, nor that of one which was ended with pairs alone."""
    duet = journal(measured(duet={"base": "HEAD~1", "head": "HEAD"}), started="2026-11-24T10:00:00+00:00")
    pairs = journal(started="2026-11-25T10:00:00+00:00", against={"revision": "HEAD"})
    (tmp_path / ".benchmarks" / "journal").mkdir(parents=True)
    write(tmp_path / ".benchmarks" / "journal" / "p.jsonl", pairs)
    assert reported_by_default(tmp_path, monkeypatch, a=saved(measured(throughput=1.0)), b=duet) == "1.0"
    assert "was not saved" not in (tmp_path / "report" / "tables.md").read_text()


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (saved(measured(duet={"base": "HEAD~1", "head": "HEAD"})), "compares two revisions and no lanes"),
        (journal(measured(duet={"base": "HEAD~1", "head": "HEAD"})), "--fwbench-summary=FILE"),
        (journal(against={"revision": "HEAD"}), "compares two revisions and no lanes"),
    ],
)
def test_a_duet_that_is_named_is_refused_in_a_sentence(tmp_path, capsys, record, sentence):
    path = write(tmp_path / ("a.json" if isinstance(record, dict) else "a.jsonl"), record)
    assert sentence in refused(capsys, path, "--out", tmp_path / "out")


def test_whoever_stops_reading_the_output_sees_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "fwbench", "list"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_unknown_format_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["report", "--format", "html,docx"])
    assert ended.value.code == 2
    assert "unknown format 'docx'" in capsys.readouterr().err


def test_without_the_extra_the_command_says_what_to_install(tmp_path, capsys, monkeypatch):
    # A test before this one may have imported it, and so made it an attribute of the package.
    monkeypatch.delattr("fwbench.report.figures", raising=False)
    monkeypatch.setitem(sys.modules, "fwbench.report.figures", None)
    assert main(["report", str(GOLDEN), "--out", str(tmp_path)]) == 4
    assert "pip install 'fwbench[report]'" in capsys.readouterr().err
    assert main(["report", str(GOLDEN), "--out", str(tmp_path), "--format", "markdown,csv"]) == 0


def test_who_waits_long_is_told_what_for(capsys):
    now = [0.0]
    tell = progress(lambda: now[0])
    tell("reading x.json")
    now[0] = 5.5
    tell("writing the page")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "fwbench: writing the page\n")


def test_each_file_figure_and_page_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fwbench.commands.report._PATIENCE", -1.0)
    path = write(tmp_path / "x.json", saved(measured("torch"), measured("jax")))
    assert main(["report", str(path), "--out", str(tmp_path / "out"), "--format", "html"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"fwbench: reading {path}"
    assert {"fwbench: writing the figure ratios", "fwbench: writing the page"} <= set(told)


def test_no_framework_is_imported(reported):
    imported = set((reported / "imported").read_text().split())
    assert "matplotlib" in imported
    assert not {"torch", "jax", "tensorflow", "matplotlib.pyplot"} & imported
