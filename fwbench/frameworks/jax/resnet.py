"""ResNet-50 v1.5 (He et al., arXiv:1512.03385; stride in the 3x3 convolution, as torchvision has it)."""

import jax
from flax import nnx

from fwbench.frameworks.jax.layers import (
    Array,
    BatchNorm,
    Block,
    Sequential,
    conv,
    global_average_pool,
    max_pool,
)

_EXPANSION = 4


class Bottleneck(Block):
    """1x1 down, 3x3, 1x1 up, each normalised, around a shortcut."""

    def __init__(self, features_in: int, planes: int, stride: int, rngs: nnx.Rngs):
        features_out = planes * _EXPANSION
        self.conv1 = conv(features_in, planes, rngs=rngs)
        self.bn1 = BatchNorm(planes, rngs=rngs)
        self.conv2 = conv(planes, planes, 3, stride=stride, rngs=rngs)
        self.bn2 = BatchNorm(planes, rngs=rngs)
        self.conv3 = conv(planes, features_out, rngs=rngs)
        self.bn3 = BatchNorm(features_out, rngs=rngs)
        self.downsample = Sequential([])
        if stride != 1 or features_in != features_out:
            self.downsample = Sequential(
                [conv(features_in, features_out, stride=stride, rngs=rngs), BatchNorm(features_out, rngs=rngs)]
            )

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        y = jax.nn.relu(self.bn1(self.conv1(x)))
        y = jax.nn.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return jax.nn.relu(y + self.downsample(x))


class ResNet50(nnx.Module):
    """Logits of shape (batch, 1000) from images of shape (batch, height, width, 3)."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = conv(3, 64, 7, stride=2, rngs=rngs)
        self.bn1 = BatchNorm(64, rngs=rngs)
        features = 64
        for stage, (planes, blocks, stride) in enumerate(
            ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)),
            start=1,
        ):
            layers = Sequential([])
            for index in range(blocks):
                layers.append(Bottleneck(features, planes, stride if index == 0 else 1, rngs))
                features = planes * _EXPANSION
            setattr(self, f"layer{stage}", layers)
        self.fc = nnx.Linear(features, 1000, rngs=rngs)

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        x = jax.nn.relu(self.bn1(self.conv1(x)))
        x = max_pool(x, 3, 2, padding=1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(global_average_pool(x))
