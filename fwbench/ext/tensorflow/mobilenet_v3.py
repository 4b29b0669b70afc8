"""MobileNetV3-Small (Howard et al., arXiv:1905.02244), after torchvision's definition."""

from functools import partial

from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.layers import (
    Activation,
    Dropout,
    Layer,
    Linear,
    Model,
    Sequential,
    SqueezeExcitation,
    Tensor,
    conv_norm_activation,
    global_average_pool,
    hard_sigmoid,
    hard_swish,
)

# Kernel, expanded channels, output channels, squeeze-and-excitation, activation, stride: the paper's Table 2.
_LAYERS = (
    (3, 16, 16, True, tf.nn.relu, 2),
    (3, 72, 24, False, tf.nn.relu, 2),
    (3, 88, 24, False, tf.nn.relu, 1),
    (5, 96, 40, True, hard_swish, 2),
    (5, 240, 40, True, hard_swish, 1),
    (5, 240, 40, True, hard_swish, 1),
    (5, 120, 48, True, hard_swish, 1),
    (5, 144, 48, True, hard_swish, 1),
    (5, 288, 96, True, hard_swish, 2),
    (5, 576, 96, True, hard_swish, 1),
    (5, 576, 96, True, hard_swish, 1),
)

_conv_norm = partial(conv_norm_activation, eps=1e-3, momentum=0.01)


def make_divisible(channels: float, divisor: int = 8) -> int:
    """The multiple of `divisor` nearest to `channels`, but never more than 10 % below it."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


class InvertedResidual(Layer):
    """Expand, depthwise convolution, squeeze-and-excitation, project; a shortcut where shapes allow."""

    def __init__(self, features_in: int, row: tuple[int, int, int, bool, Activation, int]) -> None:
        super().__init__()
        kernel, expanded, features_out, excite, activation, stride = row
        self.shortcut = stride == 1 and features_in == features_out
        block: list[Layer] = []
        if expanded != features_in:
            block.append(_conv_norm(features_in, expanded, activation=activation))
        block.append(_conv_norm(expanded, expanded, kernel, stride=stride, depthwise=True, activation=activation))
        if excite:
            squeeze = make_divisible(expanded // 4)
            block.append(SqueezeExcitation(expanded, squeeze, activation=tf.nn.relu, scale_activation=hard_sigmoid))
        block.append(_conv_norm(expanded, features_out, activation=None))
        self.block = Sequential(block)

    def call(self, x: Tensor) -> Tensor:
        y = self.block(x)
        return x + y if self.shortcut else y


class MobileNetV3Small(Model):
    """Logits of shape (batch, 1000) from images of shape (batch, height, width, 3)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[Layer] = [_conv_norm(3, 16, 3, stride=2, activation=hard_swish)]
        features = 16
        for row in _LAYERS:
            layers.append(InvertedResidual(features, row))
            features = row[2]
        layers.append(_conv_norm(features, 6 * features, activation=hard_swish))
        self.features = Sequential(layers)
        self.classifier = Sequential([Linear(6 * features, 1024), hard_swish, Dropout(0.2), Linear(1024, 1000)])

    def call(self, x: Tensor) -> Tensor:
        return self.classifier(global_average_pool(self.features(x)))
