"""The door to records: what it lets in is what was measured, and what it keeps out it names in one sentence."""

import dataclasses
import functools
import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest

from fwbench.errors import UserError
from fwbench.record import reading
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.journal import ROUND, SCHEMA
from fwbench.record.machine import AcceleratorState
from fwbench.record.measurement import Moment
from fwbench.record.reading import read, runs, series
from tests.unit.recorded import MACHINE, failed, journal, measured, metric, plain, saved, write
from tests.unit.shared import finish
from tools.record_schema import exported

# What a clone has under `.benchmarks/` (docs/ci.md).
STORAGE = Path(__file__).parents[2] / ".benchmarks"
KEPT = [*STORAGE.glob("0001_readme.json"), *STORAGE.glob("baselines/*")]

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "record.schema.json"

MEASURED = (measured(), measured("jax", throughput=150.0), failed(batch_size=8))


def test_a_saved_run_gives_back_every_measurement_and_failure(tmp_path):
    record = read(write(tmp_path / "x.json", saved(*MEASURED)))
    assert record.measurements == MEASURED
    assert (record.profile, record.machine) == ("quick", MACHINE)
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
    assert (record.machine, record.profile, record.measurements) == (None, None, ())
    assert record.made.utcoffset().total_seconds() == 0


def test_a_file_from_before_files_said_their_schema_is_read(tmp_path):
    record = saved(measured())
    del record["fwbench"]
    found = read(write(tmp_path / "x.json", record))
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
    told = write(tmp_path / "a.json", saved(measured(), datetime="2020-01-01"))
    broken = tmp_path / "b.json"
    broken.write_text("{")
    os.utime(broken, (1.5e9, 1.5e9))
    assert runs(tmp_path) == [broken, told]
    os.utime(broken)
    assert runs(tmp_path) == [told, broken]


def changed(record, at, value):
    """A record with one place changed."""
    place = record
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = value
    return record


def damaged(*path, value):
    """A saved run with one place changed."""
    return changed(saved(measured(), failed()), path, value)


EXTRA = ("benchmarks", 0, "extra_info")
SKETCH = dict.fromkeys(("names", "slots", "norms", "moved"), "no base64")
DEEP = functools.reduce(lambda inner, _: [inner], range(30), 1)


def test_a_metric_of_an_unknown_name_is_read_whatever_its_unit(tmp_path):
    unknown = {"value": 3.0, "unit": "dB", "direction": "lower", "source": "a microphone", "reason": None}
    (found,) = read(write(tmp_path / "x.json", damaged(*EXTRA, "metrics", "noise", value=unknown))).measurements[:1]
    assert found.value("noise") == 3.0


@pytest.mark.parametrize("value", [7, "fast", [float("nan")], {"workload": 1}])
def test_a_key_of_the_users_own_beside_ours_does_no_harm(tmp_path, value):
    files = damaged(*EXTRA, "mine", value=value), saved(measured(), failed())
    with_it, without = (read(write(tmp_path / "x.json", record)).measurements for record in files)
    assert with_it == without


@pytest.mark.parametrize("stats", [{"stddev": float("nan")}, {"data": [0.1, float("inf")]}])
def test_a_foreign_benchmark_without_finite_numbers_is_left_out_and_named(tmp_path, stats):
    record = saved(measured())
    record["benchmarks"] += [plain(**stats), plain("tests/y.py::test_sum")]
    found = read(write(tmp_path / "x.json", record))
    assert (len(found.measurements), list(found.plain)) == (1, ["tests/y.py::test_sum"])
    (told,) = found.told
    assert told.startswith("tests/y.py::test_sort is left out (benchmark 2: ")


