"""torchvision's published weights (`--fwbench-set weights=pretrained`)."""

from fwbench.extensions import Extension

EXTENSION = Extension(pretrained="fwbench.ext.pretrained.stored")
