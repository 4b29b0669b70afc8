"""ResNet-50 v1.5 (He et al., arXiv:1512.03385; stride in the 3x3 convolution, as torchvision has it)."""

from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.layers import (
    BatchNorm,
    Conv,
    Layer,
    Linear,
    Model,
    Sequential,
    Tensor,
    global_average_pool,
    max_pool,
)

_EXPANSION = 4


class Bottleneck(Layer):
    """1x1 down, 3x3, 1x1 up, each normalised, around a shortcut."""

    def __init__(self, features_in: int, planes: int, stride: int) -> None:
        super().__init__()
        features_out = planes * _EXPANSION
        self.conv1 = Conv(features_in, planes)
        self.bn1 = BatchNorm(planes)
        self.conv2 = Conv(planes, planes, 3, stride=stride)
        self.bn2 = BatchNorm(planes)
        self.conv3 = Conv(planes, features_out)
        self.bn3 = BatchNorm(features_out)
        shortcut = [Conv(features_in, features_out, stride=stride), BatchNorm(features_out)]
        self.downsample = Sequential(shortcut if stride != 1 or features_in != features_out else ())

    def call(self, x: Tensor) -> Tensor:
        y = tf.nn.relu(self.bn1(self.conv1(x)))
        y = tf.nn.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return tf.nn.relu(y + self.downsample(x))


class ResNet50(Model):
    """Logits of shape (batch, 1000) from images of shape (batch, height, width, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = Conv(3, 64, 7, stride=2)
        self.bn1 = BatchNorm(64)
        features = 64
        for stage, (planes, blocks, stride) in enumerate(
            ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)),
            start=1,
        ):
            layers = []
            for index in range(blocks):
                layers.append(Bottleneck(features, planes, stride if index == 0 else 1))
                features = planes * _EXPANSION
            setattr(self, f"layer{stage}", Sequential(layers))
        self.fc = Linear(features, 1000)

    def call(self, x: Tensor) -> Tensor:
        x = tf.nn.relu(self.bn1(self.conv1(x)))
        x = max_pool(x, 3, 2, padding=1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(global_average_pool(x))
