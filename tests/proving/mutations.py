"""Mistakes that a port makes, planted in JAX's networks of the suite's own models: the proof must find each of them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from fwbench.ext.proofs import case as cases
from fwbench.ext.proofs.case import Case
from fwbench.ext.proofs.jax import JaxSide
from fwbench.frameworks.jax import convolutions, layers
from fwbench.frameworks.jax.networks import network
from tests.proving import planting
from tests.proving.planting import Mutation, Patch, mutations, patching, setting


def stride_in_the_1x1(module: Any, patch: Patch) -> None:
    block = module.layer2[0]
    block.conv1.strides, block.conv2.strides = block.conv2.strides, block.conv1.strides


def padding_at_stride_2(module: Any, patch: Patch) -> None:
    """As "SAME" pads there: a row and a column fewer above and to the left."""

    def shifted(x: Any, kernel: Any, strides: Any, pads: Any, own: Any = convolutions._depthwise) -> Any:
        pads = tuple((before - 1, after + 1) for before, after in pads) if strides == (2, 2) else pads
        return own(x, kernel, strides, pads)

    patch.setattr(convolutions, "_depthwise", shifted)


def stride_of_a_1x1_begins_late(module: Any, patch: Patch) -> None:
    def late(x: Any, kernel: Any, strides: Any, pads: Any, own: Any = convolutions._pointwise) -> Any:
        return own(x[:, strides[0] - 1 :, strides[1] - 1 :], kernel, strides, pads)

    patch.setattr(convolutions, "_pointwise", late)


MUTATIONS = mutations(
    {
        ("resnet50", "eval", "output"): {
            "same_padding": setting("layer2.0.conv2.padding", "SAME"),
            "stride_in_the_1x1": stride_in_the_1x1,
            "one_epsilon": setting("layer3.2.bn2.epsilon", 1e-3),
            "stride_of_a_1x1_begins_late": stride_of_a_1x1_begins_late,
        },
        ("resnet50", "train", "statistics"): {
            "one_momentum": setting("layer4.2.bn3.momentum", 0.99),
            "flax_momentum_is_torch_momentum": setting("layer4.2.bn3.momentum", 0.1),
            "biased_running_variance": patching(layers.BatchNorm, "__call__", lambda own: nnx.BatchNorm.__call__),
        },
        ("vit_b_16", "eval", "output"): {
            "tanh_gelu": setting(
                "encoder.layers.encoder_layer_11.mlp.1", functools.partial(jax.nn.gelu, approximate=True)
            ),
            "layer_norm_epsilon": setting("encoder.layers.encoder_layer_5.ln_1.epsilon", 1e-5),
            # The network's only convolution makes the tokens, over height before width.
            "column_major_tokens": patching(
                nnx.Conv, "__call__", lambda own: lambda self, x: jnp.swapaxes(own(self, x), 1, 2)
            ),
            "class_token_last": patching(
                jnp, "concatenate", lambda own: lambda parts, axis: own(parts[::-1], axis=axis)
            ),
            "float32_softmax": patching(
                jax.nn, "softmax", lambda own: lambda x, axis: own(x.astype(jnp.float32), axis=axis).astype(x.dtype)
            ),
            # Transposes the scores, which are normalised along one axis only.
            "swapped_query_and_key": patching(
                jnp, "moveaxis", lambda own: lambda *arguments: own(*arguments)[jnp.array([1, 0, 2])]
            ),
        },
        ("mobilenet_v3_small", "eval", "output"): {
            "sigmoid_for_hard_sigmoid": setting("features.1.block.1.scale_activation", jax.nn.sigmoid),
            "relu_for_hard_swish": setting("features.4.block.0.2", jax.nn.relu),
            "imagenet_epsilon": setting("features.12.1.epsilon", 1e-5),
            "same_padding_in_a_depthwise_convolution": setting("features.2.block.1.0.padding", "SAME"),
            "padding_at_stride_2": padding_at_stride_2,
        },
        ("mobilenet_v3_small", "eval", "gradients"): {
            "stopped_gradient": setting(
                "features.1.block.1.scale_activation", lambda x: jax.lax.stop_gradient(jax.nn.hard_sigmoid(x))
            ),
            "phase_off_by_one": patching(
                convolutions._Axis, "taps", lambda own: lambda axis, phase: own(axis, (phase + 1) % axis.stride)
            ),
            "gradient_without_one_tap": patching(
                convolutions, "_kernel_gradient", lambda own: lambda *arguments: own(*arguments).at[2, 1].set(0)
            ),
            "gradient_without_the_last_piece": patching(
                convolutions,
                "_kernel_gradient",
                lambda own: lambda x, cotangent, *others: own(x, cotangent.at[:, -1, -1].set(0), *others),
            ),
        },
        ("efficientnet_b0", "eval", "output"): {
            "relu_for_silu_in_squeeze_and_excitation": setting("features.3.0.block.2.activation", jax.nn.relu),
            "same_padding_of_a_5x5": setting("features.3.0.block.1.0.padding", "SAME"),
            "no_shortcut": setting("features.2.1.shortcut", False),
        },
        ("cnn", "eval", "output"): {"one_sided_padding": setting("conv3.padding", [(0, 2), (0, 2)])},
        ("mlp", "train", "sgd"): {"nesterov": lambda module, patch: patch.setitem(cases.SGD, "nesterov", True)},
        ("mlp", "train", "adam"): {"large_adam_epsilon": lambda module, patch: patch.setitem(cases.ADAM, "eps", 1e-6)},
    }
)


def find(mutation: Mutation) -> float:
    """The error that a mutation makes; what `planting.find` raises."""

    def planted(case: Case, patch: Patch) -> JaxSide:
        own: Any = network(case.model, case.sizes)
        module = own.module()
        mutation.plant(module, patch)
        return JaxSide(case, network=own.replaced(module))

    return planting.find(mutation, JaxSide, planted)
