"""The precision probe on the real lanes, on the device at hand."""

import platform
import re

import numpy as np
import pytest

from fwbench.frameworks import load
from fwbench.frameworks.precision import check, operands
from fwbench.machine import machine
from fwbench.meters.products import matrices
from fwbench.models import CATALOG
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from tests.tensorflow import TENSORFLOW, XLA

LANES = ("torch", "torch-compile", "jax", TENSORFLOW, XLA)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("lane", LANES)
def test_the_arithmetic_asked_for_is_in_force(lane, precision):
    workload = Workload(lane, "mlp", precision=precision, device=machine().device)
    framework = load(OWN[lane].adapter)
    model = CATALOG["mlp"]
    reason = framework.unavailable(workload, model)
    if machine().device == "cpu" and precision == "tf32":
        assert reason == "a CPU has no TF32 arithmetic: ask for fp32 or bf16"
        return
    assert reason is None
    framework.build(workload, model, draw(model, framework.weight_shapes(model, model.sizes()), 0))
    given = operands()
    result = check(precision, given, framework.probe(workload, given))
    assert {verdict["arithmetic"] for verdict in result.values()} == {precision}


@pytest.mark.parametrize("lane", LANES)
def test_the_rate_is_of_a_true_matrix_product(lane):
    workload = Workload(lane, "mlp", device=machine().device)
    left, right = matrices()
    product, library = load(OWN[lane].adapter).matrix_product(workload, left, right)
    found = product()
    found = np.asarray(found.cpu() if hasattr(found, "cpu") else found)
    # By NumPy: pytest.approx takes seconds for a million numbers.
    np.testing.assert_allclose(found, left @ right, rtol=1e-4, atol=1e-12)
    known = {"jax": "XLA", "tensorflow-xla": "XLA", "tensorflow": "oneDNN"}
    assert library == known.get(lane, "MKL") or platform.machine() != "x86_64"


@pytest.mark.parametrize(("precision", "wanted"), [("fp32", "HIGHEST"), ("tf32", "DEFAULT")])
def test_what_jax_asks_xla_for_on_a_gpu(precision, wanted):
    """Triton's kernels make TF32 of XLA's default alone: of HIGH, which JAX calls tensorfloat32, they make IEEE."""
    framework = load(OWN["jax"].adapter)
    model = CATALOG["cnn"]
    weights = draw(model, framework.weight_shapes(model, model.sizes()), 0)
    program = framework.build(Workload("jax", "cnn", precision=precision), model, weights)
    text = program.function.trace(*program.arguments).lower(lowering_platforms=("cuda",)).as_text()
    asked = set(re.findall(r"precision = \[([^\]]*)\]|precision<(\w+)>", text))
    assert {word for words in asked for word in re.findall(r"\w+", " ".join(words))} == {wanted}