def test_a_foreign_benchmark_that_comes_twice_is_left_out_and_named(tmp_path):
    record = saved(measured(), benchmarks=[plain(), plain(median=9.0), plain("tests/y.py::test_sum")])
    found = read(write(tmp_path / "x.json", record))
    assert list(found.plain) == ["tests/y.py::test_sum"]
    assert found.told == [
        "tests/y.py::test_sort is left out (the file holds it more than once, so nobody can tell which counts)"
    ]


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ([1, 2], "a list, not an object"),
        ({"a": 1}, "no record of pytest-benchmark"),
        ({"benchmarks": [], "machine_info": 3, "datetime": "x"}, "no record of pytest-benchmark"),
        (damaged("fwbench", "schema", value=SCHEMA + 1), f"has schema {SCHEMA + 1}, and this fwbench reads"),
        (damaged("fwbench", "schema", value=10**400), "has schema inf, and this fwbench reads"),
        (damaged("fwbench", value=[]), "its `fwbench` is not an object"),
        (damaged("fwbench", "failures", value=3), "with lists of `failures` and `rounds`"),
        (damaged("machine_info", "fwbench", "cpus", value=3), "no fingerprint"),
        (damaged("machine_info", "fwbench", "cpu", value="\ud800"), "half a character"),
        (damaged("machine_info", "fwbench", value=[]), "no fingerprint"),
    ],
)
def test_what_is_no_record_is_refused_in_one_sentence(tmp_path, record, fault):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(record))
    with pytest.raises(UserError) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert fault in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 700


def place(of):
    """The path of a benchmark's place, as in `workload.seed`; most are its `extra_info`'s."""
    keys = of.split(".") if of else []
    return ("benchmarks", 0, *(["extra_info"] if keys and keys[0] not in ("stats", "fullname") else []), *keys)


# A case of each way to be wrong; of which type each field is, the published schema says, which is the one that is
# checked.
@pytest.mark.parametrize(
    ("of", "value", "fault"),
    [
        ("", None, "it is not an object"),
        ("stats", 3, "it has no statistics"),
        ("fullname", 3, "its name: expected `str`, got `int`"),
        ("stats.data", [0.1, "fast"], "samples[1]: expected `float`, got `str`"),
        ("stats.data", [float("nan")], "samples[0]: expected `float` >= 0.0"),
        ("stats.data", [0.1, -0.1], "samples[1]: expected `float` >= 0.0"),
        ("stats.data", [0.1, 10**400], "samples[1]: expected `float` <= 1e+30"),
        ("stats.data", [5e-324], "samples: one is smaller than anything that can be measured"),
        ("workload.seed", True, "workload.seed: expected `int`, got `bool`"),
        ("workload.model", "\ud800", "workload.model: a text holds"),
        ("workload.model", "x" * 1001, "workload.model: expected `str` of length <= 1000"),
        ("workload.wings", 2, "workload: object contains unknown field `wings`"),
        ("workload.batch_size", 10**20, "workload.batch_size: expected `int`, got `float`"),
        ("workload.batch_size", 0, "workload.batch_size: expected `int` >= 1"),
        ("workload.batch_size", 10**400, "workload.batch_size: inf is not a finite number"),
        ("workload.device", "tpu", "workload.device: invalid enum value 'tpu'"),
        ("workload.axes", {"length": "long"}, "axes[...]: expected `int | array`, got `str`"),
        ("workload.axes", {"length": [16]}, "workload.axes[...]: expected `array` of length >= 2"),
        ("workload.accumulate", 3, "a batch of 1 cannot be cut into 3 equal parts"),
        ("metrics.throughput.value", "1e3", "metric throughput.value: expected `float | null`"),
        ("metrics.throughput.value", 0, "metric throughput.value: expected `float` >= 1e-30"),
        ("metrics.throughput.value", 10**400, "metrics.throughput.value: inf is not a finite"),
        ("metrics.throughput.value", None, "either a value or a reason"),
        ("metrics.throughput.unit", "1/ms", "metric throughput.unit: invalid enum value '1/ms'"),
        ("metrics.throughput.direction", "lower", "direction: invalid enum value 'lower'"),
        ("metrics.throughput.wings", 2, "metric throughput: object contains unknown field"),
        ("metrics.latency_p50", {"value": 2.5, "source": "x"}, "missing required field `unit`"),
        ("metrics.latency_p50", metric(-0.5).to_json("latency_p50"), "metric latency_p50.value: expected `float` >= 0"),
        ("metrics.latency_p50", metric(5e-324).to_json("latency_p50"), "metric latency_p50: 5e-324 is smaller than an"),
        ("protocol", "quick", "protocol: expected `object`, got `str`"),
        ("parity", {"check": {"reason": 1}}, "parity.check.reason: expected `str`, got `int`"),
        ("parity", {"check": {"output": {"names": ""}}}, "missing required field `slots`"),
        ("parity", {"check": {"loss": SKETCH}}, "parity.check.loss.names: expected `str` matching regex"),
        ("settings", {"x": float("nan")}, "settings.x: nan is not a finite number"),
        ("settings", {"\udc00": 1}, "settings, a key: a text holds"),
        ("settings", {"x": DEEP}, "settings.x: objects are more than 20 deep in each other"),
        ("training", {"epochs": [{"seconds": "long"}]}, "training.epochs[0].seconds: expected `float`"),
        ("processes", [{"latency": 0.1}, {"latency": "x"}], "processes[1][...]: expected `float`"),
        ("processes", [{"latency": 0}], "processes[0][...]: expected `float` >= 1e-30"),
        ("attempts", [{"metrics": {}}], "attempts: object missing required field `samples`"),
        ("program", {"absent": {"wings": "x"}}, "a fingerprint gives a reason for what is there"),
    ],
)
def test_a_damaged_benchmark_is_left_out_and_named_and_the_others_are_read(tmp_path, of, value, fault):
    record = saved(measured(), measured("jax"), failed())
    path = write(tmp_path / "x.json", changed(record, place(of), value))
    found = read(path)
    assert [m.workload.id for m in found.measurements] == ["jax-mlp-inference-b1", "jax-mlp-inference-b1"]
    (one,) = found.damaged
    assert one.fault.startswith("benchmark 1: ")
    assert fault in one.fault
    # Its workload's id where that can be read, else its test, else its place.
    test = "tests/x.py::test[torch-mlp-inference-b1]" if of else "benchmark 1"
    name = "torch-mlp-inference-b1" if of and "workload" not in of else test
    assert one.name == name
    assert found.told == [f"{name} is left out ({one.fault})"]


