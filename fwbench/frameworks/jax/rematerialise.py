"""Rematerialisation in JAX: a block's activations are computed again in the backward pass instead of kept."""

from flax import nnx

from fwbench.frameworks.jax.efficientnet import MBConv
from fwbench.frameworks.jax.mobilenet_v3 import InvertedResidual
from fwbench.frameworks.jax.resnet import Bottleneck
from fwbench.frameworks.jax.vit import EncoderBlock

BLOCKS = (Bottleneck, EncoderBlock, InvertedResidual, MBConv)


def rematerialise(module: nnx.Module) -> None:
    """Checkpoint every block of a network.

    Raises:
        ValueError: the network has no such blocks.
    """
    blocks = [part for _, part in nnx.iter_graph(module) if isinstance(part, BLOCKS)]
    if not blocks:
        raise ValueError(f"{type(module).__name__} has no blocks to rematerialise")
    # The same classes, their calls under `nnx.remat`; what a block computes and holds stays what it is.
    checkpointed = {
        kind: type(kind.__name__, (kind,), {"__call__": nnx.remat(kind.__call__)}) for kind in set(map(type, blocks))
    }
    for block in blocks:
        object.__setattr__(block, "__class__", checkpointed[type(block)])
