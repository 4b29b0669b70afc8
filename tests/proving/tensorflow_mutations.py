"""Mistakes that a port makes, planted in TensorFlow's networks of the suite's own models: as `mutations` for JAX's."""

from typing import Any

from fwbench.frameworks.tensorflow import layers, optimizers, vit
from fwbench.frameworks.tensorflow.imported import tf
from fwbench.parity.case import Case
from fwbench.parity.tensorflow import TensorFlowSide
from tests.proving import planting
from tests.proving.planting import Mutation, Patch

# What "SAME" pads at stride 2: one less above and to the left.
_SAME = {3: ((0, 1), (0, 1)), 5: ((1, 2), (1, 2))}


# One mutation a function: it changes the module it is given, or, through `patch`, what runs it.


def same_padding(module: Any, patch: Patch) -> None:
    module.layer2.layers[0].conv2.padding = _SAME[3]


def stride_in_the_1x1(module: Any, patch: Patch) -> None:
    block = module.layer2.layers[0]
    block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride


def one_epsilon(module: Any, patch: Patch) -> None:
    module.layer3.layers[2].bn2.eps = 1e-3


def one_momentum(module: Any, patch: Patch) -> None:
    module.layer4.layers[2].bn3.momentum = 0.01


def keras_momentum_is_torch_momentum(module: Any, patch: Patch) -> None:
    module.layer4.layers[2].bn3.momentum = 0.9


def biased_running_variance(module: Any, patch: Patch) -> None:
    """As Keras's own layer has it."""
    own = layers.defined_batch_norm

    def biased(
        x: Any, scale: Any, offset: Any, mean: Any, variance: Any, eps: float, momentum: float, train: bool
    ) -> Any:
        y, after, _ = own(x, scale, offset, mean, variance, eps, momentum, train)
        return y, after, variance * (1 - momentum) + tf.nn.moments(x, (0, 1, 2))[1] * momentum

    patch.setattr(layers, "defined_batch_norm", biased)


def tanh_gelu(module: Any, patch: Patch) -> None:
    module.encoder.layers.encoder_layer_11.mlp.layers[1] = lambda x: tf.nn.gelu(x, approximate=True)


def layer_norm_epsilon(module: Any, patch: Patch) -> None:
    module.encoder.layers.encoder_layer_5.ln_1.eps = 1e-5


def column_major_tokens(module: Any, patch: Patch) -> None:
    # The network's only convolution makes the tokens, over height before width.
    convolve = layers.Conv.call
    patch.setattr(layers.Conv, "call", lambda self, x: tf.transpose(convolve(self, x), (0, 2, 1, 3)))


def class_token_last(module: Any, patch: Patch) -> None:
    concatenate = tf.concat
    patch.setattr(tf, "concat", lambda parts, axis: concatenate(parts[::-1], axis=axis))


def float32_softmax(module: Any, patch: Patch) -> None:
    softmax = tf.nn.softmax
    patch.setattr(tf.nn, "softmax", lambda x: tf.cast(softmax(tf.cast(x, tf.float32)), x.dtype))


def swapped_query_and_key(module: Any, patch: Patch) -> None:
    # Transposes the scores, which are normalised along one axis only.
    unpack = tf.unstack
    patch.setattr(tf, "unstack", lambda x: [unpack(x)[index] for index in (1, 0, 2)])


def heads_of_another_order(module: Any, patch: Patch) -> None:
    patch.setattr(vit, "_HEADS", 8)


def sigmoid_for_hard_sigmoid(module: Any, patch: Patch) -> None:
    module.features.layers[1].block.layers[1].scale_activation = tf.nn.sigmoid


def relu_for_hard_swish(module: Any, patch: Patch) -> None:
    module.features.layers[4].block.layers[0].layers[2] = tf.nn.relu


def imagenet_epsilon(module: Any, patch: Patch) -> None:
    module.features.layers[12].layers[1].eps = 1e-5


def same_padding_in_a_depthwise_convolution(module: Any, patch: Patch) -> None:
    module.features.layers[2].block.layers[1].layers[0].padding = _SAME[3]


