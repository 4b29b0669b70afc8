"""Activation checkpointing (remat) in JAX: the backward pass computes a block's activations again."""

from flax import nnx

from fwbench.frameworks.jax.efficientnet import MBConv
from fwbench.frameworks.jax.functional import Network
from fwbench.frameworks.jax.kinds import Nnx
from fwbench.frameworks.jax.mobilenet_v3 import InvertedResidual
from fwbench.frameworks.jax.resnet import Bottleneck
from fwbench.frameworks.jax.vit import EncoderBlock
from fwbench.models.importing import ModelError

BLOCKS = (Bottleneck, EncoderBlock, InvertedResidual, MBConv)


def rematerialised(network: Network) -> Network:
    """The network with every block checkpointed.

    Raises:
        ModelError: the network has no such blocks.
    """
    module = network.module() if isinstance(network, Nnx) else None
    blocks = [part for _, part in nnx.iter_graph(module) if isinstance(part, BLOCKS)]
    if not isinstance(network, Nnx) or not module or not blocks:
        raise ModelError(
            f"{network.model.name} has no blocks that activation checkpointing (remat) knows: in JAX it knows those of "
            "fwbench's own ResNet, ViT, MobileNetV3 and EfficientNet"
        )
    # The same classes with their calls under `nnx.remat`; a block's results and arrays are unchanged.
    checkpointed = {
        kind: type(kind.__name__, (kind,), {"__call__": nnx.remat(kind.__call__)}) for kind in set(map(type, blocks))
    }
    for block in blocks:
        object.__setattr__(block, "__class__", checkpointed[type(block)])
    return network.replaced(module)
