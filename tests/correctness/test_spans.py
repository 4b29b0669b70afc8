"""What each framework's profiler records of a program that is known."""

import re

import pytest

from fwbench.record.workload import Workload
from tests.programs import built
from tests.tensorflow import needs_tensorflow

pytestmark = pytest.mark.optimised

_TENSORFLOW = [pytest.param(lane, marks=needs_tensorflow) for lane in ("tensorflow", "tensorflow-xla")]
# XLA gives products of small networks to YNNPACK.
_PRODUCT = re.compile(r"addmm|dot_general|ynn_fusion|.*MatMul")
CALLS = 5


@pytest.mark.parametrize("mode", ["inference", "train_step"])
@pytest.mark.parametrize("lane", ["torch", pytest.param("torch-compile", marks=pytest.mark.slow), "jax", *_TENSORFLOW])
def test_a_calls_operators_are_those_of_the_network(lane, mode):
    """The three products of the MLP, each call of which waits for its end."""
    program, _ = built(Workload(lane, "mlp", mode, 8, device="cpu"))
    with program.session():
        program.compile()
        program.call_and_wait()
        spans = program.spans(CALLS)
    assert sum(span.kind == "call" for span in spans) == CALLS
    assert sum(span.seconds for span in spans if span.kind == "operator") > 0
    if mode == "inference":
        # The first call warms the profiler up.
        for call in sorted((span for span in spans if span.kind == "call"), key=lambda span: span.start)[1:]:
            end = call.start + call.seconds
            within = [span for span in spans if span.kind == "operator" and call.start <= span.start < end]
            products = [span for span in within if _PRODUCT.match(span.name)]
            assert len(products) == 3
            # Other threads may compute at the same time.
            assert max(span.seconds for span in products) < call.seconds
            if lane == "jax":
                assert all(re.search(r"jax/mlp\.py:\d+$", span.place) for span in products)
            if lane in ("torch", "jax", "tensorflow-xla"):
                first = "8x784" if lane == "torch" else "f32[8,256]"
                assert len({span.shapes for span in products if first in span.shapes}) == 1
