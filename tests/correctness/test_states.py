"""State that a network's calls hand on: it is neither a weight nor compared by its name, but by what it does."""

import pytest

from fwbench.ext.proofs.case import Case, Point
from fwbench.ext.proofs.choices.proof import _Asked, prove
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.ext.proofs.jax import JaxSide
from fwbench.ext.proofs.matching import shapes
from fwbench.ext.proofs.proof import Proof
from fwbench.ext.proofs.torch import TorchSide

TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 4)
        self.register_buffer("centre", torch.zeros(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.calls = 0

    def forward(self, x):
        x = self.up(x)
        if self.training:
            self.calls += 1
            with torch.no_grad():
                self.steps += 1
                self.centre.mul_(0.9).add_(0.1 * x.mean(0))
        return x - self.centre
"""

FLAX = """
import jax
import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(6, 4, rngs=rngs)
        self.centre = nnx.BatchStat(jnp.zeros(4))
        self.steps = nnx.Variable(jnp.array(0))

    def __call__(self, x, train):
        x = self.up(x)
        if train:
            self.steps[...] = self.steps[...] + 1
            self.centre[...] = 0.9 * self.centre[...] + 0.1 * jax.lax.stop_gradient(x.mean(0))
        return x - self.centre[...]
"""

LINEN = """
import jax
import jax.numpy as jnp
from flax import linen as nn


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dense(4, name="up")(x)
        centre = self.variable("batch_stats", "centre", jnp.zeros, 4)
        if train:
            centre.value = 0.9 * centre.value + 0.1 * jax.lax.stop_gradient(x.mean(0))
        return x - centre.value
"""

RETURNED, IN_FLAX = "return x - self.centre\n", "return x - self.centre[...]"
COUNTED = {
    "a number of Python": "return (2 * x if self.calls > 100 else x) - self.centre\n",
    "a buffer": "return torch.where(self.steps > 100, 2 * x, x) - self.centre\n",
    "a buffer at a number": "return torch.where(self.steps == 100, 2 * x, x) - self.centre\n",
}


@pytest.fixture
def model(pair, monkeypatch):
    """The pair of networks, given replacements in both sources. Neither ranges nor sizes are tried."""
    import fwbench

    monkeypatch.setattr(_Asked, "sweep", lambda *_: None)
    monkeypatch.setattr(_Asked, "size", lambda *_: None)

    def build(torch=("", ""), flax=("", ""), source=FLAX):
        return pair(TORCH.replace(*torch), source.replace(*flax), inputs=fwbench.normal(6))

    return build


@pytest.mark.parametrize("source", [FLAX, LINEN], ids=["NNX", "Linen"])
def test_a_moving_average_is_no_weight_and_moves_in_both(model, source):
    built = model(source=source)
    assert shapes(built, "jax") == shapes(built, "torch") == {"up.weight": (4, 6), "up.bias": (4,)}
    trained = Proof(built, "jax", "train")
    assert [trained.worst(quantity).ratio <= 1 for quantity in ("gradients", "sgd", "adam")] == [True] * 3
    # None is planted in the buffer itself, which begins with zeros.
    assert not any("centre" in missed for missed in trained.power(60).missed)
    further = prove(built, "jax", {})
    assert list(map(str, further.points)) == ["drawn weights, after 3 training calls"]
    assert (further.untried, further.left_out) == ([], {})


def test_a_statistic_that_is_named_as_one_stays_a_weight(pair):
    import fwbench

    torch = "from torch import nn\n\n\ndef Net():\n    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))\n"
    flax = """
from flax import nnx


def Net(rngs):
    return nnx.Sequential(nnx.Linear(6, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs))
"""
    built = pair(torch, flax, inputs=fwbench.normal(6), weights={"^layers[.]": ""})
    assert shapes(built, "jax") == shapes(built, "torch")
    assert {"1.running_mean", "1.running_var"} < shapes(built, "jax").keys()


@pytest.mark.parametrize(
    "wrong",
    [
        ("x - self.centre[...]", "x - (self.centre[...] if train else 0)"),
        ("self.centre[...] = 0.9 * self.centre[...] + 0.1", "self.centre[...] = 0.1"),
    ],
    ids=["only in training", "of the last batch"],
)
def test_what_only_later_calls_show_is_found(model, wrong):
    with pytest.raises(NotTheSame, match="at drawn weights, after 3 training calls"):
        prove(model(flax=wrong), "jax", {})


@pytest.mark.parametrize("counter", COUNTED)
def test_a_counter_is_taken_beyond_the_number_it_is_compared_with(model, counter):
    torch = COUNTED[counter]
    condition = "== 100" if "==" in torch else "> 100"
    right = (IN_FLAX, f"return jnp.where(self.steps[...] {condition}, 2 * x, x) - self.centre[...]")
    further = prove(model((RETURNED, torch), right), "jax", {})
    assert further.untried == []
    assert [point.calls for point in further.points] == [3, 99 if "==" in torch else 100]
    with pytest.raises(NotTheSame, match=r"at drawn weights, after (99|100) training calls"):
        prove(model((RETURNED, torch)), "jax", {})


def test_a_counter_of_the_candidate_alone_is_taken_beyond_its_number(model):
    wrong = (IN_FLAX, "return jnp.where(self.steps[...] > 100, 2 * x, x) - self.centre[...]")
    with pytest.raises(NotTheSame, match="after 100 training calls"):
        prove(model(flax=wrong), "jax", {})


def test_a_number_that_no_time_reaches_is_not_tried(model):
    torch = (RETURNED, "return (2 * x if self.calls > 10 ** 9 else x) - self.centre\n")
    (untried,) = prove(model(torch), "jax", {}).untried
    assert untried.startswith("`calls` > 1e+09 (")


def test_each_side_tells_what_its_training_call_changes(model):
    built = model()
    assert sorted(TorchSide(Case(built)).changing) == ["calls", "centre", "steps"]
    assert sorted(JaxSide(Case(built)).changing) == ["centre", "steps"]
    assert TorchSide(Case(model(("if self.training", "if False")))).changing == ()


def test_training_calls_take_several_draws_and_leave_the_pass_its_own(model):
    side = TorchSide(Case(model(("x - self.centre", "x"))))
    after, before = side.forward(Point(calls=2)).output, side.forward().output
    assert (after == before).all()
    assert not (side.case.inputs(draw=1)[""] == side.case.inputs()[""]).any()
