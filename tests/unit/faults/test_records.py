"""Records that are damaged, doubled, wrongly dated or several copies of one run: what is made of them."""

import contextlib
import dataclasses
import io
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fwbench.commands.cli import main
from fwbench.compare import evidence
from fwbench.compare.agreement import agreement
from fwbench.compare.cases import settings
from fwbench.compare.matching import distinct
from fwbench.errors import UserError
from fwbench.meters.latency import percentiles
from fwbench.plugin.session import Session
from fwbench.record import journal as journals
from fwbench.record.copies import Copies
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Failure
from fwbench.record.quantiles import quantile
from fwbench.record.reading import read, runs
from fwbench.report.summary import cautions
from tests.unit.recorded import MACHINE, failed, journal, measured, metric, plain, saved, write
from tests.unit.shared import ALONE, extension, needs
from tests.unit.suites import benchmarks, run
from tests.unit.suites import in_process as in_this_process
from tests.unit.suites import suite as noops
from tests.unit.test_agreement import lane
from tests.unit.test_duet_gate import in_duet, playing, project
from tests.unit.test_fuzz import rich
from tests.unit.test_records import changed

kept = extension("resume.kept")

__all__ = ["noops", "playing", "project"]

ONLY = ("--benchmark-only", "--fwbench-minutes=0", "--fwbench-set=patience=0", "--benchmark-max-time=0")


def command(*arguments):
    """Exit code, output and errors of a command."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = main(list(map(str, arguments)))
    return code, out.getvalue(), errors.getvalue()


# Several copies of one run

COPIES = "several copies of one run"


def turns(count):
    return tuple({"begun": float(number), "call": [0.5], "latency": [0.5]} for number in range(count))


def lanes(rounds, at=1.0, **fields):
    """Two lanes of one run after so many rounds of turns; another number begins another run."""
    return [measured(name, turns=turns(rounds), stages={"latency": at}, **fields) for name in ("torch", "jax")]


def found(paths):
    """What a report over these files rests on: by lane and run, how many rounds and samples."""
    (setting,) = settings([read(path) for path in paths])
    return {
        case.workload.lane: [(number, len(m.turns), len(m.samples)) for number, m in case.replicates]
        for case in setting.cases
    }


def test_the_fullest_copy_of_a_run_counts_in_whatever_order_the_files_come(tmp_path, fault):
    """An older copy of the journal, the journal, the saved run without its rounds' data."""
    old = write(tmp_path / "a.jsonl", journal(*lanes(2)))
    whole = write(tmp_path / "b.jsonl", journal(*lanes(2), *lanes(5)))
    file = write(tmp_path / "c.json", saved(*lanes(5), data=False))
    for number, paths in enumerate(itertools.permutations((old, whole, file))):
        for at, path in enumerate(paths):
            os.utime(path, (1.7e9 + at + number,) * 2)
        assert found(paths) == {"torch": [(0, 5, 3)], "jax": [(0, 5, 3)]}
        # The saved run alone knows the commit.
        (record,) = distinct(map(read, paths))
        assert record.commit["id"] == "f00d"
    code, out, _ = command("report", old, whole, "--out", tmp_path / "out", "--format=csv")
    assert code == 0
    told = "`fwbench report` over an older copy of a journal with 2 rounds, and the journal with 5, in any order"
    fault(COPIES, told, out)


def test_a_resumed_runs_measurements_are_the_first_runs(tmp_path, fault):
    first = write(tmp_path / "a.jsonl", journal(*lanes(2), started="2026-11-21T08:00:00+00:00"))
    other = lanes(0, at=2.0, batch_size=8)
    resumed = write(tmp_path / "b.jsonl", journal(*lanes(5), *other, started="2026-11-21T09:00:00+00:00"))
    for paths in ((first, resumed), (resumed, first)):
        (record,) = distinct(map(read, paths))
        assert sorted(len(m.turns) for m in record.measurements) == [0, 0, 5, 5]
    fault(COPIES, "a run that was ended, and the one that went on with it and played more rounds")


def test_a_copy_from_before_a_second_attempt_is_the_same_measurement(tmp_path, fault):
    one, two = (measured(stages={"latency": at}, metrics={"latency_p50": metric(at)}) for at in (1.0, 2.0))
    old = write(tmp_path / "a.jsonl", journal(one))
    new = write(tmp_path / "b.json", saved(two.beside(one)))
    for paths in ((old, new), (new, old)):
        (record,) = distinct(map(read, paths))
        assert [m.value("latency_p50") for m in record.measurements] == [2.0]
    fault(COPIES, "a copy of the journal from before a disturbed benchmark was measured again")


