"""Mistakes that a port makes, planted in JAX's networks of the suite's own models: the proof must find each of them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from fwbench.frameworks.jax import convolutions, layers
from fwbench.frameworks.jax.networks import network
from fwbench.parity import case as cases
from fwbench.parity.case import Case
from fwbench.parity.jax import JaxSide
from tests.proving import planting
from tests.proving.planting import Mutation, Patch

# One mutation a function: it changes the network it is given, or, through `patch`, the modules that build and run it.


def same_padding(module: Any, patch: Patch) -> None:
    module.layer2[0].conv2.padding = "SAME"


def stride_in_the_1x1(module: Any, patch: Patch) -> None:
    block = module.layer2[0]
    block.conv1.strides, block.conv2.strides = block.conv2.strides, block.conv1.strides


def one_epsilon(module: Any, patch: Patch) -> None:
    module.layer3[2].bn2.epsilon = 1e-3


def one_momentum(module: Any, patch: Patch) -> None:
    module.layer4[2].bn3.momentum = 0.99


def flax_momentum_is_torch_momentum(module: Any, patch: Patch) -> None:
    module.layer4[2].bn3.momentum = 0.1


def biased_running_variance(module: Any, patch: Patch) -> None:
    patch.setattr(layers.BatchNorm, "__call__", nnx.BatchNorm.__call__)


def tanh_gelu(module: Any, patch: Patch) -> None:
    mlp = module.encoder.layers.encoder_layer_11.mlp
    mlp[1] = functools.partial(jax.nn.gelu, approximate=True)


def layer_norm_epsilon(module: Any, patch: Patch) -> None:
    module.encoder.layers.encoder_layer_5.ln_1.epsilon = 1e-5


def column_major_tokens(module: Any, patch: Patch) -> None:
    # The network's only convolution makes the tokens, over height before width.
    convolve = nnx.Conv.__call__
    patch.setattr(nnx.Conv, "__call__", lambda self, x: jnp.swapaxes(convolve(self, x), 1, 2))


def class_token_last(module: Any, patch: Patch) -> None:
    concatenate = jnp.concatenate
    patch.setattr(jnp, "concatenate", lambda parts, axis: concatenate(parts[::-1], axis=axis))


def float32_softmax(module: Any, patch: Patch) -> None:
    softmax = jax.nn.softmax
    patch.setattr(jax.nn, "softmax", lambda x, axis: softmax(x.astype(jnp.float32), axis=axis).astype(x.dtype))


def swapped_query_and_key(module: Any, patch: Patch) -> None:
    # Transposes the scores, which are normalised along one axis only.
    unpack = jnp.moveaxis
    patch.setattr(jnp, "moveaxis", lambda *arguments: unpack(*arguments)[jnp.array([1, 0, 2])])


def sigmoid_for_hard_sigmoid(module: Any, patch: Patch) -> None:
    module.features[1].block[1].scale_activation = jax.nn.sigmoid


def relu_for_hard_swish(module: Any, patch: Patch) -> None:
    module.features[4].block[0][2] = jax.nn.relu


def imagenet_epsilon(module: Any, patch: Patch) -> None:
    module.features[12][1].epsilon = 1e-5


def same_padding_in_a_depthwise_convolution(module: Any, patch: Patch) -> None:
    module.features[2].block[1][0].padding = "SAME"


def stopped_gradient(module: Any, patch: Patch) -> None:
    excite = module.features[1].block[1]
    excite.scale_activation = lambda x: jax.lax.stop_gradient(jax.nn.hard_sigmoid(x))


def relu_for_silu_in_squeeze_and_excitation(module: Any, patch: Patch) -> None:
    module.features[3][0].block[2].activation = jax.nn.relu


def same_padding_of_a_5x5(module: Any, patch: Patch) -> None:
    module.features[3][0].block[1][0].padding = "SAME"


def no_shortcut(module: Any, patch: Patch) -> None:
    module.features[2][1].shortcut = False


def one_sided_padding(module: Any, patch: Patch) -> None:
    module.conv3.padding = [(0, 2), (0, 2)]


def padding_at_stride_2(module: Any, patch: Patch) -> None:
    """As "SAME" pads there: a row and a column fewer above and to the left."""

    def shifted(x: Any, kernel: Any, strides: Any, pads: Any, own: Any = convolutions._depthwise) -> Any:
        pads = tuple((before - 1, after + 1) for before, after in pads) if strides == (2, 2) else pads
        return own(x, kernel, strides, pads)

    patch.setattr(convolutions, "_depthwise", shifted)


def phase_off_by_one(module: Any, patch: Patch) -> None:
    own = convolutions._Axis.taps
    patch.setattr(convolutions._Axis, "taps", lambda axis, phase: own(axis, (phase + 1) % axis.stride))


def gradient_without_one_tap(module: Any, patch: Patch) -> None:
    own = convolutions._kernel_gradient
    patch.setattr(convolutions, "_kernel_gradient", lambda *arguments: own(*arguments).at[2, 1].set(0))


def gradient_without_the_last_piece(module: Any, patch: Patch) -> None:
    def cut(x: Any, cotangent: Any, *others: Any, own: Any = convolutions._kernel_gradient) -> Any:
        return own(x, cotangent.at[:, -1, -1].set(0), *others)

    patch.setattr(convolutions, "_kernel_gradient", cut)


def stride_of_a_1x1_begins_late(module: Any, patch: Patch) -> None:
    def late(x: Any, kernel: Any, strides: Any, pads: Any, own: Any = convolutions._pointwise) -> Any:
        return own(x[:, strides[0] - 1 :, strides[1] - 1 :], kernel, strides, pads)

    patch.setattr(convolutions, "_pointwise", late)


def nesterov(module: Any, patch: Patch) -> None:
    patch.setitem(cases.SGD, "nesterov", True)


def large_adam_epsilon(module: Any, patch: Patch) -> None:
    patch.setitem(cases.ADAM, "eps", 1e-6)


MUTATIONS = (
    Mutation("resnet50", "eval", "output", same_padding),
    Mutation("resnet50", "eval", "output", stride_in_the_1x1),
    Mutation("resnet50", "eval", "output", one_epsilon),
    Mutation("resnet50", "eval", "output", stride_of_a_1x1_begins_late),
    Mutation("resnet50", "train", "statistics", one_momentum),
    Mutation("resnet50", "train", "statistics", flax_momentum_is_torch_momentum),
    Mutation("resnet50", "train", "statistics", biased_running_variance),
    Mutation("vit_b_16", "eval", "output", tanh_gelu),
    Mutation("vit_b_16", "eval", "output", layer_norm_epsilon),
    Mutation("vit_b_16", "eval", "output", column_major_tokens),
    Mutation("vit_b_16", "eval", "output", class_token_last),
    Mutation("vit_b_16", "eval", "output", float32_softmax),
    Mutation("vit_b_16", "eval", "output", swapped_query_and_key),
    Mutation("mobilenet_v3_small", "eval", "output", sigmoid_for_hard_sigmoid),
    Mutation("mobilenet_v3_small", "eval", "output", relu_for_hard_swish),
    Mutation("mobilenet_v3_small", "eval", "output", imagenet_epsilon),
    Mutation("mobilenet_v3_small", "eval", "output", same_padding_in_a_depthwise_convolution),
    Mutation("mobilenet_v3_small", "eval", "output", padding_at_stride_2),
    Mutation("mobilenet_v3_small", "eval", "gradients", stopped_gradient),
    Mutation("mobilenet_v3_small", "eval", "gradients", phase_off_by_one),
    Mutation("mobilenet_v3_small", "eval", "gradients", gradient_without_one_tap),
    Mutation("mobilenet_v3_small", "eval", "gradients", gradient_without_the_last_piece),
    Mutation("efficientnet_b0", "eval", "output", relu_for_silu_in_squeeze_and_excitation),
    Mutation("efficientnet_b0", "eval", "output", same_padding_of_a_5x5),
    Mutation("efficientnet_b0", "eval", "output", no_shortcut),
    Mutation("cnn", "eval", "output", one_sided_padding),
    Mutation("mlp", "train", "sgd", nesterov),
    Mutation("mlp", "train", "adam", large_adam_epsilon),
)


def find(mutation: Mutation) -> float:
    """The error that a mutation makes; what `planting.find` raises."""

    def planted(case: Case, patch: Patch) -> JaxSide:
        own: Any = network(case.model, case.sizes)
        module = own.module()
        mutation.plant(module, patch)
        return JaxSide(case, network=own.replaced(module))

    return planting.find(mutation, JaxSide, planted)
