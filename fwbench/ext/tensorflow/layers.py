"""Layers with torchvision's numerics, shared by the networks that share them there. Images are NHWC.

Weights have PyTorch's names, or the name `kernel` if the order of their axes differs from PyTorch's. Their values come
from the canonical weights, so none is drawn.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fwbench.ext.tensorflow.convolutions import convolution
from fwbench.ext.tensorflow.imported import keras, tf

Tensor = Any  # TensorFlow has no types that a checker could read
Activation = Callable[[Tensor], Tensor]


@dataclass
class Training:
    """State that a training step shares with its layers; without it, they are in inference mode.

    Keras's argument `training` would not do: it is lost when a block is computed again for its gradients.

    Attributes:
        seed: seed of this step's random numbers, two int32.
        statistics: running statistics and their new values, which the step assigns at its end: a block that is computed
            twice to save memory must not count its batch twice.
    """

    seed: Tensor
    statistics: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)
    _graph: Any = field(default_factory=tf.compat.v1.get_default_graph)

    def note(self, variable: Any, value: Tensor) -> None:
        """Note a statistic's new value, unless one is noted already: a checkpointed block runs a second time."""
        # Keras traces a user's model once more, in a graph that it drops.
        if tf.compat.v1.get_default_graph() is self._graph:
            self.statistics.setdefault(id(variable), (variable, tf.cast(value, variable.dtype)))

    def assign(self) -> None:
        """Give the running statistics their new values."""
        for variable, value in self.statistics.values():
            variable.assign(value)


_training: Training | None = None


@contextmanager
def training(seed: Tensor) -> Iterator[Training]:
    """A context that makes the layers called in it part of one training step."""
    global _training
    before, _training = _training, Training(seed)
    try:
        yield _training
    finally:
        _training = before


class _Built:
    """A layer with all its weights from the beginning; otherwise Keras would trace it to find them."""

    def __init__(self) -> None:
        super().__init__()
        self.built = True

    def build(self, *shapes: Any) -> None:
        """Do nothing: all weights exist."""


class Model(_Built, keras.Model):
    """A network."""


class Layer(_Built, keras.layers.Layer):
    """A layer of a network."""

    def weight(self, name: str, *shape: int, trainable: bool = True, autocast: bool = True) -> Any:
        """A weight, to which a canonical weight will be assigned."""
        return self.add_weight(shape=shape, initializer="zeros", name=name, trainable=trainable, autocast=autocast)


