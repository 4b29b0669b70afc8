"""The MNIST MLP: 784-256-128-10 with ReLU."""

from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.layers import Linear, Model, Tensor


class MLP(Model):
    """Logits of shape (batch, 10) from flat pixels of shape (batch, 784)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = Linear(784, 256)
        self.fc2 = Linear(256, 128)
        self.fc3 = Linear(128, 10)

    def call(self, x: Tensor) -> Tensor:
        x = tf.nn.relu(self.fc1(x))
        x = tf.nn.relu(self.fc2(x))
        return self.fc3(x)
