"""EfficientNet-B0 (Tan and Le, arXiv:1905.11946), after torchvision's definition."""

from functools import partial

from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.layers import (
    Dropout,
    Layer,
    Linear,
    Model,
    Sequential,
    SqueezeExcitation,
    StochasticDepth,
    Tensor,
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


class MBConv(Layer):
    """Expand, depthwise convolution, squeeze-and-excitation, project; a stochastic shortcut where shapes allow."""

    def __init__(
        self, expansion: int, kernel: int, stride: int, features_in: int, features_out: int, rate: float
    ) -> None:
        super().__init__()
        expanded = features_in * expansion
        self.shortcut = stride == 1 and features_in == features_out
        block: list[Layer] = []
        if expanded != features_in:
            block.append(_conv_norm(features_in, expanded, activation=tf.nn.silu))
        block.append(_conv_norm(expanded, expanded, kernel, stride=stride, depthwise=True, activation=tf.nn.silu))
        squeeze = max(1, features_in // 4)
        block.append(SqueezeExcitation(expanded, squeeze, activation=tf.nn.silu, scale_activation=tf.nn.sigmoid))
        block.append(_conv_norm(expanded, features_out, activation=None))
        self.block = Sequential(block)
        self.stochastic_depth = StochasticDepth(rate)

    def call(self, x: Tensor) -> Tensor:
        y = self.block(x)
        return self.stochastic_depth(y) + x if self.shortcut else y


class EfficientNetB0(Model):
    """Logits of shape (batch, 1000) from images of shape (batch, height, width, 3)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[Layer] = [_conv_norm(3, 32, 3, stride=2, activation=tf.nn.silu)]
        total = sum(blocks for *_, blocks in _STAGES)
        index = 0
        for expansion, kernel, stride, features_in, features_out, blocks in _STAGES:
            stage = []
            for block in range(blocks):
                rate = _STOCHASTIC_DEPTH * index / total
                given, step = (features_out, 1) if block else (features_in, stride)
                stage.append(MBConv(expansion, kernel, step, given, features_out, rate))
                index += 1
            layers.append(Sequential(stage))
        layers.append(_conv_norm(320, 1280, activation=tf.nn.silu))
        self.features = Sequential(layers)
        self.classifier = Sequential([Dropout(0.2), Linear(1280, 1000)])

    def call(self, x: Tensor) -> Tensor:
        return self.classifier(global_average_pool(self.features(x)))
