"""Lanes over two real ranks: every stage of a measurement."""

import dataclasses
import sys

import pytest

from fwbench.machine import machine
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.workers import Workers
from tests.unit.fakes import NO_PROJECT
from tests.unit.shared import needs

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="pins ranks to CPUs"), needs("cluster")]

TIMES = {"energy_time": 0.0, "max_time": 0.05, "throughput_time": 0.05, "percentile_time": 0.0}
PROTOCOL = dataclasses.replace(PROFILES["quick"], warmup_iterations=2, **TIMES)


@pytest.fixture(scope="module")
def measure():
    workers = Workers(machine(), "cpu", {}, NO_PROJECT)
    yield lambda workload: workers.measure(workload, PROTOCOL, lambda _: None)
    workers.close()


@pytest.mark.parametrize("lane", [pytest.param("torch", marks=pytest.mark.slow), "jax"])
def test_every_stage_of_a_training_step_runs_over_two_ranks(measure, lane):
    found = measure(Workload(lane, "mlp", "train_step", 4, devices=2))
    assert found.failure is None
    assert found.value("throughput") > 0
    assert found.value("host_peak_memory") > 0
    assert {of["arithmetic"] for of in found.parity["probe"].values()} == {"fp32"}
    assert [(rank.rank, rank.metrics["throughput"] > 0) for rank in found.ranks] == [(0, True), (1, True)]
    communication = found.metrics["communication_time"]
    assert communication.value if lane == "torch" else communication.reason
