"""The NumPy lane of docs/numpy-lane, which is an example of another package's, trains as PyTorch's does."""

from pathlib import Path

import pytest

from fwbench import frameworks
from fwbench.compare.agreement import agreement
from fwbench.meters.sketching import of_inference, of_training
from fwbench.models import CATALOG, Model
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from tests.programs import outputs

PACKAGE = Path(__file__).parents[2] / "docs" / "numpy-lane"


@pytest.fixture
def both(monkeypatch):
    """The programs of a workload in both lanes: each lane's name, with its workload, weights and program."""
    monkeypatch.syspath_prepend(PACKAGE)
    from numpy_lane import LANE

    model = CATALOG["mlp"]
    model = Model.from_json({**model.to_json(), "networks": {**model.networks, "numpy": LANE.networks["mlp"]}})

    def built(mode="train_step", **fields):
        for name, lane in (("torch", OWN["torch"]), ("numpy", LANE)):
            framework, workload = frameworks.load(lane.adapter), Workload(name, "mlp", mode, 8, **fields)
            weights = draw(model, framework.weight_shapes(model, {}), 0)
            program = framework.build(workload, model, weights, 10)
            program.compile()
            yield workload, weights, program

    return built


def losses(program):
    return outputs(program, 5)[:, 0].tolist()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_both_take_the_same_steps(both, optimizer):
    """Both see the same weights, batch, targets, optimizer and learning rate: so the losses agree."""
    torch, numpy = (losses(program) for *_, program in both(optimizer=optimizer))
    assert numpy == pytest.approx(torch, rel=1e-5)
    assert torch[0] > torch[4] > 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_restart_leads_to_the_same_steps(both, optimizer):
    _, (_, weights, numpy) = both(optimizer=optimizer)
    first = losses(numpy)
    numpy.restart(weights)
    assert losses(numpy) == first


@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_what_both_compute_agrees_with_outputs_losses_and_gradients(both, mode):
    measured = []
    for workload, weights, program in both(mode):
        with program.session():
            program.call_and_wait()
            check = of_inference(program, "fp32") if mode == "inference" else of_training(program, weights, "fp32")
        assert check.keys() == ({"output"} if mode == "inference" else {"loss", "gradients", "updates"})
        measured.append(Measurement(workload, parity={"check": check}))
    found = agreement(*measured)
    assert found.agrees, found
    # A loss that rounds alike in both differs by nothing, hence the largest of all that were held against each other.
    assert 0 < found.difference <= found.bound < 1e-3
