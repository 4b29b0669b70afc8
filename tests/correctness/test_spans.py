"""What each framework's profiler records of a program that is known."""

import re

import pytest

from fwbench.ext.causes.operators import profile
from fwbench.frameworks import load
from fwbench.models import CATALOG
from fwbench.models.weights import canonical
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from tests.tensorflow import needs_tensorflow

_TENSORFLOW = [pytest.param(lane, marks=needs_tensorflow) for lane in ("tensorflow", "tensorflow-xla")]
_PRODUCT = re.compile(r"addmm|dot_general|.*MatMul")
CALLS = 5


@pytest.mark.parametrize("mode", ["inference", "train_step"])
@pytest.mark.parametrize("lane", ["torch", "torch-compile", "jax", *_TENSORFLOW])
def test_a_calls_operators_are_those_of_the_network(lane, mode):
    """The three products of the MLP, each call of which waits for its end."""
    model, framework = CATALOG["mlp"], load(OWN[lane].adapter)
    workload = Workload(lane, "mlp", mode, 8, device="cpu")
    assert framework.unavailable(workload, model) is None
    program = framework.build(workload, model, canonical("drawn", model, framework.weight_shapes(model, {}), 0))
    with program.session():
        program.compile()
        program.step()
        program.wait()
        spans = program.spans(CALLS)
    assert sum(span.kind == "call" for span in spans) == CALLS
    found = profile(spans)
    assert sum(spent.seconds for spent in found.operators.values()) > 0
    if mode == "inference":
        products = {key: spent for key, spent in found.operators.items() if _PRODUCT.match(key[0])}
        assert sum(spent.runs for spent in products.values()) == 3
        # Other threads may compute at the same time.
        assert max(spent.seconds for spent in products.values()) < found.seconds
        if lane == "jax":
            assert all(re.search(r"jax/mlp\.py:\d+$", spent.place) for spent in products.values())
        if lane in ("torch", "jax", "tensorflow-xla"):
            first = "8x784" if lane == "torch" else "f32[8,256]"
            assert sum(first in shapes for _, shapes in products) == 1
