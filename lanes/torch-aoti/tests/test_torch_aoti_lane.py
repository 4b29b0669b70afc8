"""The AOTInductor lane: its numbers beside PyTorch's."""

import pytest
from torch_aoti_lane.adapter import FRAMEWORK


@pytest.mark.slow
def test_outputs_are_pytorchs(agrees):
    agrees(FRAMEWORK, "torch-aoti", "cnn")
