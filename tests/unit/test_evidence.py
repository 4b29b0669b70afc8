"""A file of suites, read whatever a kill has left, and the state of a machine that it shows."""

import dataclasses
import itertools
import json
import math
import statistics
from contextlib import closing

import pytest

from fwbench.compare.evidence import read, state
from fwbench.compare.testing import UNTESTED
from fwbench.errors import UserError
from fwbench.record.journal import Journal
from tests.unit.recorded import MACHINE

HEADER = {"definition": "abc", "machine": json.loads(json.dumps(MACHINE.to_json()))}
# By which a suite that is written twice is told.
NUMBERS = itertools.count()
QUIET = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998]


def benchmark(name="torch-mlp", kind="unchanged", planted=0.0, base=QUIET, head=QUIET, seconds=(8.0, 0.0)):
    rounds = [{"base": list(base), "head": list(head)}]
    return {"id": name, "kind": kind, "planted": planted, "rounds": rounds, "seconds": list(seconds)}


def suite(*benchmarks, slowdown=0.0, loaded=False):
    return {"slowdown": slowdown, "loaded": loaded, "number": next(NUMBERS), "benchmarks": list(benchmarks)}


def write(path, *suites, header=HEADER):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *suites)))
    return path


SUITES = [
    suite(benchmark(), benchmark("jax-mlp")),
    suite(benchmark(), benchmark("jax-mlp", kind="regressed"), loaded=True),
    suite(benchmark(kind="inconclusive"), benchmark("jax-mlp")),
    suite(
        benchmark(kind="regressed", planted=0.05, head=[1.06 * x for x in QUIET], seconds=(10.0, 50.0)),
        benchmark("jax-mlp", planted=0.05),
        benchmark("jax-resnet", kind="regressed"),
        slowdown=0.05,
    ),
    suite(benchmark(kind="regressed", planted=0.1), slowdown=0.1, loaded=True),
]


def test_a_file_is_its_first_line_and_its_suites(tmp_path):
    found = read(write(tmp_path / "x.jsonl", *SUITES))
    assert (found.header, found.suites) == (HEADER, SUITES)


@pytest.mark.parametrize("cut", [1, 2, 3, 28, 60])
def test_a_last_line_that_was_cut_off_anywhere_is_left_out(tmp_path, cut):
    path = write(tmp_path / "x.jsonl", *SUITES)
    path.write_text(path.read_text()[:-cut])
    assert read(path).suites == SUITES[:-1]


def test_a_self_test_goes_on_after_a_line_that_was_cut_off(tmp_path):
    path = write(tmp_path / "x.jsonl", *SUITES)
    path.write_text(path.read_text()[:-40])
    with closing(Journal(tmp_path, {}, path.name)) as journal:
        journal.append(SUITES[-1])
    assert read(path).suites == SUITES


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "No such file"),
        ("", "Expecting value"),
        ("{}\n", "its first line: .*`definition`"),
        ("3\n", "its first line: .*got `int`"),
        ("[]\n", "its first line: .*got `array`"),
        ("hello\n", "Expecting value"),
        ("\x00\n", "Expecting value"),
    ],
)
def test_any_other_file_is_refused_in_one_sentence(tmp_path, text, fault):
    path = tmp_path / "x.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=fault) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_damaged_line_costs_its_own_suite_and_a_doubled_one_counts_once(tmp_path):
    path = write(tmp_path / "x.jsonl", *SUITES, SUITES[0])
    path.write_bytes(path.read_bytes().replace(b'"number": 1', b'"number": \xff1'))
    found = read(path)
    assert found.suites == [SUITES[0], *SUITES[2:]]
    assert len(found.faults) == 1


def runs(levels, loaded=False, other_load=0.0, name="wild"):
    """A suite for each level of time, in which processes scatter about it."""
    return [
        suite(*(benchmark(name, base=[9.0 * x, x, x / 9], head=[99.0]), benchmark("quiet")), loaded=loaded)
        | {"other_load": other_load}
        for x in levels
    ]


LEVELS = [1.0, 1.1, 0.95, 1.02, 0.98, 1.0, 1.05, 0.97, 1.01, 0.99]


def test_the_state_is_the_spread_between_quiet_suites_of_the_benchmark_that_it_moves_most(tmp_path):
    others = runs([5.0], loaded=True), runs([7.0], other_load=0.06)
    path = write(tmp_path / "x.jsonl", *runs(LEVELS[:9]), *runs(LEVELS[9:], other_load=None), *others[0], *others[1])
    assert state(MACHINE, path) == pytest.approx(statistics.stdev(map(math.log, LEVELS)))


def test_a_suites_processes_count_as_one_run(tmp_path):
    suites = runs(LEVELS)
    for one in suites:
        low, high = ({"base": [by * one["benchmarks"][0]["rounds"][0]["base"][1]], "head": [1.0]} for by in (0.5, 2.0))
        one["benchmarks"][0]["rounds"] = [low, high]
    path = write(tmp_path / "x.jsonl", *suites)
    assert state(MACHINE, path) == pytest.approx(statistics.stdev(map(math.log, LEVELS)))


@pytest.mark.parametrize("changes", [{"cpu": "Another"}, {"threads": 1}, {"device": "gpu"}])
def test_another_machine_is_untested(tmp_path, changes):
    path = write(tmp_path / "x.jsonl", *runs(LEVELS))
    assert state(MACHINE, path) != UNTESTED
    assert state(dataclasses.replace(MACHINE, **changes), path) == UNTESTED


@pytest.mark.parametrize("suites", [runs(LEVELS[:9]), runs(LEVELS, loaded=True), runs(LEVELS, other_load=0.3)])
def test_a_machine_with_few_quiet_suites_is_untested(tmp_path, suites):
    assert state(MACHINE, write(tmp_path / "x.jsonl", *suites)) == UNTESTED


def test_a_machine_without_a_record_that_can_be_read_is_untested(tmp_path):
    path = tmp_path / "x.jsonl"
    assert state(MACHINE, path) == UNTESTED
    path.write_text("{}\n")
    assert state(MACHINE, path) == UNTESTED
    failing = suite(benchmark() | {"rounds": []}) | {"other_load": 0.0}
    assert state(MACHINE, write(path, *[failing] * 10)) == UNTESTED
