"""Lanes over two real ranks: every stage of a measurement, and a training that is that of one process."""

import dataclasses
import sys

import pytest

from fwbench.machine import machine
from fwbench.record.measurement import NO_SCALING
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.workers import Workers
from tests.unit.fakes import NO_PROJECT
from tests.unit.shared import needs

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="pins ranks to CPUs"), needs("cluster")]

PROTOCOL = dataclasses.replace(PROFILES["quick"], energy_time=0.0)
SHORT = dataclasses.replace(PROTOCOL, warmup_iterations=2, max_time=0.05, throughput_time=0.05, percentile_time=0.0)


@pytest.fixture(scope="module")
def measure():
    workers = Workers(machine(), "cpu", {}, NO_PROJECT)
    yield lambda workload, protocol: workers.measure(workload, protocol, lambda _: None)
    workers.close()


@pytest.mark.parametrize("lane", [pytest.param("torch", marks=pytest.mark.slow), "jax"])
def test_every_stage_of_a_training_step_runs_over_two_ranks(measure, lane):
    found = measure(Workload(lane, "mlp", "train_step", 4, devices=2), SHORT)
    assert found.failure is None
    assert found.value("throughput") > 0
    assert found.value("host_peak_memory") > 0
    assert {of["arithmetic"] for of in found.parity["probe"].values()} == {"fp32"}
    assert [(rank.rank, rank.metrics["throughput"] > 0) for rank in found.ranks] == [(0, True), (1, True)]
    communication = found.metrics["communication_time"]
    assert communication.value if lane == "torch" else communication.reason


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_a_fit_over_two_ranks_is_that_of_one(measure, lane):
    workload = Workload(lane, "mlp", "fit", 64, data="digits", accumulate=2)
    one, two = (measure(dataclasses.replace(workload, devices=devices), PROTOCOL) for devices in (1, 2))
    assert (one.failure, two.failure) == (None, None)
    # Of the whole batch, and not of a rank's slice: steps, then whole splits.
    assert len(two.training["losses"]) == len(one.training["losses"]) > 10
    assert two.training["losses"] == pytest.approx(one.training["losses"], rel=1e-4)
    assert two.training["accuracies"] == pytest.approx(one.training["accuracies"], abs=2 / 64)
    for name in ("validation_loss", "test_loss"):
        assert two.value(name) == pytest.approx(one.value(name), rel=1e-4)
    assert two.parity["weights"] == one.parity["weights"]
    assert [rank.rank for rank in two.ranks] == [0, 1]
    assert two.settings["data_parallel"].startswith({"torch": "DistributedDataParallel", "jax": "shard_map"}[lane])
    assert two.settings["caution"] == NO_SCALING
