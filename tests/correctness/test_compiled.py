"""The proof of what `torch.compile` makes of a network: it runs the compiled program, and never the network itself."""

import functools

import pytest
import torch

import fwbench
from fwbench.ext.proofs import process
from fwbench.ext.proofs.case import Case, side
from fwbench.ext.proofs.torch import TorchSide
from fwbench.models import ModelError
from tests.correctness.planted import written

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 4)

    def forward(self, x):
        return self.up(x).sin()
"""

# Outputs 5 % too large where they are compiled, and right where a proof runs the module.
FAULT = "return self.up(x).sin() * (1.05 if torch.compiler.is_compiling() else 1.0)"

RECURRENT = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 4)

    def forward(self, x, state=None):
        y = self.up(x).cumsum(1)
        if state is None:
            return y, None
        y = y + state[:, None]
        return y, y[:, -1]


def empty(batch_size):
    return torch.zeros(batch_size, 4)
"""

# Wrong in compiled steps alone: the state is added twice where a call takes a single step.
STEP = "y = y + state[:, None] * (2 if torch.compiler.is_compiling() and x.shape[1] == 1 else 1)"


@pytest.fixture
def model(project):
    """A model of PyTorch alone, whose network is written to the project."""

    def build(source=NET, **fields):
        path = written(source, project)
        if "def empty" in source:
            fields["state"] = {"torch": path.replace(":Net", ":empty")}
        return fwbench.Model("twins", torch=path, **{"inputs": fwbench.normal(3), **fields})

    return build


@pytest.fixture(params=["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def backend(request, monkeypatch):
    """Compiles by Dynamo alone, which takes no time, or by Inductor, too."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=request.param))


def proved(model):
    return process.prove(model, "torch-compile", lambda message: None, patient=False)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("net", "state"), [(NET, "proved"), (NET.replace("return self.up(x).sin()", FAULT), "failed")])
def test_a_program_that_is_wrong_only_where_it_is_compiled_is_not_proved(model, net, state):
    found = proved(model(net))
    assert (found.candidate, found.reference, found.state) == ("torch-compile", "torch", state)
    assert list(found.bounds) == ["output"]
    assert len(found.points) >= 5
    assert ("output is 5.0e-02" in found.sentence) == (state == "failed")


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("step", "state"), [("y = y + state[:, None]", "proved"), (STEP, "failed")])
def test_compiled_steps_are_compared_with_the_whole_sequence(model, step, state):
    source = RECURRENT.replace("y = y + state[:, None]", step)
    found = proved(model(source, inputs=fwbench.normal("length", 3), axes={"length": (4, 6)}))
    assert found.state == state
    assert ("a prompt of" in found.sentence) == (state == "failed")
    assert ("steps" in found.bounds) == (state == "proved")


def test_a_program_that_torch_does_not_compile_is_no_proof(model):
    """As under TORCH_COMPILE_DISABLE, or where a dispatch mode is on: Dynamo then runs the module without an error."""
    compiled = side("torch-compile")(Case(model()))
    with torch.compiler.set_stance("force_eager"), pytest.raises(ModelError, match="compiled nothing"):
        compiled.forward()


def test_a_lane_without_a_program_of_its_own_in_proofs_has_its_frameworks_side():
    assert side("torch") is TorchSide
    assert issubclass(side("torch-compile"), TorchSide)
    with pytest.raises(ModelError, match="torch-compile-max"):
        side("torch-compile-max")
