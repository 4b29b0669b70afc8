"""The torchax lane: its numbers beside PyTorch's, what it refuses, and a whole run."""

import pytest

# Asks for the lane, not for `torchax`: importing `torchax` changes PyTorch, so only the exporter does that.
pytest.importorskip("torchax_lane")

from torchax_lane import LANE
from torchax_lane.adapter import FRAMEWORK

from fwbench.frameworks.jax import plugins


@pytest.fixture(autouse=True)
def as_in_a_worker(monkeypatch):
    """Set a worker's variables, as JAX would otherwise open every device that it sees."""
    for name, value in LANE.variables(2, "cpu").items():
        monkeypatch.setenv(name, value)
    plugins.leave_out()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "mobilenet_v3_small"])
def test_outputs_are_pytorchs(agrees, name):
    agrees(FRAMEWORK, "torchax", name)


def test_it_has_only_inference_in_float32(only_inference_in_float32):
    only_inference_in_float32(FRAMEWORK, "torchax", {"device": "gpu"})


BENCHMARKS = """
import fwbench

@fwbench.benchmark("cnn", modes=["inference"], batch_sizes=[4], lanes=["torch", "torchax"])
def test_speed(fwbench_measure):
    fwbench_measure()
"""


@pytest.mark.slow
def test_a_run_checks_it(ran):
    rows, _, said = ran(BENCHMARKS)
    assert [row[-1] for row in rows if "torchax" in row] == ["checked"], said
