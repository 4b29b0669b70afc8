"""The OpenVINO lane: its numbers beside PyTorch's, and its precisions."""

import pytest

from fwbench.frameworks.precision import check, operands
from fwbench.models import CATALOG
from fwbench.record.workload import Workload

pytest.importorskip("openvino")

from openvino_lane.adapter import FRAMEWORK


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "vit_b_16"])
def test_outputs_are_pytorchs(agrees, name):
    agrees(FRAMEWORK, "openvino", name)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_computes_in_the_precision_that_was_asked_for(precision):
    workload = Workload("openvino", "mlp", "inference", 2, precision)
    if reason := FRAMEWORK.unavailable(workload, CATALOG["mlp"]):
        assert reason == "OpenVINO does not compute in bf16 on this CPU"
        pytest.skip(reason)
    verdicts = check(precision, operands(), FRAMEWORK.probe(workload, operands()))
    assert {verdict["arithmetic"] for verdict in verdicts.values()} == {precision}
