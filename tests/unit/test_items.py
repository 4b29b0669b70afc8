"""The order in which a GPU measures."""

import dataclasses
from types import SimpleNamespace

import pytest

from fwbench.plugin import spreading
from fwbench.plugin.items import arrange
from fwbench.record.workload import Workload


def test_on_a_gpu_what_compiles_soonest_comes_first_with_all_its_lanes_and_fits_and_other_arithmetic_last(monkeypatch):
    monkeypatch.setattr(spreading, "subject_of", lambda item, kind: item.workload)
    fields = [
        {"model": "resnet50", "precision": "bf16"},
        {"model": "resnet50"},
        {"model": "mlp", "mode": "fit", "data": "digits"},
        {"model": "mlp"},
        {"model": "resnet50", "mode": "train_step"},
        {"model": "mlp", "precision": "tf32"},
    ]
    workloads = [Workload(lane, device="gpu", batch_size=32, **each) for each in fields for lane in ("torch", "jax")]
    another = SimpleNamespace(workload=None)
    items = [SimpleNamespace(workload=workload) for workload in workloads]
    items.insert(3, another)
    arrange(items)
    # Other tests keep their places.
    assert items.pop(3) is another
    order = [3, 1, 4, 5, 2, 0]
    assert [item.workload for item in items] == [workloads[2 * place + lane] for place in order for lane in (0, 1)]


@pytest.mark.parametrize("known", [True, False])
def test_what_takes_nobody_knows_how_long_comes_after_what_is_known(monkeypatch, known):
    monkeypatch.setattr(spreading, "subject_of", lambda item, kind: item.workload)
    fit = Workload("torch", "resnet50", "fit", 32, data="imagenet-100", device="gpu")
    digits = dataclasses.replace(fit, data="digits", model="mlp")
    items = [SimpleNamespace(workload=each) for each in ((digits, fit) if known else (fit, digits))]
    arrange(items)
    assert [item.workload for item in items] == [digits, fit]
