"""The door to records: what it lets in is what was measured, and what it keeps out it names in one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fwbench.errors import UserError
from fwbench.record.journal import SCHEMA
from fwbench.record.reading import read, runs
from tests.unit.recorded import MACHINE, failed, journal, measured, metric, plain, saved, write

# What a clone has under `.benchmarks/` (docs/ci.md).
STORAGE = Path(__file__).parents[2] / ".benchmarks"
KEPT = [*STORAGE.glob("0001_readme.json"), *STORAGE.glob("baselines/*")]

MEASURED = (measured(), measured("jax", throughput=150.0), failed(batch_size=8))


def test_a_saved_run_gives_back_every_measurement_and_failure(tmp_path):
    record = read(write(tmp_path / "x.json", saved(*MEASURED)))
    assert record.measurements == MEASURED
    assert (record.schema, record.profile, record.machine) == (SCHEMA, "quick", MACHINE)
    assert (record.commit["id"], record.made.isoformat()) == ("f00d", "2026-11-21T09:10:10.493063+00:00")
    assert record.plain == {}


def test_a_run_saved_without_its_rounds_has_metrics_and_no_samples(tmp_path):
    (found,) = read(write(tmp_path / "x.json", saved(measured(), data=False))).measurements
    assert (found.samples, found.value("throughput")) == ((), 100.0)


def test_a_journal_gives_back_the_same(tmp_path):
    record = read(write(tmp_path / "x.jsonl", journal(*MEASURED)))
    assert record.measurements == MEASURED
    assert (record.machine, record.profile, record.notes) == (MACHINE, "quick", ())
    assert record.made.isoformat() == "2026-11-21T09:05:35+00:00"


def test_a_journal_cut_off_in_its_last_line_gives_what_is_whole_and_says_so(tmp_path):
    path = write(tmp_path / "x.jsonl", journal(*MEASURED))
    path.write_text(path.read_text()[:-100])
    record = read(path)
    assert record.measurements == MEASURED[:2]
    assert "cut off" in record.notes[0]


def test_somebody_elses_benchmarks_come_by_their_full_name(tmp_path):
    foreign = saved(benchmarks=[plain()], machine_info={"node": "vm"}, datetime="2026-11-21T09:10:10")
    del foreign["fwbench"]
    record = read(write(tmp_path / "x.json", foreign))
    sort = record.plain["tests/y.py::test_sort"]
    assert (sort.samples, sort.stats["median"], sort.group) == ((0.002, 0.0022), 0.002, "sorting")
    assert (record.schema, record.machine, record.profile, record.measurements) == (None, None, None, ())
    assert record.made.utcoffset().total_seconds() == 0


def test_a_file_from_before_files_said_their_schema_has_the_first(tmp_path):
    record = saved(measured())
    del record["fwbench"]
    found = read(write(tmp_path / "x.json", record))
    assert found.schema == 1
    assert "its journal" in found.notes[0].replace("the run's", "its")


def test_a_folder_gives_its_newest_run(tmp_path):
    (tmp_path / "journal").mkdir()
    old = write(tmp_path / "b.json", saved(measured(throughput=1.0)))
    new = write(tmp_path / "journal" / "a.jsonl", journal(measured(throughput=2.0)))
    write(tmp_path / "notes.txt", {})
    write(tmp_path / "selftest.jsonl", [{"definition": "of the gate's own test, which is no run"}])
    (tmp_path / "baselines").mkdir()
    baseline = write(tmp_path / "baselines" / "z.jsonl", journal(measured(throughput=3.0)))
    assert runs(tmp_path) == [new, old]
    assert read(tmp_path).path == old
    assert read(tmp_path / "baselines").path == baseline


def test_the_newest_run_is_newest_by_its_own_time(tmp_path):
    """A copied folder has other dates; a test may note a time of its own; zones are told."""
    late = saved(measured(), datetime="2026-11-21T10:00:00+05:00")
    early = saved(measured(), datetime="2026-11-21T04:59:59+00:00")
    early["benchmarks"][0]["extra_info"]["datetime"] = "2030-01-01T00:00:00+00:00"
    files = [write(tmp_path / "a.json", late), write(tmp_path / "b.json", early)]
    begun = write(tmp_path / "c.jsonl", journal(measured(), started="2026-11-21T04:00:00+00:00"))
    for at, path in enumerate((*files, begun), 1000):
        os.utime(path, (at, at))
    assert runs(tmp_path) == [begun, files[1], files[0]]
    assert f"{read(tmp_path).made:%H:%M %Z}" == "05:00 UTC"


def test_a_file_that_tells_no_time_has_its_own_date(tmp_path):
    told = write(tmp_path / "a.json", saved(measured()))
    broken = tmp_path / "b.json"
    broken.write_text("{")
    os.utime(broken, (1000, 1000))
    assert runs(tmp_path) == [broken, told]
    os.utime(broken, (1e10, 1e10))
    assert runs(tmp_path) == [told, broken]


def damaged(*path, value):
    """A saved run with one place changed."""
    record = saved(measured(), failed())
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return record


EXTRA = ("benchmarks", 0, "extra_info")


def test_a_metric_of_an_unknown_name_is_read_whatever_its_unit(tmp_path):
    unknown = {"value": 3.0, "unit": "dB", "direction": "lower", "source": "a microphone", "reason": None}
    (found,) = read(write(tmp_path / "x.json", damaged(*EXTRA, "metrics", "noise", value=unknown))).measurements[:1]
    assert found.value("noise") == 3.0


@pytest.mark.parametrize("value", [7, "fast", [float("nan")], {"workload": 1}])
def test_a_key_of_the_users_own_beside_ours_does_no_harm(tmp_path, value):
    record = damaged(*EXTRA, "mine", value=value)
    assert (
        read(write(tmp_path / "x.json", record)).measurements
        == read(write(tmp_path / "y.json", saved(measured(), failed()))).measurements
    )


@pytest.mark.parametrize("stats", [{"stddev": float("nan")}, {"data": [0.1, float("inf")]}])
def test_a_foreign_benchmark_without_finite_numbers_is_left_out_and_named(tmp_path, stats):
    record = saved(measured())
    record["benchmarks"] += [plain(**stats), plain("tests/y.py::test_sum")]
    found = read(write(tmp_path / "x.json", record))
    assert (len(found.measurements), list(found.plain)) == (1, ["tests/y.py::test_sum"])
    assert found.notes == ("tests/y.py::test_sort is left out, as its statistics hold NaN or infinity",)


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ([1, 2], "a list, not an object"),
        ({"a": 1}, "no record of pytest-benchmark"),
        ({"benchmarks": [], "machine_info": 3, "datetime": "x"}, "no record of pytest-benchmark"),
        (damaged("fwbench", "schema", value=SCHEMA + 1), f"has schema {SCHEMA + 1}, and this fwbench reads"),
        (damaged("fwbench", value=[]), "its `fwbench` is not an object"),
        (damaged("fwbench", "failures", value=3), "`failures` are not a list"),
        (damaged("fwbench", "failures", value=[7]), "failure 1: damaged measurement"),
        (damaged("datetime", value="yesterday"), "'yesterday'"),
        (damaged("machine_info", "fwbench", "cpus", value=3), "no fingerprint"),
        (damaged("machine_info", "fwbench", "colour", value="red"), "no fingerprint"),
        (damaged("benchmarks", 0, value=None), "benchmark 1: damaged: has no statistics"),
        (damaged("benchmarks", 0, "stats", "data", value=[0.1, "fast"]), "'fast' is not a finite number"),
        (damaged("benchmarks", 0, "stats", "data", value=[float("nan")]), "nan is not a finite number"),
        (damaged("benchmarks", 0, "stats", "data", value=[0.1, -0.1]), "samples: -0.1 is below 0"),
        (damaged(*EXTRA, "metrics", "throughput", "value", value=0), "throughput: 0 is not above 0"),
        (damaged(*EXTRA, "workload", "wings", value=2), "'wings'"),
        (damaged(*EXTRA, "workload", "model", value=["a"]), "workload's model is not text"),
        (damaged(*EXTRA, "workload", "batch_size", value="8"), "batch size '8'"),
        (damaged(*EXTRA, "unfit", value=["8"]), "batch size '8'"),
        (damaged(*EXTRA, "unfit", value=8), "damaged measurement"),
        (damaged(*EXTRA, "metrics", value=[]), "damaged measurement"),
        (damaged(*EXTRA, "metrics", "throughput", "value", value="1e3"), "metric throughput: '1e3'"),
        (damaged(*EXTRA, "metrics", "throughput", "value", value=None), "either a value or a reason"),
        (
            damaged(*EXTRA, "metrics", "throughput", "unit", value="1/ms"),
            "metric throughput has unit '1/ms' and direction 'higher', not '1/s' and 'higher'",
        ),
        (damaged(*EXTRA, "metrics", "throughput", "direction", value="lower"), "direction 'lower', not '1/s' and"),
        (damaged(*EXTRA, "metrics", "latency_p50", value={"value": 250.0, "source": "here"}), "it has no 'unit'"),
        (damaged(*EXTRA, "protocol", value="quick"), "protocol is not an object"),
        (
            damaged(*EXTRA, "metrics", "latency_p50", value=metric(-0.5).to_json("latency_p50")),
            "metric latency_p50: -0.5 is below 0",
        ),
        (damaged(*EXTRA, "parity", value={"probe": {"matmul": 1}}), "the precision probe is not an object"),
        (damaged(*EXTRA, "settings", value={"cpus": 2}), "the setting cpus is not a list"),
        (damaged(*EXTRA, "training", value={"epochs": [{"seconds": "long"}]}), "epochs: 'long' is not a finite number"),
        (damaged(*EXTRA, "training", value={"epochs": [{"waiting": 1.0}]}), "it has no 'seconds'"),
        (damaged(*EXTRA, "training", value={"epochs": [{"seconds": None}]}), "None is not a finite number"),
        (damaged(*EXTRA, "training", value={"epochs": [3]}), "damaged measurement"),
        (damaged(*EXTRA, "training", value={"losses": [0.1, "low"]}), "losses: 'low'"),
        (damaged(*EXTRA, "accelerator", value=[{"when": "early"}]), "it has no 'state'"),
        (damaged(*EXTRA, "accelerator", value=[{"when": 1, "state": {}}]), "of the accelerator is not text"),
        (
            damaged(*EXTRA, "accelerator", value=[{"when": "early", "state": {"used_memory": "much"}}]),
            "the accelerator early: 'much' is not a finite number",
        ),
        (damaged(*EXTRA, "processes", value=[3]), "process 1 is not an object"),
        (damaged(*EXTRA, "processes", value=[{"latency": 0.1}, {"latency": "x"}]), "process 2: 'x' is not a finite"),
        (damaged(*EXTRA, "processes", value=[{"latency": 0}]), "process 1: 0 is not above 0"),
        (saved(benchmarks=[plain(median="x")]), "damaged statistics"),
        (saved(benchmarks=[plain(data=[True])]), "True is not a finite number"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_in_one_sentence(tmp_path, record, fault):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(record))
    with pytest.raises(UserError) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert fault in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is not JSON (line 1"),
        (b'{"benchmarks": [', "is not JSON (line 1"),
        (b'{\n"a":\n\n}', "is not JSON (line 4"),
        (b"\xff\xfe\x00", "is not text"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_what_is_not_json_is_refused(tmp_path, content, fault, name):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as refused:
        read(path)
    assert fault in str(refused.value) or name == "x.jsonl"
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([{"a": 1}], "no journal of fwbench"),
        (journal(measured(), schema=99), "has schema 99"),
        (journal(measured(), schema=True), "has schema True"),
        (journal(measured(), machine=MACHINE, started=5), "time 5"),
        ([*journal(measured()), {"x": 1}], "line 3: damaged measurement: it has no 'workload'"),
    ],
)
def test_a_damaged_journal_is_refused_with_its_line(tmp_path, lines, fault):
    with pytest.raises(UserError, match=fault):
        read(write(tmp_path / "x.jsonl", lines))


def test_a_journal_broken_in_the_middle_is_refused(tmp_path):
    path = write(tmp_path / "x.jsonl", journal(measured(), measured("jax")))
    path.write_text(path.read_text().replace('{"workload"', '{"workl', 1))
    with pytest.raises(UserError, match=r"is not JSON \(line 2"):
        read(path)


def test_nothing_there_says_what_to_name(tmp_path):
    with pytest.raises(UserError, match="does not exist: name a record"):
        read(tmp_path / "x.json")
    with pytest.raises(UserError, match="holds no records"):
        read(tmp_path)


def test_no_framework_is_imported():
    code = "import sys, fwbench.record.reading; print({'torch', 'jax', 'tensorflow', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_what_the_repository_keeps_can_be_read(path):
    kept = read(path).measurements
    assert kept
    assert {measurement.failure.kind for measurement in kept if measurement.failure} <= {"unavailable"}
