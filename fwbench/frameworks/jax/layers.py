"""Layers with torchvision's numerics, shared by the networks that share them there. Images are NHWC."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from fwbench.frameworks.jax.convolutions import convolution

Array = jax.Array
Activation = Callable[[Array], Array]


class Block(nnx.Module):
    """A part of a network that may contain stochastic layers; called with the batch and their random stream."""

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        raise NotImplementedError


class Sequential(nnx.List[Any]):
    """Layers in order, under their indices, as torch's container names them. Plain functions take an index too."""

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        for layer in self:
            x = layer(x, rngs=rngs) if isinstance(layer, (Block, Sequential, nnx.Dropout)) else layer(x)
        return x


class BatchNorm(nnx.BatchNorm):
    """Batch normalisation over N, H and W as PyTorch trains it.

    `momentum` is PyTorch's: the weight of the new batch. Unlike Flax's, the running variance is updated with the
    unbiased estimate (PyTorch: torch.nn.BatchNorm2d, "Note"), while the batch itself is normalised with the biased one.
    """

    def __init__(self, features: int, *, eps: float = 1e-5, momentum: float = 0.1, rngs: nnx.Rngs):
        super().__init__(features, epsilon=eps, momentum=1 - momentum, use_fast_variance=False, rngs=rngs)

    def __call__(self, x: Array, use_running_average: bool | None = None, *, mask: Array | None = None) -> Array:
        before = self.var[...] if not self.use_running_average else None
        y = super().__call__(x, use_running_average, mask=mask)
        if before is not None:
            # super() mixed in the biased variance; scale that share by n / (n - 1).
            n = x.size // x.shape[-1]
            kept = self.momentum * before
            self.var[...] = kept + (self.var[...] - kept) * (n / (n - 1))
        return y


def conv(
    features_in: int,
    features_out: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
    padding: int | None = None,
    rngs: nnx.Rngs,
) -> nnx.Conv:
    """A square convolution with PyTorch's explicit padding, (kernel - 1) // 2 unless given.

    "SAME" would pad the other side at stride 2.
    """
    pad = (kernel - 1) // 2 if padding is None else padding
    return nnx.Conv(
        features_in,
        features_out,
        (kernel, kernel),
        strides=(stride, stride),
        padding=[(pad, pad), (pad, pad)],
        feature_group_count=groups,
        use_bias=bias,
        conv_general_dilated=convolution,
        rngs=rngs,
    )


def conv_norm_activation(
    features_in: int,
    features_out: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: Activation | None,
    eps: float,
    momentum: float,
    rngs: nnx.Rngs,
) -> Sequential:
    """torchvision's Conv2dNormActivation: convolution without bias, batch normalisation, activation."""
    layers: list[Any] = [
        conv(features_in, features_out, kernel, stride=stride, groups=groups, rngs=rngs),
        BatchNorm(features_out, eps=eps, momentum=momentum, rngs=rngs),
    ]
    if activation is not None:
        layers.append(activation)
    return Sequential(layers)


class SqueezeExcitation(nnx.Module):
    """Channel attention (Hu et al., arXiv:1709.01507): global mean, two 1x1 convolutions, channel-wise scale."""

    def __init__(
        self, features: int, squeeze: int, *, activation: Activation, scale_activation: Activation, rngs: nnx.Rngs
    ):
        self.fc1 = conv(features, squeeze, bias=True, rngs=rngs)
        self.fc2 = conv(squeeze, features, bias=True, rngs=rngs)
        self.activation = activation
        self.scale_activation = scale_activation

    def __call__(self, x: Array) -> Array:
        scale = jnp.mean(x, axis=(1, 2), keepdims=True)
        scale = self.scale_activation(self.fc2(self.activation(self.fc1(scale))))
        return x * scale


def max_pool(x: Array, kernel: int, stride: int, padding: int = 0) -> Array:
    """Max pooling whose padding never wins: it is minus infinity."""
    pads = [(padding, padding), (padding, padding)]
    return nnx.max_pool(x, (kernel, kernel), strides=(stride, stride), padding=pads)


def global_average_pool(x: Array) -> Array:
    """Mean over height and width: (batch, height, width, channels) to (batch, channels)."""
    return jnp.mean(x, axis=(1, 2))
