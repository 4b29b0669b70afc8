"""MobileNetV3-Small (Howard et al., arXiv:1905.02244), after torchvision's definition."""

from functools import partial

import jax
from flax import nnx

from fwbench.frameworks.jax.layers import (
    Activation,
    Array,
    Block,
    Sequential,
    SqueezeExcitation,
    conv_norm_activation,
    global_average_pool,
)

# Kernel, expanded channels, output channels, squeeze-and-excitation, activation, stride: the paper's Table 2.
_LAYERS = (
    (3, 16, 16, True, jax.nn.relu, 2),
    (3, 72, 24, False, jax.nn.relu, 2),
    (3, 88, 24, False, jax.nn.relu, 1),
    (5, 96, 40, True, jax.nn.hard_swish, 2),
    (5, 240, 40, True, jax.nn.hard_swish, 1),
    (5, 240, 40, True, jax.nn.hard_swish, 1),
    (5, 120, 48, True, jax.nn.hard_swish, 1),
    (5, 144, 48, True, jax.nn.hard_swish, 1),
    (5, 288, 96, True, jax.nn.hard_swish, 2),
    (5, 576, 96, True, jax.nn.hard_swish, 1),
    (5, 576, 96, True, jax.nn.hard_swish, 1),
)

_conv_norm = partial(conv_norm_activation, eps=1e-3, momentum=0.01)


def make_divisible(channels: float, divisor: int = 8) -> int:
    """The multiple of `divisor` nearest to `channels`, but never more than 10 % below it."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


class InvertedResidual(Block):
    """Expand, depthwise convolution, squeeze-and-excitation, project; a shortcut where shapes allow."""

    def __init__(self, features_in: int, row: tuple[int, int, int, bool, Activation, int], rngs: nnx.Rngs):
        kernel, expanded, features_out, excite, activation, stride = row
        self.shortcut = stride == 1 and features_in == features_out
        self.block = Sequential([])
        if expanded != features_in:
            self.block.append(_conv_norm(features_in, expanded, activation=activation, rngs=rngs))
        self.block.append(
            _conv_norm(expanded, expanded, kernel, stride=stride, groups=expanded, activation=activation, rngs=rngs)
        )
        if excite:
            self.block.append(
                SqueezeExcitation(
                    expanded,
                    make_divisible(expanded // 4),
                    activation=jax.nn.relu,
                    scale_activation=jax.nn.hard_sigmoid,
                    rngs=rngs,
                )
            )
        self.block.append(_conv_norm(expanded, features_out, activation=None, rngs=rngs))

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        y = self.block(x, rngs=rngs)
        return x + y if self.shortcut else y


class MobileNetV3Small(nnx.Module):
    """Logits of shape (batch, 1000) from images of shape (batch, height, width, 3)."""

    def __init__(self, rngs: nnx.Rngs):
        self.features = Sequential([_conv_norm(3, 16, 3, stride=2, activation=jax.nn.hard_swish, rngs=rngs)])
        features = 16
        for row in _LAYERS:
            self.features.append(InvertedResidual(features, row, rngs))
            features = row[2]
        self.features.append(_conv_norm(features, 6 * features, activation=jax.nn.hard_swish, rngs=rngs))
        self.classifier = Sequential(
            [
                nnx.Linear(6 * features, 1024, rngs=rngs),
                jax.nn.hard_swish,
                nnx.Dropout(0.2),
                nnx.Linear(1024, 1000, rngs=rngs),
            ]
        )

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        x = global_average_pool(self.features(x, rngs=rngs))
        return self.classifier(x, rngs=rngs)
