"""The small CNN of the three-framework study, as docs/models.md defines it."""

from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.layers import Conv, Linear, Model, Tensor, global_average_pool, max_pool


class CNN(Model):
    """Logits of shape (batch, 10) from images of shape (batch, height, width, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = Conv(3, 32, 3, bias=True)
        self.conv2 = Conv(32, 64, 3, bias=True)
        self.conv3 = Conv(64, 128, 3, bias=True)
        self.fc = Linear(128, 10)

    def call(self, x: Tensor) -> Tensor:
        x = max_pool(tf.nn.relu(self.conv1(x)), 2, 2)
        x = max_pool(tf.nn.relu(self.conv2(x)), 2, 2)
        x = tf.nn.relu(self.conv3(x))
        return self.fc(global_average_pool(x))
