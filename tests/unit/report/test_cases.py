"""Which records stand together, and which apart."""

import dataclasses
import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fwbench.compare.cases import by_workload, over_seeds, separations, settings
from fwbench.record.reading import Record
from tests.unit.recorded import MACHINE, failed, measured

_SECONDS = itertools.count(0.5)
VERSIONS = {"torch": {"torch": "2.15.0"}, "jax": {"jax": "0.10.2"}}


def measurement(lane="torch", **fields):
    """Of a process of its own, as its stages' times tell."""
    return measured(lane, versions=VERSIONS[lane], stages={"latency": next(_SECONDS)}, **fields)


def record(*measurements, machine=MACHINE, profile="quick"):
    return Record(Path("x.json"), datetime.now(UTC), {}, machine, {}, profile, measurements)


def test_runs_of_one_machine_are_replicates():
    (setting,) = settings([record(measurement(throughput=speed)) for speed in (100.0, 150.0, 110.0)])
    (case,) = setting.cases
    assert case.values("throughput") == [100.0, 150.0, 110.0]
    assert case.value("throughput") == 110.0
    assert [run for run, _ in case.replicates] == [0, 1, 2]


@pytest.mark.parametrize(
    "other",
    [
        {"machine": dataclasses.replace(MACHINE, cpu="Other CPU")},
        {"machine": dataclasses.replace(MACHINE, threads=1)},
        {"machine": dataclasses.replace(MACHINE, driver="580")},
        {"machine": None},
        {"profile": "paper"},
    ],
)
def test_another_machine_schema_or_profile_stands_apart(other):
    found = settings([record(measurement(throughput=1.0)), record(measurement(throughput=3.0), **other)])
    assert [setting.cases[0].value("throughput") for setting in found] == [1.0, 3.0]


def test_another_version_of_a_framework_stands_apart_and_is_named():
    other = dataclasses.replace(measurement(throughput=3.0), versions={"torch": "2.16.0", "triton": "3.1"})
    found = settings([record(measurement(throughput=1.0)), record(other)])
    assert separations(found) == [["torch 2.15.0", "no triton"], ["torch 2.16.0", "triton 3.1"]]


@pytest.mark.parametrize("changed", [{"kernel": "Linux 6.2"}, {"memory": MACHINE.memory + 4096}])
def test_another_kernel_or_a_page_of_memory_separates_nothing(changed):
    other = dataclasses.replace(MACHINE, **changed)
    assert len(settings([record(measurement()), record(measurement(), machine=other)])) == 1


GPU = dataclasses.replace(MACHINE, device="gpu", accelerator="NVIDIA A100", driver="580", power_limit=400.0)


@pytest.mark.parametrize(
    ("one", "other", "separating"),
    [
        ({"machine": GPU}, {"machine": dataclasses.replace(GPU, driver="590")}, [["driver 580"], ["driver 590"]]),
        ({"machine": GPU}, {"machine": dataclasses.replace(GPU, power_limit=300.0)}, [["400.0 W"], ["300.0 W"]]),
        ({"machine": GPU}, {"machine": dataclasses.replace(GPU, cpu="Other")}, [["Some CPU"], ["Other"]]),
        ({}, {"profile": "paper"}, [["quick profile"], ["paper profile"]]),
        ({}, {"machine": None}, [["Some CPU"], ["an unnamed machine"]]),
    ],
)
def test_what_separates_two_settings_is_named(one, other, separating):
    assert separations(settings([record(measurement(), **one), record(measurement(), **other)])) == separating


def test_lanes_measured_in_different_runs_stand_together():
    (setting,) = settings([record(measurement("torch")), record(measurement("jax"))])
    assert [*map(list, by_workload(setting.cases).values())] == [["torch", "jax"]]
    assert setting.versions == VERSIONS


def test_a_saved_run_and_its_journal_count_once():
    one, gone = measurement(throughput=1.0), failed()
    (setting,) = settings([record(one, gone), record(one, gone)])
    assert [len(case.replicates) for case in setting.cases] == [1, 0]
    assert len(setting.measurements) == 2


def test_a_workload_that_failed_once_keeps_its_numbers():
    (setting,) = settings([record(failed("timed_out", lane="torch")), record(measurement())])
    (case,) = setting.cases
    assert (case.why_failed(), case.value("throughput"), len(case.failures)) == ("", 100.0, 1)


def test_seeds_come_together_and_where_data_lies_does_not_matter():
    cases = settings([record(*(measurement(seed=seed, data_path=f"/{seed}") for seed in (0, 1)))])[0].cases
    assert len(cases) == 2
    (merged,) = over_seeds(cases)
    assert merged.seeds == 2


def test_nothing_is_compared_across_precision_batch_size_or_optimizer():
    others = ({"precision": "bf16"}, {"batch_size": 8}, {"optimizer": "sgd"})
    cases = settings([record(measurement("torch"), *(measurement("jax", **other) for other in others))])[0].cases
    assert [*map(list, by_workload(cases).values())] == [["torch"], ["jax"], ["jax"], ["jax"]]