def test_a_run_whose_copy_is_damaged_keeps_its_pairs(tmp_path, fault):
    """The rounds of both lanes are one run's, though each file holds another lane whole."""
    old = write(tmp_path / "a.jsonl", journal(*lanes(2)))
    new = journal(*lanes(5))
    new[1]["samples"] = ["x"]
    new = write(tmp_path / "b.jsonl", new)
    for paths in ((old, new), (new, old)):
        assert found(paths) == {"torch": [(0, 2, 3)], "jax": [(0, 5, 3)]}
    fault(COPIES, "an older copy of a journal beside the journal, of which one line is damaged")


def test_the_fullest_of_copies_is_the_newest(tmp_path, fault):
    (tmp_path / "journal").mkdir()
    old = write(tmp_path / "journal" / "z-old.jsonl", journal(*lanes(2)))
    new = write(tmp_path / "journal" / "a-new.jsonl", journal(*lanes(2), *lanes(5)))
    for paths in ((old, new), (new, old)):
        for at, path in enumerate(paths):
            os.utime(path, (1.7e9 + at,) * 2)
        assert (read(tmp_path).path, journals.newest(tmp_path / "journal")) == (new, new)
    fault(COPIES, "`fwbench report` and --fwbench-resume where the journal and an older copy lie side by side")


# Numbers that no call had

NEVER = "numbers that no call had"


@pytest.mark.parametrize("count", [5, 6, 59, 60, 299, 300, 1000])
def test_a_percentile_is_the_time_of_a_call(count):
    samples = [float(number) for number in range(count, 0, -1)]
    for name, found in percentiles(samples).items():
        if found.value is not None:
            share = int(name.removeprefix("latency_p"))
            assert found.value in samples
            # At least so many are not above it, and no smaller one has that.
            assert sum(sample <= found.value for sample in samples) * 100 >= share * count
            assert sum(sample < found.value for sample in samples) * 100 < share * count


def test_calls_of_two_speeds_have_a_median_that_one_had_and_are_told(tmp_path, fault):
    samples = (0.001,) * 30 + (0.009,) * 30
    found = percentiles(samples)
    assert found["latency_p50"].value == 0.001
    assert statistics.median(samples) == pytest.approx(0.005)
    m = measured(samples=samples, metrics=found)
    (note,) = [note for note in cautions([m]) if "two speeds" in note]
    assert [
        note for note in cautions([measured(samples=(0.001, 0.0011) * 30, metrics=found)]) if "speeds" in note
    ] == []
    fault(NEVER, "half of the calls take 1 ms, half 9 ms: p50 was 5 ms", note)
    _, out, _ = command("compare", *[write(tmp_path / "x.json", saved(m))] * 2)
    assert "1.00 ms" in out
    assert "5.00 ms" not in out
    fault(NEVER, "the same in `fwbench compare`, from its samples")


def test_a_duets_sides_have_a_calls_time(fault):
    assert quantile([0.001, 0.009] * 10, 50) == 0.001
    fault(NEVER, "the same in a duet's table and in its record")


def sketched(value):
    """A lane whose first output is such a number."""
    return {"output": np.array([value, 1.0])}


@pytest.mark.parametrize(
    ("one", "other", "who"), [(1.0, math.nan, "jax"), (math.inf, 1.0, "torch"), (math.nan,) * 2 + ("torch and in jax",)]
)
def test_outputs_that_are_no_numbers_are_told_with_their_lanes(one, other, who, fault):
    found = agreement(lane("torch", sketched(one)), lane("jax", sketched(other)))
    assert found.agrees is False
    assert str(found).endswith(f"(NaN or infinity) in {who}")
    fault("results that are not finite", f"outputs of {one} and {other}: they differed 'by nan'", str(found))


# Dates that are wrong

DATES = "dates that are wrong"
AHEAD = (datetime.now(UTC) + timedelta(days=3650)).isoformat()


def told(path):
    (note,) = read(path).notes
    return note