def test_a_whole_number_of_thousands_of_digits_is_no_number(tmp_path):
    """Python takes minutes over it, or refuses."""
    path = write(tmp_path / "x.json", saved(measured(seed=123_456), measured("jax")))
    path.write_text(path.read_text().replace("123456", "9" * 5000))
    found = read(path)
    assert [m.workload.lane for m in found.measurements] == ["jax"]
    assert "workload.seed: inf is not a finite number" in found.damaged[0].fault


def test_a_benchmark_that_has_lost_its_workload_is_none_of_somebody_elses(tmp_path):
    record = saved(measured(), benchmarks=[*saved(measured())["benchmarks"], plain(), None])
    del record["benchmarks"][0]["extra_info"]["workload"]
    record["benchmarks"][1]["extra_info"] = {"workload": 1}
    found = read(write(tmp_path / "x.json", record))
    assert list(found.plain) == ["tests/y.py::test_sort"]
    assert [one.name for one in found.damaged] == ["tests/x.py::test[torch-mlp-inference-b1]", "benchmark 3"]
    assert not any(one.plain for one in found.damaged)


def test_a_damaged_failure_is_left_out_and_named(tmp_path):
    record = saved(measured(), failed())
    record["fwbench"]["failures"] += [7, {"workload": record["fwbench"]["failures"][0]["workload"], "failure": 3}]
    found = read(write(tmp_path / "x.json", record))
    assert len(found.measurements) == 2
    assert [one.name for one in found.damaged] == ["failure 2", "jax-mlp-inference-b1"]


def test_a_damaged_commit_is_left_out_and_named(tmp_path):
    found = read(write(tmp_path / "x.json", saved(measured(), commit_info={"id": ["x"], "branch": "main"})))
    assert (found.commit, len(found.measurements)) == ({}, 1)
    assert found.told == [
        "what it tells of the commit is damaged and left out: commit_info.id: expected `str | null`, got `array`"
    ]


