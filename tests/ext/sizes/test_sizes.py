"""A list of sizes in real frameworks: what a call computes, what each lane compiles for it, and a run's record."""

import shutil

import numpy as np
import pytest
import torch

from fwbench.compare.cases import cases
from fwbench.compare.parity import evidence
from fwbench.models import Model, inputs, mixed
from fwbench.models.project import complete
from fwbench.record.workload import Workload
from tests import programs
from tests.ext.sizes import sums
from tests.training.projects import measured

LENGTHS = (5, 12, 5, 9)
SUMS = Model(
    "sums",
    torch=dict.fromkeys(("exact", "padded"), f"{sums.__name__}:InTorch"),
    jax=dict.fromkeys(("exact", "padded"), f"{sums.__name__}:InJax"),
    inputs=inputs.normal("length", 4),
    axes={"length": [LENGTHS]},
    buckets={"padded": (8, 16)},
)
TEST = """
import fwbench

sums = fwbench.Model(
    "sums",
    torch={"exact": "sums:InTorch", "padded": "sums:InTorch", "leaking": "sums:Leaking"},
    jax={"padded": "sums:InJax"},
    inputs=fwbench.normal("length", 4),
    axes={"length": [(5, 12, 5, 9)]},
    buckets={"padded": (8, 16), "leaking": (8, 16)},
)


@fwbench.benchmark(sums, modes=["inference", "train_step"], batch_sizes=[2])
def test_sums(fwbench_measure):
    fwbench_measure()
"""


def built(lane):
    return programs.built(Workload(lane, "sums", batch_size=2, axes=SUMS.sweep()[0]), complete(SUMS, lane))


def called(lane):
    """Weights and output of a program, its times of compiling, and the compilations of two calls."""
    program, weights = built(lane)
    if lane.startswith("torch-compile"):
        # As in a process of its own: compiled code belongs to the class.
        torch._dynamo.reset()
    counts = [program.compilations()]
    with program.session():
        times = program.compile()
        program.call_and_wait()
        counts.append(program.compilations())
        program.call_and_wait()
        counts.append(program.compilations())
    program.relocate()
    with program.session():
        program.call_and_wait()
        output = program.output()
        program.restart({name: 2 * array for name, array in weights.items()})
        program.call_and_wait()
        assert np.allclose(program.output(), 2 * output, rtol=1e-4, atol=1e-5)
    return weights, output, times, None if counts[0] is None else [counts[1] - counts[0], counts[2] - counts[1]]


def computed(weights):
    """The same in NumPy, from the batches without padding."""
    described, workload = complete(SUMS, "torch:exact"), Workload("torch", "sums", batch_size=2, axes=SUMS.sweep()[0])
    exact = mixed.batches(described, workload)
    of = [np.cumsum(batch[""] @ weights["head.weight"].T + weights["head.bias"], 1) for batch in exact]
    return np.concatenate([array.reshape(2, -1) for array in of], axis=1)


@pytest.mark.parametrize(
    ("lane", "compilations"),
    [
        ("torch:exact", None),
        ("torch:padded", None),
        ("jax:exact", [3, 0]),
        ("jax:padded", [2, 0]),
        # The first size, and then one program for all.
        pytest.param("torch-compile:exact", [2, 0], marks=pytest.mark.slow),
        pytest.param("torch-compile:padded", [2, 0], marks=pytest.mark.slow),
    ],
)
def test_a_call_takes_every_size_and_a_lane_compiles_what_its_framework_does(lane, compilations):
    weights, output, times, counted = called(lane)
    assert np.allclose(output, computed(weights), rtol=1e-4, atol=1e-5)
    assert counted == compilations
    assert (times.compile is None) == (compilations is None)


def test_the_operations_of_a_call_are_those_of_all_sizes():
    flops = {}
    for lane in ("torch:exact", "jax:exact"):
        program, _ = built(lane)
        with program.session():
            program.compile()
            program.call_and_wait()
            program.fingerprint()
            flops[lane] = program.forward_flops()
    assert flops == dict.fromkeys(flops, 2 * 2 * sum(LENGTHS) * 4 * 4)


@pytest.mark.slow
def test_a_run_checks_the_outputs_of_all_sizes_and_counts_compilations(tmp_path):
    shutil.copy(sums.__file__, tmp_path)
    (tmp_path / "test_sums.py").write_text(TEST)
    said, found = measured(tmp_path)
    assert "measured in inference, and not in train_step" in said
    by_lane = {case.workload.lane: case for case in cases(found)}
    assert list(by_lane) == ["torch:exact", "torch:padded", "torch:leaking", "jax:padded"]
    words = {
        lane: evidence(case, by_lane["torch:exact"]).word for lane, case in by_lane.items() if lane != "torch:exact"
    }
    assert words == {"torch:padded": "checked", "torch:leaking": "different", "jax:padded": "checked"}
    assert by_lane["jax:padded"].value("compilations") == 2