def test_a_journal_dated_in_the_future_is_not_the_newest(tmp_path, fault):
    folder = tmp_path / "journal"
    folder.mkdir()
    old = write(folder / "z.jsonl", journal(measured(), started=AHEAD))
    new = write(folder / "a.jsonl", journal(measured(), started="2025-11-21T09:00:00+00:00"))
    os.utime(old, (1.6e9,) * 2)
    assert (journals.newest(folder), read(tmp_path).path) == (new, new)
    assert read(old).made.timestamp() == 1.6e9
    fault(DATES, "a journal is dated ten years ahead", told(old))
    # The clock that dated the file was wrong, too.
    os.utime(old, (4e9,) * 2)
    assert (journals.newest(folder), read(tmp_path).path) == (new, new)
    fault(DATES, "so is its file", told(old))


@pytest.mark.parametrize(
    "date",
    [AHEAD, "1970-01-01T00:04:00+00:00", "yesterday", None, ["x"] * 10_000, 5],
    ids=["ahead", "before the suite", "a word", "none", "a list", "a number"],
)
def test_a_saved_run_with_such_a_date_is_read_and_counts_by_its_files_date(tmp_path, date, fault):
    path = write(tmp_path / "x.json", saved(measured(), datetime=date))
    os.utime(path, (1.6e9,) * 2)
    assert (read(path).made.timestamp(), len(read(path).measurements)) == (1.6e9, 1)
    assert "the date of the file counts" in told(path)
    assert "\n" not in told(path)
    new = write(tmp_path / "y.json", saved(measured(), datetime="2025-11-21T09:00:00+00:00"))
    assert runs(tmp_path) == [path, new]
    fault(DATES, f"a saved run is dated {date!s:.40}", told(path))


def test_a_journal_named_for_the_future_does_not_plan_every_run(noops, fault):
    """Plans read the newest journals first, which were those with the highest names."""
    in_this_process(noops, *ONLY)
    (path,) = noops.path.glob(".benchmarks/journal/*.jsonl")
    lines = list(map(json.loads, path.read_text().splitlines()))
    wrong = write(path.with_name("29990101T000000-1.jsonl"), [{**lines[0], "started": AHEAD}, *lines[1:]])
    os.utime(wrong, (1.6e9,) * 2)
    assert journals.oldest_first(path.parent) == [wrong, path]
    fault(DATES, "a journal whose name is of the year 2999")


# A damaged journal

JOURNAL = "a damaged journal"


def journal_of_three(tmp_path, change):
    """A journal of three benchmarks, after a change to its lines, as bytes."""
    lines = [json.dumps(line).encode() for line in journal(*(measured(batch_size=size) for size in (1, 2, 3)))]
    change(lines)
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n".join([*lines, b""]))
    return path


@pytest.mark.parametrize(
    ("change", "tried"),
    [
        (lambda line: line.replace(b"quick", b"qu\xffck"), "a byte that is not UTF-8"),
        (lambda line: line.replace(b'"', b"\xc3", 1), "the same outside a text"),
        (lambda line: line[:50], "half a line in the middle"),
        (lambda line: b"\0" * 100, "zeros, as a file system leaves them after a crash"),
        (lambda line: b"[" * 10_000, "a line that nests too deeply"),
    ],
)
def test_a_damaged_line_costs_its_own_record(tmp_path, change, tried, fault):
    path = journal_of_three(tmp_path, lambda lines: lines.insert(2, change(lines.pop(2))))
    record = read(path)
    assert [m.workload.batch_size for m in record.measurements] == [1, 3]
    (note,) = record.told
    assert "line 3" in note
    code, _, _ = command("report", path, "--out", tmp_path / "out", "--format=markdown")
    assert code == 0
    assert "line 3" in (tmp_path / "out" / "tables.md").read_text()
    # A damaged benchmark never makes a gate pass.
    assert command("compare", path, path)[0] == UserError.EXIT_CODE
    fault(JOURNAL, tried, note, lost="that record")


def test_a_record_that_is_written_twice_counts_once(tmp_path, fault):
    path = journal_of_three(tmp_path, lambda lines: lines.extend(lines[1:]))
    assert [m.workload.batch_size for m in read(path).measurements] == [1, 2, 3]
    assert command("compare", path, path)[0] == 0
    fault(JOURNAL, "every record is there twice")


def pair(number, **changes):
    """A line of a duet's journal."""
    of_sides = lambda value: dict.fromkeys(("base", "head"), value)  # noqa: E731
    made = {
        "differences": {"latency": 0.001 * number},
        "rounds": of_sides([0.1, 0.2]),
        "values": of_sides({"latency": 0.1}),
        "described": of_sides({"settings": {}, "versions": {}}),
        "drift": 0.0,
        "seconds": 2.0,
        **changes,
    }
    return {"stage": "screening", "workload": measured().workload.to_json(), "pair": made}