def test_a_series_tells_what_is_left_out_of_a_run(tmp_path):
    path = write(tmp_path / "x.json", damaged(*EXTRA, "stages", value=[]))
    (record,), faults = series(tmp_path)
    assert len(record.measurements) == 1
    assert faults == [
        f"{path}: torch-mlp-inference-b1 is left out (benchmark 1: stages: expected `object`, got `array`)"
    ]


def test_of_many_damaged_benchmarks_some_are_told(tmp_path):
    found = read(write(tmp_path / "x.json", saved(measured(), benchmarks=[None] * 25)))
    assert len(found.damaged) == 25
    assert found.told[-1] == "15 more benchmarks are damaged and left out"
    assert len(found.told) == 11


@pytest.mark.parametrize("at", [(), ("settings",), ("accelerator", 0), ("accelerator", 0, "state"), ("program",)])
def test_what_a_newer_fwbench_adds_is_passed_over(tmp_path, at):
    """But not in a workload or a metric, which it could make another one: those are among the damaged ones."""
    full = measured(accelerator=(Moment("early", AcceleratorState()),), program=Fingerprint(form="HLO", digest="abc"))
    record = journal(full)
    known = read(write(tmp_path / "y.jsonl", record)).measurements
    record = changed(record, (1, *at, "wings"), 2)
    (found,) = read(write(tmp_path / "x.jsonl", record)).measurements
    assert dataclasses.replace(found, settings={}) == dataclasses.replace(known[0], settings={})


def test_a_program_that_tells_nothing_is_a_program(tmp_path):
    (found,) = read(write(tmp_path / "x.jsonl", changed(journal(measured()), (1, "program"), {}))).measurements
    assert found.program == Fingerprint()


def test_what_a_newer_fwbench_adds_to_the_machine_is_passed_over(tmp_path):
    coloured = damaged("machine_info", "fwbench", "colour", value="red")
    assert read(write(tmp_path / "x.json", coloured)).machine == MACHINE


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is not JSON (line 1"),
        (b'{"benchmarks": [', "is not JSON (line 1"),
        (b'{\n"a":\n\n}', "is not JSON (line 4"),
        (b"\xff\xfe\x00", "is not JSON (line 1"),
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
        ([[1], *journal(measured())[1:]], "a list, not an object"),
    ],
)
def test_what_is_no_journal_is_refused_in_one_sentence(tmp_path, lines, fault):
    with pytest.raises(UserError, match=fault):
        read(write(tmp_path / "x.jsonl", lines))


SAMPLES = changed(journal(measured()), (1, "samples"), 3)[1]


@pytest.mark.parametrize(
    ("line", "name", "fault"),
    [
        ('{"x": 1}', "line 3", "line 3: it: object missing required field `workload`"),
        ("", "line 3", "line 3: is not JSON (line 1: Expecting value)"),
        ("[" * 100_000, "line 3", "line 3: is not JSON"),
        ("7", "line 3", "line 3: it: expected `object`, got `int`"),
        (json.dumps(SAMPLES), "torch-mlp-inference-b1", "line 3: samples: expected `array`"),
    ],
)
def test_a_damaged_line_of_a_journal_is_left_out_and_named(tmp_path, line, name, fault):
    path = write(tmp_path / "x.jsonl", journal(measured(), measured("jax")))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line, *lines[2:], ""]))
    found = read(path)
    assert [m.workload.lane for m in found.measurements] == ["torch", "jax"]
    (one,) = found.damaged
    assert one.name == name
    assert one.fault.startswith(fault)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".json", "x\0y", "/".join(["x" * 200] * 30)])
def test_a_path_that_no_file_can_have_is_refused_in_one_sentence(tmp_path, name):
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / name)


