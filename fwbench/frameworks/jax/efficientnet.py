"""EfficientNet-B0 (Tan and Le, arXiv:1905.11946), after torchvision's definition."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from fwbench.frameworks.jax.layers import (
    Array,
    Block,
    Sequential,
    SqueezeExcitation,
    conv_norm_activation,
    global_average_pool,
)

# Expansion, kernel, stride, input channels, output channels, blocks: the paper's Table 1.
_STAGES = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)
_STOCHASTIC_DEPTH = 0.2

_conv_norm = partial(conv_norm_activation, eps=1e-5, momentum=0.1)


class StochasticDepth(Block):
    """Drops a whole row of the batch with probability `rate` while training, and scales up the rows it keeps.

    Huang et al., arXiv:1603.09382; torchvision's mode "row".
    """

    def __init__(self, rate: float):
        self.rate = rate
        self.deterministic = False

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        if self.deterministic or self.rate == 0:
            return x
        if rngs is None:
            raise ValueError("stochastic depth needs a random stream while training")
        keep = 1 - self.rate
        rows = jax.random.bernoulli(rngs.dropout(), keep, (x.shape[0], 1, 1, 1))
        return jnp.where(rows, x / keep, 0)


class MBConv(Block):
    """Expand, depthwise convolution, squeeze-and-excitation, project; a stochastic shortcut where shapes allow."""

    def __init__(
        self, expansion: int, kernel: int, stride: int, features_in: int, features_out: int, rate: float, rngs: nnx.Rngs
    ):
        expanded = features_in * expansion
        self.shortcut = stride == 1 and features_in == features_out
        self.block = Sequential([])
        if expanded != features_in:
            self.block.append(_conv_norm(features_in, expanded, activation=jax.nn.silu, rngs=rngs))
        self.block.append(
            _conv_norm(expanded, expanded, kernel, stride=stride, groups=expanded, activation=jax.nn.silu, rngs=rngs)
        )
        self.block.append(
            SqueezeExcitation(
                expanded,
                max(1, features_in // 4),
                activation=jax.nn.silu,
                scale_activation=jax.nn.sigmoid,
                rngs=rngs,
            )
        )
        self.block.append(_conv_norm(expanded, features_out, activation=None, rngs=rngs))
        self.stochastic_depth = StochasticDepth(rate)

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        y = self.block(x, rngs=rngs)
        return self.stochastic_depth(y, rngs=rngs) + x if self.shortcut else y


class EfficientNetB0(nnx.Module):
    """Logits of shape (batch, 1000) from images of shape (batch, height, width, 3)."""

    def __init__(self, rngs: nnx.Rngs):
        self.features = Sequential([_conv_norm(3, 32, 3, stride=2, activation=jax.nn.silu, rngs=rngs)])
        total = sum(blocks for *_, blocks in _STAGES)
        index = 0
        for expansion, kernel, stride, features_in, features_out, blocks in _STAGES:
            stage = Sequential([])
            for block in range(blocks):
                first = block == 0
                stage.append(
                    MBConv(
                        expansion,
                        kernel,
                        stride if first else 1,
                        features_in if first else features_out,
                        features_out,
                        _STOCHASTIC_DEPTH * index / total,
                        rngs,
                    )
                )
                index += 1
            self.features.append(stage)
        self.features.append(_conv_norm(320, 1280, activation=jax.nn.silu, rngs=rngs))
        self.classifier = Sequential([nnx.Dropout(0.2), nnx.Linear(1280, 1000, rngs=rngs)])

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        x = global_average_pool(self.features(x, rngs=rngs))
        return self.classifier(x, rngs=rngs)
