"""Two networks of one framework, measured as lanes in a project of a user's."""

import pytest
from projects import measured

from fwbench import frameworks
from fwbench.compare.cases import cases as of_measurements
from fwbench.compare.parity import evidence
from fwbench.models import Model, inputs
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from fwbench.report.answers import answers

NETWORKS = """
import torch
from torch import nn


class Eager(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Linear(16, 4)

    def attend(self, q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v

    def forward(self, x):  # (batch, 8, 16)
        return self.head(self.attend(*self.qkv(x).chunk(3, -1)).mean(1))


class Fused(Eager):
    def attend(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v)


class Wrong(Eager):
    def attend(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
"""
TEST = """
import fwbench

attention = fwbench.Model(
    "attention",
    torch={name.lower(): f"networks:{name}" for name in ("Eager", "Fused", "Wrong")},
    inputs=fwbench.normal(8, 16),
)


@fwbench.benchmark(attention, batch_sizes=[4])
def test_attention(fwbench_measure):
    fwbench_measure()
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """What a run found of each lane."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "networks.py").write_text(NETWORKS)
    (folder / "test_attention.py").write_text(TEST)
    _, found = measured(folder)
    return {case.workload.lane: case for case in of_measurements(found)}


@pytest.mark.slow
def test_each_network_is_a_lane_and_all_begin_with_the_same_weights(cases):
    assert list(cases) == ["torch:eager", "torch:fused", "torch:wrong"]
    parities = [case.measurements[0].parity for case in cases.values()]
    assert len({parity["weights"] for parity in parities}) == 1
    # The first one is what a proof would be of.
    assert [parity["proof"]["state"] for parity in parities] == ["alone", "derived", "derived"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "word"),
    [
        (("torch:eager", "torch:fused"), "checked"),
        (("torch:eager", "torch:wrong"), "different"),
        (("torch:fused", "torch:wrong"), "different"),
    ],
)
def test_the_run_checks_each_pair(cases, pair, word):
    assert evidence(*(cases[lane] for lane in pair)).word == word


@pytest.mark.slow
def test_the_answer_leaves_out_the_one_that_computes_something_else(cases):
    (answer,) = answers(list(cases.values()))
    assert {answer.fastest, answer.second} == {"torch:eager", "torch:fused"}
    assert answer.evidence == "checked"


@pytest.mark.parametrize("lane", ["torch-compile", "torch-compile-max"])
def test_a_lane_that_compiles_also_compiles_a_network_that_it_names(lane):
    """Not built by the lane's whole name, under which nothing would be compiled and all of it timed eagerly."""
    framework = frameworks.load(OWN[lane].adapter)
    model = Model("sums", torch={"exact": "torch.nn:ReLU"}, inputs=inputs.normal(4))
    programs = [framework.build(Workload(name, "sums"), model, {}) for name in (lane, f"{lane}:exact")]
    assert [program.compiles for program in programs] == [True, True]
    assert programs[0].settings["compile_mode"] == programs[1].settings["compile_mode"]
