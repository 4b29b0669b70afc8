"""A user's network is measured from the values of its reference's constructor, in every lane."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_networks

from fwbench.frameworks import load
from fwbench.models import Model, inputs
from fwbench.models.weights import canonical, digest
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from fwbench.worker.process.writing import write

FOLDER = str(Path(__file__).parent)
DECAY = Model("decay", torch="torch_networks:Decay", jax="own_jax:Decay", inputs=inputs.normal(16))
RATES = np.log(np.arange(1.0, 17.0, dtype=np.float32))


@pytest.fixture
def written(monkeypatch, tmp_path):
    """The file that a lane's worker writes."""
    monkeypatch.setattr(sys, "path", sys.path[:])

    def made(lane, model=DECAY, seed=0):
        workload = Workload(lane, model.name, seed=seed)
        file = str(tmp_path / f"{lane}-{seed}.npz")
        job = {"workload": workload.to_json(), "model": model.to_json(), "path": [FOLDER], "save": file}
        found = write(OWN[lane], job)
        assert found.failure is None, found.failure
        return file

    return made


def start(lane, file, seed=0):
    """What this lane's program is built with."""
    shapes = load(OWN[lane].adapter).weight_shapes(DECAY, DECAY.sizes())
    return canonical("drawn", DECAY, shapes, seed, file)


def test_both_lanes_start_from_the_references_own_values(written):
    file = written("torch")
    weights = {lane: start(lane, file) for lane in ("torch", "jax")}
    assert digest(weights["torch"]) == digest(weights["jax"])
    torch.manual_seed(0)
    own = torch_networks.Decay().state_dict()
    for name in ("log_rates", "fc.weight", "fc.bias"):
        np.testing.assert_array_equal(weights["jax"][name], own[name].numpy())
    np.testing.assert_allclose(weights["jax"]["log_rates"], RATES, rtol=1e-6)
    # Constants are moved: ones, and zeros.
    assert 0.02 < weights["jax"]["gain"].std() < 0.3
    assert 0.005 < weights["jax"]["shift"].std() < 0.05
    assert digest(start("jax", None)) != digest(weights["jax"])


def test_a_seed_is_that_of_the_constructor(written):
    first, other = (start("jax", written("torch", seed=seed), seed) for seed in (0, 1))
    assert (first["fc.weight"] != other["fc.weight"]).all()
    np.testing.assert_array_equal(first["log_rates"], other["log_rates"])


def test_any_framework_can_write_its_own_under_canonical_names(written):
    """As where the reference's is not installed."""
    file = written("jax")
    weights = {lane: start(lane, file) for lane in ("torch", "jax")}
    assert digest(weights["torch"]) == digest(weights["jax"])
    # A constant of JAX's own constructor, moved.
    assert weights["torch"]["log_rates"].mean() == pytest.approx(0.5, abs=0.1)
    assert weights["torch"]["fc.weight"].shape == (5, 16)
    assert np.ptp(weights["torch"]["fc.weight"]) > 0.1