@needs("resume")
@pytest.mark.parametrize(
    "change",
    [
        {"differences": {}},
        {"differences": {"latency": "x"}},
        {"differences": {"latency": math.nan}},
        {"differences": {"latency": 0.1, "peak_memory": 0.1}},
        {"rounds": {"base": [0.1]}},
        {"values": {"base": {"latency": 0.0}, "head": {"latency": 0.1}}},
        {"described": {"base": {}, "head": {}}},
        {"seconds": -1.0},
        {"drift": None},
    ],
)
def test_a_pair_that_is_none_is_refused(change):
    assert kept.pair(pair(1))[2].seconds == 2.0
    with pytest.raises(ValueError, match=r"[a-z]"):
        kept.pair(pair(1, **change))


@needs("resume")
@pytest.mark.parametrize(
    "line", [None, 3, [], {}, {"stage": "x"}, {**pair(1), "stage": "x"}, {**pair(1), "workload": {}}]
)
def test_what_is_no_pair_is_refused(line):
    with pytest.raises(ValueError, match=r"[a-z]"):
        kept.pair(line)


def suite_line(number, **changes):
    one = {"id": "x", "planted": 0.0, "kind": "unchanged", "seconds": [1.0, 0.0]}
    one["rounds"] = [{"base": [0.1], "head": [0.1]}]
    return {"slowdown": 0.0, "loaded": False, "number": number, "other_load": 0.0, "benchmarks": [one], **changes}


def test_a_self_tests_file_loses_its_damaged_lines_alone(tmp_path, fault):
    header = {"definition": "x", "machine": {"device": "cpu", "cpu": "Some CPU", "threads": 2}}
    path = write(tmp_path / "suites.jsonl", [header, suite_line(0), suite_line(1), suite_line(1)])
    bad = [b"{", b'{"slowdown": 0}', json.dumps(suite_line(2, benchmarks=[{}])).encode(), b"\xff"]
    path.write_bytes(path.read_bytes() + b"\n".join(bad) + b"\n")
    found = evidence.read(path)
    assert ([suite["number"] for suite in found.suites], len(found.faults)) == ([0, 1], 4)
    tried = "a self-test's file with lines that are damaged, and one that is there twice"
    fault(JOURNAL, tried, f"Left out: {found.faults[-1]}", lost="the damaged suites")
    # `fwbench compare` reads it, too.
    write(path, [{**header, "machine": {}}])
    assert evidence.state(MACHINE, path) == evidence.UNTESTED


# A damaged saved record

SAVED = "a damaged saved record"


@pytest.mark.parametrize(
    ("at", "value", "tried"),
    [
        (("name",), "qu\xff", "a name"),
        (("extra_info", "settings", "caution"), "x\xff", "a setting"),
        (("extra_info", "workload", "model"), "x\xff", "the model"),
    ],
)
def test_a_byte_that_is_not_utf_8_costs_one_benchmark(tmp_path, at, value, tried, fault):
    record = changed(saved(measured(batch_size=1), measured(batch_size=2)), ("benchmarks", 0, *at), value)
    del record["benchmarks"][0]["fullname"]
    path = tmp_path / "x.json"
    path.write_bytes(json.dumps(record, ensure_ascii=False).encode("latin-1"))
    found = read(path)
    assert [m.workload.batch_size for m in found.measurements][-1:] == [2]
    assert (len(found.measurements), len(found.damaged)) == (1, 1)
    fault(SAVED, f"a byte that is not UTF-8 in {tried}", found.told[0], lost="that benchmark")


def test_a_benchmark_that_a_file_holds_twice_counts_once(tmp_path, fault):
    record = saved(measured(), failed(), benchmarks=[])
    record["benchmarks"] = [*saved(measured())["benchmarks"] * 2, plain(), plain()]
    record["fwbench"]["failures"] *= 2
    found = read(write(tmp_path / "x.json", record))
    assert (len(found.measurements), len(found.plain), found.damaged) == (2, 1, ())
    fault(SAVED, "a benchmark, a plain one and a failure are there twice")


UNKNOWN = {
    **{"mode": "serve", "lane": "mxnet", "precision": "fp16"},
    **{"optimizer": "lion", "weights": "mine", "data": "coco"},
}


