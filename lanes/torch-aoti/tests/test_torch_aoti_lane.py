"""The AOTInductor lane: its numbers beside PyTorch's."""

from torch_aoti_lane.adapter import FRAMEWORK


def test_outputs_are_pytorchs(agrees):
    agrees(FRAMEWORK, "torch-aoti", "cnn")
