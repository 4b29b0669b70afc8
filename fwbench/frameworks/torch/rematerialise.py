"""Activation checkpointing (remat) in PyTorch: the backward pass computes a block's activations again."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from torchvision.models.efficientnet import MBConv
from torchvision.models.mobilenetv3 import InvertedResidual
from torchvision.models.resnet import Bottleneck
from torchvision.models.vision_transformer import EncoderBlock

from fwbench.models.importing import ModelError

BLOCKS = (Bottleneck, EncoderBlock, InvertedResidual, MBConv)


def rematerialise(module: torch.nn.Module, *, compiled: bool) -> None:
    """Checkpoint every block of a network.

    Args:
        compiled: for `torch.compile`, which by itself leaves running statistics out of the repeated forward pass.

    Raises:
        ModelError: the network has no such blocks.
    """
    blocks = [part for part in module.modules() if isinstance(part, BLOCKS)]
    if not blocks:
        raise ModelError(
            f"{type(module).__name__} has no blocks that activation checkpointing (remat) knows: it knows those of "
            "torchvision's ResNet, ViT, MobileNetV3 and EfficientNet"
        )
    for block in blocks:
        # The second context is for the repetition of the forward pass.
        options: dict[str, Any] = (
            {} if compiled else {"context_fn": lambda block=block: (contextlib.nullcontext(), _still(block))}
        )
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, **options)


@contextlib.contextmanager
def _still(block: torch.nn.Module) -> Iterator[None]:
    """A context in which batch norm does not count the batch: the first pass has counted it."""
    momenta = {part: part.momentum for part in block.modules() if isinstance(part, torch.nn.BatchNorm2d)}
    for norm in momenta:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum
