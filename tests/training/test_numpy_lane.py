"""The NumPy lane of docs/numpy-lane, which is an example of another package's, trains as PyTorch's does."""

from pathlib import Path

import pytest

from fwbench import frameworks
from fwbench.models import CATALOG, Model
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload

PACKAGE = Path(__file__).parents[2] / "docs" / "numpy-lane"


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_both_take_the_same_steps(monkeypatch, optimizer):
    """Both see the same weights, batch, targets, optimizer and learning rate: so the losses agree."""
    monkeypatch.syspath_prepend(PACKAGE)
    from numpy_lane import LANE

    model = CATALOG["mlp"]
    model = Model.from_json({**model.to_json(), "networks": {**model.networks, "numpy": LANE.networks["mlp"]}})
    losses = {}
    for name, lane in (("torch", OWN["torch"]), ("numpy", LANE)):
        framework = frameworks.load(lane.adapter)
        weights = draw(model, framework.weight_shapes(model, {}), 0)
        program = framework.build(Workload(name, "mlp", "train_step", 8, optimizer=optimizer), model, weights, 10)
        program.compile()
        losses[name] = []
        for _ in range(5):
            program.step()
            program.wait()
            losses[name].append(float(program.output()[0]))
    assert losses["numpy"] == pytest.approx(losses["torch"], rel=1e-5)
    assert losses["torch"][0] > losses["torch"][4] > 0
