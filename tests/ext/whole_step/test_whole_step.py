"""The lane that compiles a training step whole, beside the eager one."""

import dataclasses

import numpy as np
import pytest
import torch

import fwbench
from fwbench import frameworks
from fwbench.frameworks.torch.program import compile_mode
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.workload import DEVICES, Workload
from fwbench.suite.profiles import PROFILES
from tests import programs

LANE, BATCH, HORIZON = "torch-compile-step", 8, 6


class Normed(torch.nn.Module):
    """Running statistics, a frozen parameter, and one that is used twice."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.twice = torch.nn.Linear(8, 8)
        self.frozen = torch.nn.Parameter(torch.ones(8), requires_grad=False)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().mean((2, 3)) * self.frozen
        return self.head(self.twice(self.twice(x).relu()))


class Random(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.head = torch.nn.Linear(6, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.drop(self.first(x).relu()))


def model(network, inputs):
    return fwbench.Model(network.lower(), torch=f"{__name__}:{network}", inputs=inputs, classes=4)


NORMED = model("Normed", fwbench.image(6, 6, 3))
RANDOM = model("Random", fwbench.normal(6))


def built(row, lane=LANE, mode="train_step", **fields):
    program, start = programs.built(Workload(lane, row.name, mode, BATCH, **fields), row, HORIZON)
    if mode == "train_step":
        program.compile()
        # Compiling makes a step.
        program.restart(start)
    return program, start


def stepped(program, steps):
    return programs.outputs(program, steps)[:, 0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_it_takes_the_steps_of_the_eager_lane_in_one_graph(optimizer):
    """In float64, so that a wrong constant cannot hide in rounding; beyond the end of the schedule."""
    fields = {"optimizer": optimizer, "learning_rate": 0.05, "precision": "fp64"}
    (eager, start), (whole, _) = (built(NORMED, lane, **fields) for lane in ("torch", LANE))
    compilations = whole.compilations()
    stepped(eager, 1), stepped(whole, 1)
    expected, found = eager.gradients(), whole.gradients()
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-12)
    losses = stepped(eager, HORIZON // 2)
    assert stepped(whole, HORIZON // 2) == pytest.approx(losses, rel=1e-9)
    whole.relocate()
    assert stepped(whole, HORIZON) == pytest.approx(stepped(eager, HORIZON), rel=1e-9)
    expected, found = eager.weights(), whole.weights()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-10, err_msg=name)
        assert np.array_equal(found[name], start[name]) == (name == "frozen")
    assert (whole.fingerprint().graph_breaks, whole.compilations()) == (0, compilations)
    # Of the forward pass in both, whoever makes the gradients.
    eager.fingerprint()
    assert whole.forward_flops() == eager.forward_flops() > 0


@pytest.mark.slow
def test_it_starts_again_from_the_same_random_numbers_or_from_others():
    program, start = built(RANDOM)
    first = stepped(program, 3)
    program.restart(start)
    assert stepped(program, 3) == first
    program.restart(start, draw=1)
    assert stepped(program, 3) != first


@pytest.mark.slow
def test_epochs_in_it_are_those_of_the_eager_lane():
    rng = np.random.default_rng(0)
    batches = [(rng.random((BATCH, 784), np.float32), rng.integers(0, 10, BATCH, np.int32)) for _ in range(3)]
    told = []
    for lane in ("torch", LANE):
        program, _ = built(CATALOG["mlp"], lane, "fit", learning_rate=1e-3)
        for batch in batches:
            program.feed(*batch)
            program.step()
        curve = program.curve()
        program.score(*batches[0])
        told.append((curve, program.scores()))
    (expected, scores), (found, of_whole) = told
    assert np.array(found) == pytest.approx(np.array(expected), rel=1e-5)
    assert dataclasses.astuple(of_whole) == pytest.approx(dataclasses.astuple(scores), rel=1e-4)


@pytest.mark.parametrize(
    "fields", [{"mode": "inference"}, {"mode": "train_step", "accumulate": 2}, {"mode": "train_step", "remat": True}]
)
@pytest.mark.parametrize("lane", [LANE, f"{LANE}:exact"])
def test_what_it_has_no_step_for_is_refused_in_one_sentence(lane, fields):
    workload = Workload(lane, "resnet50", batch_size=BATCH, **fields)
    reason = frameworks.load(LANES[lane].adapter).unavailable(workload, CATALOG["resnet50"])
    assert reason.endswith("measure torch-compile")
    assert reason.startswith(f"the lane {LANE} ")


def test_it_is_measured_only_when_it_is_asked_for():
    asked = {(profile, device): LANES[LANE].is_measured(profile, device) for profile in PROFILES for device in DEVICES}
    assert not any(asked.values()), asked


def test_it_compiles_on_a_gpu_for_cuda_graphs():
    assert compile_mode(LANE, torch.device("cuda")) == "reduce-overhead"
