"""ViT-B/16 (Dosovitskiy et al., arXiv:2010.11929), after torchvision's definition."""

import math
from functools import partial

from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.layers import Conv, Layer, LayerNorm, Linear, Model, Sequential, Tensor

_PATCH = 16
_LAYERS = 12
_HEADS = 12
_WIDTH = 768
_MLP = 3072

_layer_norm = partial(LayerNorm, eps=1e-6)


def _gelu(x: Tensor) -> Tensor:
    """GELU in the error-function form; TensorFlow's own rounds its constant to float32 even in float64."""
    return 0.5 * x * (1 + tf.math.erf(x / math.sqrt(2)))


class SelfAttention(Layer):
    """Multi-head self-attention with the packed input projection of torch.nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj = Linear(_WIDTH, 3 * _WIDTH)
        self.out_proj = Linear(_WIDTH, _WIDTH)

    def call(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        packed = tf.reshape(self.in_proj(x), (batch, tokens, 3, _HEADS, _WIDTH // _HEADS))
        query, key, value = tf.unstack(tf.transpose(packed, (2, 0, 3, 1, 4)))
        scores = tf.matmul(query / math.sqrt(_WIDTH // _HEADS), key, transpose_b=True)
        mixed = tf.matmul(tf.nn.softmax(scores), value)
        return self.out_proj(tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (batch, tokens, _WIDTH)))


class EncoderBlock(Layer):
    """Attention and a two-layer perceptron, each normalised first and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = _layer_norm(_WIDTH)
        self.self_attention = SelfAttention()
        self.ln_2 = _layer_norm(_WIDTH)
        # Indices 2 and 4 are dropouts of rate 0 in torchvision.
        self.mlp = Sequential([Linear(_WIDTH, _MLP), _gelu, tf.identity, Linear(_MLP, _WIDTH)])

    def call(self, x: Tensor) -> Tensor:
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Layers(Layer):
    """The encoder's blocks, under torchvision's names."""

    def __init__(self) -> None:
        super().__init__()
        for index in range(_LAYERS):
            setattr(self, f"encoder_layer_{index}", EncoderBlock())

    def call(self, x: Tensor) -> Tensor:
        for index in range(_LAYERS):
            x = getattr(self, f"encoder_layer_{index}")(x)
        return x


class Encoder(Layer):
    """Position embedding, blocks, final normalisation."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.pos_embedding = self.weight("pos_embedding", 1, tokens, _WIDTH)
        self.layers = Layers()
        self.ln = _layer_norm(_WIDTH)

    def call(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(x + self.pos_embedding))


class Heads(Layer):
    """The classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.head = Linear(_WIDTH, 1000)

    def call(self, x: Tensor) -> Tensor:
        return self.head(x)


class ViTB16(Model):
    """Logits of shape (batch, 1000) from images of shape (batch, image_size, image_size, 3)."""

    def __init__(self, image_size: int = 224) -> None:
        super().__init__()
        self.conv_proj = Conv(3, _WIDTH, _PATCH, stride=_PATCH, padding=0, bias=True)
        self.class_token = self.add_weight(shape=(1, 1, _WIDTH), initializer="zeros", name="class_token")
        self.encoder = Encoder((image_size // _PATCH) ** 2 + 1)
        self.heads = Heads()

    def call(self, x: Tensor) -> Tensor:
        x = self.conv_proj(x)
        x = tf.reshape(x, (x.shape[0], -1, _WIDTH))
        token = tf.broadcast_to(self.class_token, (x.shape[0], 1, _WIDTH))
        x = self.encoder(tf.concat([token, x], axis=1))
        return self.heads(x[:, 0])