class Sequential(Layer):
    """Layers in order, under their indices, as torch's container names them. Plain functions take an index too."""

    def __init__(self, layers: Sequence[Any] = ()) -> None:
        super().__init__()
        self.layers = list(layers)

    def call(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Linear(Layer):
    """A product with a weight, and a bias; all rows of the batch form one matrix."""

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.kernel = self.weight("kernel", features_in, features_out)
        self.bias = self.weight("bias", features_out)

    def call(self, x: Tensor) -> Tensor:
        rows = tf.reshape(x, (-1, x.shape[-1])) if len(x.shape) > 2 else x
        y = tf.nn.bias_add(tf.matmul(rows, self.kernel), self.bias)
        return tf.reshape(y, (*x.shape[:-1], y.shape[-1])) if len(x.shape) > 2 else y


class Conv(Layer):
    """A square convolution with PyTorch's explicit padding, (kernel - 1) // 2 unless given.

    "SAME" would pad the other side at stride 2.
    """

    def __init__(
        self,
        features_in: int,
        features_out: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        depthwise: bool = False,
        bias: bool = False,
        padding: int | None = None,
    ) -> None:
        super().__init__()
        self.stride = stride
        pad = (kernel - 1) // 2 if padding is None else padding
        self.padding: Any = ((pad, pad), (pad, pad))
        self.depthwise = depthwise
        name = "depthwise_kernel" if depthwise else "kernel"
        self.kernel = self.weight(name, kernel, kernel, features_in, 1 if depthwise else features_out)
        self.bias = self.weight("bias", features_out) if bias else None

    def call(self, x: Tensor) -> Tensor:
        y = convolution(x, tf.convert_to_tensor(self.kernel), self.stride, self.padding, depthwise=self.depthwise)
        return y if self.bias is None else tf.nn.bias_add(y, self.bias)


class BatchNorm(Layer):
    """Batch normalisation over N, H and W as PyTorch trains it.

    `momentum` is PyTorch's: the weight of the new batch. TensorFlow's fused operator, unlike Keras's layer, updates the
    running variance with the unbiased estimate, as PyTorch does (torch.nn.BatchNorm2d, "Note").
    """

    def __init__(self, features: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.scale = self.weight("weight", features, autocast=False)
        self.offset = self.weight("bias", features, autocast=False)
        self.mean = self.weight("running_mean", features, trainable=False, autocast=False)
        self.variance = self.weight("running_var", features, trainable=False, autocast=False)

    def call(self, x: Tensor) -> Tensor:
        normalise = defined_batch_norm if x.dtype == tf.float64 else fused_batch_norm
        held = (self.scale, self.offset, self.mean, self.variance)
        scale, offset, mean, variance = (_wide(tf.convert_to_tensor(one)) for one in held)
        train = _training is not None
        y, mean, variance = normalise(x, scale, offset, mean, variance, self.eps, self.momentum, train)
        if _training is not None:
            _training.note(self.mean, mean)
            _training.note(self.variance, variance)
        return y


def fused_batch_norm(
    x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor, eps: float, momentum: float, train: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """TensorFlow's own operator: the normalised batch, and the running statistics after it.

    Args:
        scale, offset, mean, variance: float32, of shape (channels,).
        train: whether to normalise with the batch's own statistics.
    """
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=scale,
        offset=offset,
        mean=mean,
        variance=variance,
        epsilon=eps,
        exponential_avg_factor=momentum if train else 1.0,
        is_training=train,
    )
    return y, mean, variance


def defined_batch_norm(
    x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor, eps: float, momentum: float, train: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The results of `fused_batch_norm` by definition, for float64, in which TensorFlow's operator does not compute."""
    after = mean, variance
    if train:
        count = x.shape.num_elements() // x.shape[-1]
        mean, variance = tf.nn.moments(x, (0, 1, 2))
        kept = 1 - momentum
        unbiased = variance * (count / (count - 1))
        after = after[0] * kept + mean * momentum, after[1] * kept + unbiased * momentum
    return (x - mean) * (tf.math.rsqrt(variance + eps) * scale) + offset, *after


class LayerNorm(Layer):
    """Layer normalisation over the last axis."""

    def __init__(self, features: int, *, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.scale = self.weight("weight", features, autocast=False)
        self.offset = self.weight("bias", features, autocast=False)

    def call(self, x: Tensor) -> Tensor:
        wide = _wide(x)
        mean, variance = tf.nn.moments(wide, -1, keepdims=True)
        scale, offset = _wide(tf.convert_to_tensor(self.scale)), _wide(tf.convert_to_tensor(self.offset))
        return tf.cast((wide - mean) * tf.math.rsqrt(variance + self.eps) * scale + offset, x.dtype)


class Dropout(Layer):
    """Drops elements with probability `rate` while training, and scales up the others.

    Elements that share a random number (`_shared`) are dropped together.

    Attributes:
        number: number of the layer in its network, so that each stochastic layer draws numbers of its own.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.number = 0

    def call(self, x: Tensor) -> Tensor:
        if _training is None or self.rate == 0:
            return x
        seed = tf.random.experimental.stateless_fold_in(_training.seed, self.number)
        keep = tf.random.stateless_uniform(self._shared(x), seed) >= self.rate
        return tf.where(keep, x / (1 - self.rate), tf.zeros((), x.dtype))

    def _shared(self, x: Tensor) -> tuple[int, ...]:
        """Shape of the random numbers, which is broadcast to the input's."""
        return tuple(x.shape)


class StochasticDepth(Dropout):
    """Drops whole rows of the batch (Huang et al., arXiv:1603.09382; torchvision's mode "row")."""

    def _shared(self, x: Tensor) -> tuple[int, ...]:
        return (x.shape[0], *(1 for _ in x.shape[1:]))


def conv_norm_activation(
    features_in: int,
    features_out: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    depthwise: bool = False,
    activation: Activation | None,
    eps: float,
    momentum: float,
) -> Sequential:
    """torchvision's Conv2dNormActivation: convolution without bias, batch normalisation, activation."""
    layers: list[Any] = [
        Conv(features_in, features_out, kernel, stride=stride, depthwise=depthwise),
        BatchNorm(features_out, eps=eps, momentum=momentum),
    ]
    return Sequential(layers if activation is None else [*layers, activation])


class SqueezeExcitation(Layer):
    """Channel attention (Hu et al., arXiv:1709.01507): global mean, two 1x1 convolutions, channel-wise scale."""

    def __init__(self, features: int, squeeze: int, *, activation: Activation, scale_activation: Activation) -> None:
        super().__init__()
        self.fc1 = Conv(features, squeeze, bias=True)
        self.fc2 = Conv(squeeze, features, bias=True)
        self.activation = activation
        self.scale_activation = scale_activation

    def call(self, x: Tensor) -> Tensor:
        scale = tf.reduce_mean(x, axis=(1, 2), keepdims=True)
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(scale))))


def max_pool(x: Tensor, kernel: int, stride: int, padding: int = 0) -> Tensor:
    """Max pooling whose padding never wins: it is minus infinity."""
    if padding:
        edges = (padding, padding)
        x = tf.pad(x, ((0, 0), edges, edges, (0, 0)), constant_values=x.dtype.min)
    return tf.nn.max_pool2d(x, kernel, stride, "VALID")


def global_average_pool(x: Tensor) -> Tensor:
    """Mean over height and width: (batch, height, width, channels) to (batch, channels)."""
    return tf.reduce_mean(x, axis=(1, 2))


def hard_sigmoid(x: Tensor) -> Tensor:
    """relu6(x + 3) / 6."""
    return tf.nn.relu6(x + 3) / 6


def hard_swish(x: Tensor) -> Tensor:
    """x relu6(x + 3) / 6."""
    return x * hard_sigmoid(x)


def _wide(x: Tensor) -> Tensor:
    """Cast to float32, in which normalisations compute, unless it is wider."""
    return tf.cast(x, tf.float32) if x.dtype in (tf.bfloat16, tf.float16) else x