@pytest.mark.slow
def test_what_this_fwbench_does_not_know_is_shown_under_its_own_name(tmp_path, fault):
    numbers = {"compute_ceiling": metric(1e11), "memory_bandwidth": metric(1e10), "model_flops": metric(1e8)}
    program = Fingerprint(form="HLO", digest="abc", operators={"add": 1}, flops=8.0, bytes_accessed=1e6)
    record = saved(
        *(
            dataclasses.replace(m, metrics={**m.metrics, **numbers}, duet={}, program=program)
            for _ in UNKNOWN
            for m in (rich("torch"), rich("jax"))
        )
    )
    for number, (field, value) in enumerate(UNKNOWN.items()):
        mode = "train_step" if field == "optimizer" else "fit" if field == "data" else "inference"
        for benchmark in record["benchmarks"][2 * number : 2 * number + 2]:
            benchmark["extra_info"]["workload"] |= {"mode": mode, field: value}
    path = write(tmp_path / "x.json", record)
    code, out, errors = command("report", path, "--out", tmp_path / "out")
    assert (code, errors) == (0, "")
    pages = [(tmp_path / "out" / name).read_text() for name in ("tables.md", "report.html")]
    assert [value for value in UNKNOWN.values() for page in pages if value not in page] == []
    assert command("compare", path, path)[0] == 0
    for field, value in UNKNOWN.items():
        fault(SAVED, f"{field} {value!r}, which this fwbench does not know", out.splitlines()[0])


# A test that is run again

RERUN = "a test that is run again"

