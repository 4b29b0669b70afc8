"""Mistakes that a port makes, planted in JAX's networks of the suite's own models: the proof must find each of them.

With the bounds of every proof, on small images for the sake of time. What finds nothing wrong with a wrong network has
proved nothing of a right one.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fwbench.frameworks.jax import convolutions, layers
from fwbench.frameworks.jax.networks import network
from fwbench.models import CATALOG
from fwbench.parity import case as cases
from fwbench.parity.case import Case, Mode
from fwbench.parity.jax import JaxSide
from fwbench.parity.proof import Quantity, bound, measure, prove
from fwbench.parity.torch import TorchSide

Patch = pytest.MonkeyPatch

_SIZE = {"resnet50": 64, "vit_b_16": 64, "mobilenet_v3_small": 32, "efficientnet_b0": 32}


@dataclass(frozen=True)
class Mutation:
    """One mistake.

    Attributes:
        model: name of the model in whose network it is planted.
        mode: in which it shows.
        quantity: in which it shows.
        plant: changes the network that it is given, or, through the patch, the modules that build and run it.
    """

    model: str
    mode: Mode
    quantity: Quantity
    plant: Callable[[Any, Patch], None]

    @property
    def name(self) -> str:
        """Among those of its model."""
        return f"{self.plant.__name__}-{self.quantity}"


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
    patch.setattr(jax.nn, "softmax", lambda x, axis: softmax(x.astype(jnp.float32), axis=axis).astype(jnp.float64))


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
    """The error that a mutation makes in the quantity in which it shows.

    Raises:
        AssertionError: it is not above the bound, or no number: then it was found for having broken the arithmetic
            alone. Or, as `NotTheSame`, the network is wrong without it.
    """
    case, quantity = _small(mutation.model, mutation.mode), mutation.quantity
    _is_right(case, quantity)
    own: Any = network(case.model, case.sizes)
    module = own.module()
    with Patch.context() as patch:
        mutation.plant(module, patch)
        errors = measure(quantity, _reference(case), JaxSide(case, network=own.replaced(module)))
    # Unlike Python's own, not a number where any of them is not.
    error = float(np.max(list(errors.values())))
    if not bound(case.model, quantity) < error < float("inf"):
        raise AssertionError(f"{case.model.name}: the proof of {quantity} does not find {mutation.name} ({error:.1e})")
    return error


def _small(model: str, mode: Mode) -> Case:
    axes = (("image_size", _SIZE[model]),) if model in _SIZE else ()
    return Case(CATALOG[model], mode, axes=axes)


@functools.cache
def _is_right(case: Case, quantity: Quantity) -> None:
    """Raises NotTheSame where the network as it is does not pass, so that no mutation would have made the error."""
    prove(quantity, _reference(case), JaxSide(case))


@functools.cache
def _reference(case: Case) -> TorchSide:
    """PyTorch's side, which no mutation touches."""
    return TorchSide(case)
