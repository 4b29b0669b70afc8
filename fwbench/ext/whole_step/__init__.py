"""The lane `torch-compile-step`: training steps that `torch.compile` turns into one program each."""

from fwbench.extensions import Extension

EXTENSION = Extension(lanes="fwbench.ext.whole_step.lanes:LANES")
