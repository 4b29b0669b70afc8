"""Activation checkpointing (remat) in TensorFlow: the backward pass computes a block's activations again."""

from fwbench.ext.tensorflow.efficientnet import MBConv
from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.mobilenet_v3 import InvertedResidual
from fwbench.ext.tensorflow.networks import Network
from fwbench.ext.tensorflow.resnet import Bottleneck
from fwbench.ext.tensorflow.vit import EncoderBlock
from fwbench.models.importing import ModelError

BLOCKS = (Bottleneck, EncoderBlock, InvertedResidual, MBConv)


def rematerialise(network: Network) -> None:
    """Checkpoint every block of a network.

    Raises:
        ModelError: the network has no such blocks.
    """
    blocks = [layer for layer in network.layers() if isinstance(layer, BLOCKS)]
    if not blocks:
        raise ModelError(
            f"{network.model.name} has no blocks that activation checkpointing (remat) knows: in TensorFlow it knows "
            "those of fwbench's own ResNet, ViT, MobileNetV3 and EfficientNet"
        )
    for block in blocks:
        setattr(block, "call", tf.recompute_grad(block.call))  # noqa: B010 (a checker would take it for a mistake)