# What pytest-rerunfailures does.
AGAIN = """
from pathlib import Path
from _pytest.runner import runtestprotocol

pytest_plugins = ["fwbench.plugin"]

def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(2):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(report.failed for report in reports) or attempt:
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            break
        Path("again").touch()
        item._initrequest()
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""


@pytest.mark.parametrize(
    ("crashes", "tried"),
    [(True, "a benchmark crashed"), (False, "a test failed after its benchmark was measured")],
)
def test_the_last_outcome_of_a_test_counts(noops, monkeypatch, crashes, tried, fault):
    asked = []

    def once(session, workload, *rest):
        asked.append(workload.batch_size)
        made = dataclasses.replace(measured(), workload=workload)
        if crashes and asked.count(1) == 1 and workload.batch_size == 1:
            return dataclasses.replace(made, samples=(), failure=Failure("crashed", "killed by SIGKILL"))
        return made

    monkeypatch.setattr(Session, "run", once)
    noops.makeconftest(AGAIN)
    source = benchmarks()
    if not crashes:
        source = source.replace(
            "    fwbench_measure()\n", "    fwbench_measure()\n    assert __import__('os').path.exists('again')\n", 1
        )
    noops.makepyfile(test_suite=source)
    result = in_this_process(noops, *ONLY, "--benchmark-json=x.json", "--benchmark-save-data")
    result.assert_outcomes(passed=3)
    assert (result.ret, asked) == (0, [1, 1, 2, 3])
    path = noops.path / "x.json"
    saved_run = json.loads(path.read_text())
    assert saved_run["fwbench"]["failures"] == []
    assert len(saved_run["benchmarks"]) == 3
    (log,) = noops.path.glob(".benchmarks/journal/*.jsonl")
    for record in (read(path), read(log)):
        assert [(m.workload.batch_size, len(m.attempts), m.failure) for m in record.measurements] == [
            (1, 1, None),
            (2, 0, None),
            (3, 0, None),
        ]
    (note,) = [line for line in result.outlines if "run again" in line]
    assert len(Copies([m for record in (read(path), read(log)) for m in record.measurements]).kept) == 3
    # What prices the harness is not compared.
    path.write_text(path.read_text().replace('"lane": "noop"', '"lane": "torch"'))
    code, out, _ = command("compare", path, path)
    assert (code, "failed" in out) == (0, False)
    fault(RERUN, f"{tried}, and passed when it was run again", note)


def test_a_test_that_fails_again_has_failed_once(noops, monkeypatch, fault):
    monkeypatch.setattr(Session, "run", lambda session, workload, *rest: failed(lane="noop", model="noop"))
    noops.makeconftest(AGAIN)
    noops.makepyfile(test_suite=benchmarks(sizes=(1,)))
    result = in_this_process(noops, *ONLY, "--benchmark-json=x.json")
    result.assert_outcomes(failed=1)
    (log,) = noops.path.glob(".benchmarks/journal/*.jsonl")
    (m,) = read(log).measurements
    assert m.failure.kind == "crashed"
    fault(RERUN, "a benchmark crashed both times", f"{m.failure}")


# Text that is not UTF-8

TEXT = "text that is not UTF-8"


@needs("resume")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="variables are bytes")
def test_variables_that_are_not_utf_8_make_records_that_can_be_read(noops, monkeypatch, fault):
    """In real processes; and a run with the same variables can be resumed and compared."""
    monkeypatch.setenv("OMP_DISPLAY_ENV", os.fsdecode(b"FALSE\xff"))
    monkeypatch.setenv("XLA_FLAGS", os.fsdecode(b"--xla_dump_to=/tmp/\xe9"))
    assert run(noops, *ONLY, "--benchmark-json=x.json", "--benchmark-save-data").ret == 0
    (log,) = noops.path.glob(".benchmarks/journal/*.jsonl")
    for record in (read(log), read(noops.path / "x.json")):
        assert ([m.workload.batch_size for m in record.measurements], record.damaged) == ([1, 2, 3], ())
        assert record.measurements[0].settings["OMP_DISPLAY_ENV"] == r"FALSE\udcff"
    assert command("report", log, "--out", noops.path / "out", "--format=markdown")[0] == 0
    result = run(noops, *ONLY, "--fwbench-resume")
    result.stdout.fnmatch_lines(["fwbench: 3 of 3 benchmarks taken from *"])
    fault(
        TEXT,
        "`OMP_DISPLAY_ENV=$'FALSE\\xff'` and `XLA_FLAGS=$'...\\xe9'`, read, reported, resumed",
        result.outlines[-2],
    )
    result = run(noops, *ONLY, "--fwbench-gate", "--benchmark-compare=x.json", "--fwbench-fail=latency:100000%")
    assert "differs" not in result.stdout.str()
    fault(TEXT, "the same against a saved record under --fwbench-gate")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes")
def test_a_folder_whose_name_is_not_utf_8(noops, fault):
    folder = os.fsdecode(b"tests-\xe9")
    (noops.path / folder).mkdir()
    (noops.path / "test_suite.py").rename(noops.path / folder / "test_suite.py")
    options = (*ALONE, *ONLY, "--benchmark-json=x.json", "--benchmark-autosave", folder)
    done = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=noops.path, capture_output=True)
    assert (done.returncode, b"Traceback" in done.stdout) == (0, False)
    found = read(noops.path / "x.json")
    assert (len(found.measurements), found.damaged) == (3, ())
    fault(TEXT, "the folder of the tests has a name that is not UTF-8")


# A duet's journal, in real runs of pytest over pairs that are played by nobody


# What becomes of a line of a pair.
DAMAGES = {
    "a line is cut off in the middle": lambda line: b'{"stage": "screening"',
    "a byte is not UTF-8": lambda line: line.replace(b"stage", b"st\xffge", 1),
    "a difference is no number": lambda line: line.replace(b"0.001", b"NaN"),
}


@needs("resume")
@pytest.mark.parametrize(
    ("damages", "again"),
    [
        (DAMAGES, 0),
        ({"a line is of another kind, and a pair is doubled": lambda line: b"[1]"}, 1),
        ({}, 4),
    ],
    ids=["damaged", "another kind", "twice"],
)
def test_a_duet_goes_on_with_the_pairs_that_are_whole_and_each_once(project, playing, damages, again, fault):
    in_duet(project)
    (path,) = (project.path / ".benchmarks" / "journal").glob("*.jsonl")
    lines = path.read_bytes().splitlines()
    for number, damage in enumerate(damages.values(), 2):
        lines[number] = damage(lines[number])
    taken = 4 - len(damages)
    path.write_bytes(b"\n".join([*lines, *lines[len(lines) - again :], b""]))
    playing.last = None
    result = in_duet(project, "--fwbench-resume", "--benchmark-json=x.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"fwbench: {taken} pair* taken from .benchmarks/journal/*"])
    # The duet needs nine.
    assert playing.played == 4 + 9 - taken
    screened = [
        benchmark["extra_info"]["duet"]["screening"]
        for benchmark in json.loads((project.path / "x.json").read_text())["benchmarks"]
    ]
    assert list(map(len, screened)) == [3, 3, 3]
    said = [line for line in result.outlines if line.startswith("fwbench: left out: line ")]
    assert [line.split(":")[2] for line in said] == [f" line {number}" for number in range(3, 3 + len(damages))]
    for tried, line in zip(damages or ["every pair is there twice"], said or [""], strict=True):
        fault(JOURNAL, f"in a duet's journal {tried}; then --fwbench-resume", line)