def test_a_name_of_a_file_sends_nothing_to_the_terminal(tmp_path):
    with pytest.raises(UserError) as refused:
        read(tmp_path / "\x1b[2J\n\u202e.json")
    assert "\N{REPLACEMENT CHARACTER}[2J \N{REPLACEMENT CHARACTER}.json does not exist" in str(refused.value)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LARGEST", 2**20)
    with pytest.raises(UserError, match="has more than 1 MiB"):
        read(write(tmp_path / "x.json", {"a": "b" * 2**20}))


def test_nothing_there_says_what_to_name(tmp_path):
    with pytest.raises(UserError, match="does not exist: name a record"):
        read(tmp_path / "x.json")
    with pytest.raises(UserError, match="holds no records"):
        read(tmp_path)


def test_no_framework_is_imported():
    """Nor msgspec by the module whose constants workers know, as they have none."""
    frameworks = {"torch", "jax", "tensorflow", "numpy"}
    code = (
        f"import sys, fwbench.record.storage; print({frameworks | {'msgspec'}} & set(sys.modules), end=' ');"
        f"import fwbench.record.reading; print({frameworks} & set(sys.modules))"
    )
    assert finish(sys.executable, "-c", code).stdout.strip() == "set() set()"


def test_the_published_schema_is_the_one_that_is_checked():
    """`python tools/record_schema.py > docs/record.schema.json` renews it."""
    assert json.loads(SCHEMA_FILE.read_text()) == exported()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_what_the_repository_keeps_is_as_the_published_schema_says_and_can_be_read(path):
    published = json.loads(SCHEMA_FILE.read_text())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    first = "SavedRun" if path.suffix == ".json" else "JournalHeader"
    for number, line in enumerate(lines):
        name = "PlayedRound" if ROUND in line else "Measurement" if number else first
        told = line.get(ROUND, line)
        jsonschema.Draft202012Validator({**published, "$ref": f"#/$defs/{name}"}).validate(told)
    kept = read(path).measurements
    assert kept
    assert {measurement.failure.kind for measurement in kept if measurement.failure} <= {"unavailable"}


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("workload.seed", [1]),
        ("workload.wings", 2),
        ("metrics.throughput.unit", "1/ms"),
        ("metrics.throughput.value", -1),
        ("parity.proof", [1]),
        ("training", {"epochs": [{"seconds": 1.0}]}),
        ("stats.data", [0.1, -0.1]),
    ],
)
def test_the_published_schema_refuses_what_is_left_out(of, value):
    whole = saved(measured())
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    assert validator.is_valid(whole)
    assert not validator.is_valid(changed(whole, place(of), value))


def test_what_was_measured_again_stands_in_the_place_of_the_first_attempt(tmp_path):
    """In a journal both are; in one that was killed between the two, the first alone."""
    first, other = measured(samples=(8.0, 9.0)), measured(samples=(1.0, 1.0), batch_size=8)
    for again in (measured(samples=(2.0,)).beside(first), first.beside(measured(samples=(9.5,)))):
        path = write(tmp_path / "run.jsonl", journal(first, other))
        assert read(path).measurements == (first, other)
        path = write(tmp_path / "run.jsonl", journal(first, other, again))
        found, beside = read(path).measurements
        assert (found.samples, len(found.attempts), beside) == (again.samples, 1, other)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda played: played["turns"]["jax"].update(call=[]), "array"),
        (lambda played: played["workload"].update(unknown=1), "unknown"),
        (lambda played: played.update(begun=-1.0), "begun"),
    ],
)
@pytest.mark.parametrize("form", [saved, journal])
def test_a_damaged_round_costs_that_round(tmp_path, form, spoil, fault):
    turns = tuple({"begun": float(number), "call": [0.5]} for number in range(3))
    content = form(measured("torch", turns=turns), measured("jax", turns=turns))
    spoil(content["fwbench"]["rounds"][1] if form is saved else content[4]["round"])
    record = read(write(tmp_path / f"x.{'json' if form is saved else 'jsonl'}", content))
    assert [each.begun for each in record.rounds] == [0.0, 2.0]
    assert [[turns["begun"] for turns in m.turns] for m in record.measurements] == [[0.0, 2.0]] * 2
    (damaged,) = record.damaged
    assert fault in damaged.fault
