"""The proof finds what it is for: each mutation of a JAX network, one mistake a port makes, breaks it.

The same `prove` with the same bounds as in test_float64.py, on small images for the sake of time. First the network as
it is passes at that size, so that it is the mutation that fails.
"""

import functools

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from fwbench.frameworks.jax import convolutions, layers, vit
from fwbench.frameworks.jax.networks import network
from fwbench.models import CATALOG
from fwbench.parity import case as cases
from fwbench.parity.case import Case
from fwbench.parity.jax import JaxSide
from fwbench.parity.proof import NotTheSame, prove
from fwbench.parity.torch import TorchSide

SIZE = {"resnet50": 64, "vit_b_16": 64, "mobilenet_v3_small": 32, "efficientnet_b0": 32}

# One mutation a function: it changes the network it is given, or, through `patch`, the modules that build and run it.


def same_padding(module, patch):
    module.layer2[0].conv2.padding = "SAME"


def stride_in_the_1x1(module, patch):
    block = module.layer2[0]
    block.conv1.strides, block.conv2.strides = block.conv2.strides, block.conv1.strides


def one_epsilon(module, patch):
    module.layer3[2].bn2.epsilon = 1e-3


def one_momentum(module, patch):
    module.layer4[2].bn3.momentum = 0.99


def flax_momentum_is_torch_momentum(module, patch):
    module.layer4[2].bn3.momentum = 0.1


def biased_running_variance(module, patch):
    patch.setattr(layers.BatchNorm, "__call__", nnx.BatchNorm.__call__)


def tanh_gelu(module, patch):
    mlp = module.encoder.layers.encoder_layer_11.mlp
    mlp[1] = functools.partial(jax.nn.gelu, approximate=True)


def layer_norm_epsilon(module, patch):
    module.encoder.layers.encoder_layer_5.ln_1.epsilon = 1e-5


def column_major_tokens(module, patch):
    # The network's only convolution makes the tokens, over height before width.
    convolve = nnx.Conv.__call__
    patch.setattr(nnx.Conv, "__call__", lambda self, x: jnp.swapaxes(convolve(self, x), 1, 2))


def class_token_last(module, patch):
    concatenate = jnp.concatenate
    patch.setattr(vit.jnp, "concatenate", lambda parts, axis: concatenate(parts[::-1], axis=axis))


def float32_softmax(module, patch):
    softmax = jax.nn.softmax
    patch.setattr(vit.jax.nn, "softmax", lambda x, axis: softmax(x.astype(jnp.float32), axis=axis).astype(jnp.float64))


def swapped_query_and_key(module, patch):
    # Transposes the scores, which are normalised along one axis only.
    unpack = jnp.moveaxis
    patch.setattr(vit.jnp, "moveaxis", lambda *arguments: unpack(*arguments)[jnp.array([1, 0, 2])])


def sigmoid_for_hard_sigmoid(module, patch):
    module.features[1].block[1].scale_activation = jax.nn.sigmoid


def relu_for_hard_swish(module, patch):
    module.features[4].block[0][2] = jax.nn.relu


def imagenet_epsilon(module, patch):
    module.features[12][1].epsilon = 1e-5


def same_padding_in_a_depthwise_convolution(module, patch):
    module.features[2].block[1][0].padding = "SAME"


def stopped_gradient(module, patch):
    excite = module.features[1].block[1]
    excite.scale_activation = lambda x: jax.lax.stop_gradient(jax.nn.hard_sigmoid(x))


def relu_for_silu_in_squeeze_and_excitation(module, patch):
    module.features[3][0].block[2].activation = jax.nn.relu


def same_padding_of_a_5x5(module, patch):
    module.features[3][0].block[1][0].padding = "SAME"


def no_shortcut(module, patch):
    module.features[2][1].shortcut = False


def one_sided_padding(module, patch):
    module.conv3.padding = [(0, 2), (0, 2)]


def padding_at_stride_2(module, patch):
    """As "SAME" pads there: a row and a column fewer above and to the left."""

    def shifted(x, kernel, strides, pads, own=convolutions._depthwise):
        pads = tuple((before - 1, after + 1) for before, after in pads) if strides == (2, 2) else pads
        return own(x, kernel, strides, pads)

    patch.setattr(convolutions, "_depthwise", shifted)


def phase_off_by_one(module, patch):
    own = convolutions._Axis.taps
    patch.setattr(convolutions._Axis, "taps", lambda axis, phase: own(axis, (phase + 1) % axis.stride))


