"""Mistakes that a port makes, planted in TensorFlow's networks of the suite's own models: as `mutations` for JAX's."""

from typing import Any

from fwbench.ext.proofs.case import Case
from fwbench.ext.tensorflow import layers, optimizers, vit
from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.parity import TensorFlowSide
from tests.proving import planting
from tests.proving.planting import Mutation, Patch, mutations, patching, setting

# What "SAME" pads at stride 2: one less above and to the left.
_SAME = {3: ((0, 1), (0, 1)), 5: ((1, 2), (1, 2))}


def stride_in_the_1x1(module: Any, patch: Patch) -> None:
    block = module.layer2.layers[0]
    block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride


def biased_running_variance(module: Any, patch: Patch) -> None:
    """As Keras's own layer has it."""
    own = layers.defined_batch_norm

    def biased(
        x: Any, scale: Any, offset: Any, mean: Any, variance: Any, eps: float, momentum: float, train: bool
    ) -> Any:
        y, after, _ = own(x, scale, offset, mean, variance, eps, momentum, train)
        return y, after, variance * (1 - momentum) + tf.nn.moments(x, (0, 1, 2))[1] * momentum

    patch.setattr(layers, "defined_batch_norm", biased)


MUTATIONS = mutations(
    {
        ("resnet50", "eval", "output"): {
            "same_padding": setting("layer2.layers.0.conv2.padding", _SAME[3]),
            "stride_in_the_1x1": stride_in_the_1x1,
            "one_epsilon": setting("layer3.layers.2.bn2.eps", 1e-3),
        },
        ("resnet50", "train", "statistics"): {
            "one_momentum": setting("layer4.layers.2.bn3.momentum", 0.01),
            "keras_momentum_is_torch_momentum": setting("layer4.layers.2.bn3.momentum", 0.9),
            "biased_running_variance": biased_running_variance,
        },
        ("vit_b_16", "eval", "output"): {
            "tanh_gelu": setting(
                "encoder.layers.encoder_layer_11.mlp.layers.1", lambda x: tf.nn.gelu(x, approximate=True)
            ),
            "layer_norm_epsilon": setting("encoder.layers.encoder_layer_5.ln_1.eps", 1e-5),
            # The network's only convolution makes the tokens, over height before width.
            "column_major_tokens": patching(
                layers.Conv, "call", lambda own: lambda self, x: tf.transpose(own(self, x), (0, 2, 1, 3))
            ),
            "class_token_last": patching(tf, "concat", lambda own: lambda parts, axis: own(parts[::-1], axis=axis)),
            "float32_softmax": patching(
                tf.nn, "softmax", lambda own: lambda x: tf.cast(own(tf.cast(x, tf.float32)), x.dtype)
            ),
            # Transposes the scores, which are normalised along one axis only.
            "swapped_query_and_key": patching(
                tf, "unstack", lambda own: lambda x: [own(x)[index] for index in (1, 0, 2)]
            ),
            "heads_of_another_order": patching(vit, "_HEADS", lambda own: 8),
        },
        ("mobilenet_v3_small", "eval", "output"): {
            "sigmoid_for_hard_sigmoid": setting("features.layers.1.block.layers.1.scale_activation", tf.nn.sigmoid),
            "relu_for_hard_swish": setting("features.layers.4.block.layers.0.layers.2", tf.nn.relu),
            "imagenet_epsilon": setting("features.layers.12.layers.1.eps", 1e-5),
            "same_padding_in_a_depthwise_convolution": setting(
                "features.layers.2.block.layers.1.layers.0.padding", _SAME[3]
            ),
        },
        ("mobilenet_v3_small", "eval", "gradients"): {
            "stopped_gradient": setting(
                "features.layers.1.block.layers.1.scale_activation",
                lambda x: tf.stop_gradient(layers.hard_sigmoid(x)),
            ),
        },
        ("mobilenet_v3_small", "train", "gradients"): {
            "statistics_behind_stop_gradient": patching(
                tf.nn, "moments", lambda own: lambda x, axes: own(tf.stop_gradient(x), axes)
            ),
        },
        ("efficientnet_b0", "eval", "output"): {
            "relu_for_silu_in_squeeze_and_excitation": setting(
                "features.layers.3.layers.0.block.layers.2.activation", tf.nn.relu
            ),
            "same_padding_of_a_5x5": setting("features.layers.3.layers.0.block.layers.1.layers.0.padding", _SAME[5]),
            "no_shortcut": setting("features.layers.2.layers.1.shortcut", False),
        },
        # As `use_nesterov` of TensorFlow's operator, which is off where nobody says otherwise.
        ("mlp", "train", "sgd"): {
            "nesterov": patching(
                tf.raw_ops, "ResourceApplyMomentum", lambda own: lambda **given: own(**given, use_nesterov=True)
            ),
        },
        # Added before the second moment's bias is corrected, it is thirty times as large in the first step.
        ("mlp", "train", "adam"): {"kerass_adam_epsilon": patching(optimizers.Adam, "epsilon", lambda own: 3e-7)},
        ("cnn", "eval", "output"): {"one_sided_padding": setting("conv3.padding", ((0, 2), (0, 2)))},
    }
)


def find(mutation: Mutation) -> float:
    """The error that a mutation makes; what `planting.find` raises."""

    def planted(case: Case, patch: Patch) -> TensorFlowSide:
        return TensorFlowSide(case, change=lambda module: mutation.plant(module, patch))

    return planting.find(mutation, TensorFlowSide, planted)