def stopped_gradient(module: Any, patch: Patch) -> None:
    excite = module.features.layers[1].block.layers[1]
    excite.scale_activation = lambda x: tf.stop_gradient(layers.hard_sigmoid(x))


def statistics_behind_stop_gradient(module: Any, patch: Patch) -> None:
    moments = tf.nn.moments
    patch.setattr(tf.nn, "moments", lambda x, axes: moments(tf.stop_gradient(x), axes))


def relu_for_silu_in_squeeze_and_excitation(module: Any, patch: Patch) -> None:
    module.features.layers[3].layers[0].block.layers[2].activation = tf.nn.relu


def same_padding_of_a_5x5(module: Any, patch: Patch) -> None:
    module.features.layers[3].layers[0].block.layers[1].layers[0].padding = _SAME[5]


def no_shortcut(module: Any, patch: Patch) -> None:
    module.features.layers[2].layers[1].shortcut = False


def one_sided_padding(module: Any, patch: Patch) -> None:
    module.conv3.padding = ((0, 2), (0, 2))


def nesterov(module: Any, patch: Patch) -> None:
    """As `use_nesterov` of TensorFlow's operator, which is off where nobody says otherwise."""
    own = tf.raw_ops.ResourceApplyMomentum
    patch.setattr(tf.raw_ops, "ResourceApplyMomentum", lambda **given: own(**given, use_nesterov=True))


def kerass_adam_epsilon(module: Any, patch: Patch) -> None:
    """Added before the second moment's bias is corrected, it is thirty times as large in the first step."""
    patch.setattr(optimizers.Adam, "epsilon", 3e-7)


MUTATIONS = (
    Mutation("resnet50", "eval", "output", same_padding),
    Mutation("resnet50", "eval", "output", stride_in_the_1x1),
    Mutation("resnet50", "eval", "output", one_epsilon),
    Mutation("resnet50", "train", "statistics", one_momentum),
    Mutation("resnet50", "train", "statistics", keras_momentum_is_torch_momentum),
    Mutation("resnet50", "train", "statistics", biased_running_variance),
    Mutation("vit_b_16", "eval", "output", tanh_gelu),
    Mutation("vit_b_16", "eval", "output", layer_norm_epsilon),
    Mutation("vit_b_16", "eval", "output", column_major_tokens),
    Mutation("vit_b_16", "eval", "output", class_token_last),
    Mutation("vit_b_16", "eval", "output", float32_softmax),
    Mutation("vit_b_16", "eval", "output", swapped_query_and_key),
    Mutation("vit_b_16", "eval", "output", heads_of_another_order),
    Mutation("mobilenet_v3_small", "eval", "output", sigmoid_for_hard_sigmoid),
    Mutation("mobilenet_v3_small", "eval", "output", relu_for_hard_swish),
    Mutation("mobilenet_v3_small", "eval", "output", imagenet_epsilon),
    Mutation("mobilenet_v3_small", "eval", "output", same_padding_in_a_depthwise_convolution),
    Mutation("mobilenet_v3_small", "eval", "gradients", stopped_gradient),
    Mutation("mobilenet_v3_small", "train", "gradients", statistics_behind_stop_gradient),
    Mutation("efficientnet_b0", "eval", "output", relu_for_silu_in_squeeze_and_excitation),
    Mutation("efficientnet_b0", "eval", "output", same_padding_of_a_5x5),
    Mutation("efficientnet_b0", "eval", "output", no_shortcut),
    Mutation("mlp", "train", "sgd", nesterov),
    Mutation("mlp", "train", "adam", kerass_adam_epsilon),
    Mutation("cnn", "eval", "output", one_sided_padding),
)


def find(mutation: Mutation) -> float:
    """The error that a mutation makes; what `planting.find` raises."""

    def planted(case: Case, patch: Patch) -> TensorFlowSide:
        return TensorFlowSide(case, change=lambda module: mutation.plant(module, patch))

    return planting.find(mutation, TensorFlowSide, planted)