def gradient_without_one_tap(module, patch):
    own = convolutions._kernel_gradient
    patch.setattr(convolutions, "_kernel_gradient", lambda *arguments: own(*arguments).at[2, 1].set(0))


def gradient_without_the_last_piece(module, patch):
    def cut(x, cotangent, *others, own=convolutions._kernel_gradient):
        return own(x, cotangent.at[:, -1, -1].set(0), *others)

    patch.setattr(convolutions, "_kernel_gradient", cut)


def stride_of_a_1x1_begins_late(module, patch):
    def late(x, kernel, strides, pads, own=convolutions._pointwise):
        return own(x[:, strides[0] - 1 :, strides[1] - 1 :], kernel, strides, pads)

    patch.setattr(convolutions, "_pointwise", late)


def nesterov(module, patch):
    patch.setitem(cases.SGD, "nesterov", True)


def large_adam_epsilon(module, patch):
    patch.setitem(cases.ADAM, "eps", 1e-6)


MUTATIONS = [
    ("resnet50", "eval", "output", same_padding),
    ("resnet50", "eval", "output", stride_in_the_1x1),
    ("resnet50", "eval", "output", one_epsilon),
    ("resnet50", "eval", "output", stride_of_a_1x1_begins_late),
    ("resnet50", "train", "statistics", one_momentum),
    ("resnet50", "train", "statistics", flax_momentum_is_torch_momentum),
    ("resnet50", "train", "statistics", biased_running_variance),
    ("vit_b_16", "eval", "output", tanh_gelu),
    ("vit_b_16", "eval", "output", layer_norm_epsilon),
    ("vit_b_16", "eval", "output", column_major_tokens),
    ("vit_b_16", "eval", "output", class_token_last),
    ("vit_b_16", "eval", "output", float32_softmax),
    ("vit_b_16", "eval", "output", swapped_query_and_key),
    ("mobilenet_v3_small", "eval", "output", sigmoid_for_hard_sigmoid),
    ("mobilenet_v3_small", "eval", "output", relu_for_hard_swish),
    ("mobilenet_v3_small", "eval", "output", imagenet_epsilon),
    ("mobilenet_v3_small", "eval", "output", same_padding_in_a_depthwise_convolution),
    ("mobilenet_v3_small", "eval", "output", padding_at_stride_2),
    ("mobilenet_v3_small", "eval", "gradients", stopped_gradient),
    ("mobilenet_v3_small", "eval", "gradients", phase_off_by_one),
    ("mobilenet_v3_small", "eval", "gradients", gradient_without_one_tap),
    ("mobilenet_v3_small", "eval", "gradients", gradient_without_the_last_piece),
    ("efficientnet_b0", "eval", "output", relu_for_silu_in_squeeze_and_excitation),
    ("efficientnet_b0", "eval", "output", same_padding_of_a_5x5),
    ("efficientnet_b0", "eval", "output", no_shortcut),
    ("cnn", "eval", "output", one_sided_padding),
    ("mlp", "train", "sgd", nesterov),
    ("mlp", "train", "adam", large_adam_epsilon),
]


def small(model, mode):
    """A case of the catalog's model, on small images."""
    axes = (("image_size", SIZE[model]),) if model in SIZE else ()
    return Case(CATALOG[model], mode, axes=axes)


@functools.cache
def reference(case):
    """PyTorch's side, which no mutation touches."""
    return TorchSide(case)


@pytest.mark.parametrize(
    ("model", "mode", "quantity"),
    [pytest.param(*key, id="-".join(key)) for key in dict.fromkeys(row[:3] for row in MUTATIONS)],
)
def test_the_network_as_it_is_passes(model, mode, quantity):
    case = small(model, mode)
    prove(quantity, reference(case), JaxSide(case))


@pytest.mark.parametrize(
    ("model", "mode", "quantity", "mutate"),
    [pytest.param(*row, id=f"{row[0]}-{row[3].__name__}-{row[2]}") for row in MUTATIONS],
)
def test_a_mutation_is_found(model, mode, quantity, mutate, monkeypatch):
    case = small(model, mode)
    expected = reference(case)
    if quantity in ("sgd", "adam"):
        monkeypatch.setattr(expected, "losses", functools.cache(expected.losses))
        expected.losses(quantity)
    own = network(case.model, case.sizes)
    module = own.module()
    mutate(module, monkeypatch)
    # A number, so that no mutation is found only for having broken the arithmetic.
    with pytest.raises(NotTheSame, match=r"difference in \w+ is \d"):
        prove(quantity, expected, JaxSide(case, network=own.replaced(module)))
