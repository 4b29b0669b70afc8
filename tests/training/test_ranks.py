"""PyTorch over two real ranks, started by its own elastic launcher: a training is that of one process."""

import dataclasses
import sys

import pytest

from fwbench.machine import machine
from fwbench.record.measurement import NO_SCALING
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client import Workers
from tests.unit.fakes import NO_PROJECT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pins ranks to CPUs")

PROTOCOL = dataclasses.replace(PROFILES["quick"], energy_time=0.0)


def test_a_fit_over_two_ranks_is_that_of_one():
    workload = Workload("torch", "mlp", "fit", 64, data="digits", accumulate=2)
    workers = Workers(machine(), "cpu", {}, NO_PROJECT)
    try:
        one, two = (
            workers.measure(dataclasses.replace(workload, devices=devices), PROTOCOL, lambda _: None)
            for devices in (1, 2)
        )
    finally:
        workers.close()
    assert (one.failure, two.failure) == (None, None)
    # Of the whole batch, and not of a rank's slice: steps, then whole splits.
    assert len(two.training["losses"]) == len(one.training["losses"]) > 10
    assert two.training["losses"] == pytest.approx(one.training["losses"], rel=1e-4)
    assert two.training["accuracies"] == pytest.approx(one.training["accuracies"], abs=2 / 64)
    for name in ("validation_loss", "test_loss"):
        assert two.value(name) == pytest.approx(one.value(name), rel=1e-4)
    assert two.parity["weights"] == one.parity["weights"]
    assert [rank.rank for rank in two.ranks] == [0, 1]
    assert two.settings["data_parallel"] == "DistributedDataParallel"
    assert two.settings["caution"] == NO_SCALING
