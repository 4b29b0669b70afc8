"""The operations of a traced program are those of the catalog, in every lane and mode."""

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from fwbench.frameworks.jax.flops import counted
from fwbench.frameworks.torch.fingerprint import Operators
from fwbench.models import CATALOG
from fwbench.record.workload import Workload
from tests.programs import built

X = jnp.zeros((4, 8))
W = jnp.zeros((8, 16))
ONE = 2 * 4 * 8 * 16


@pytest.mark.parametrize("lane", ["torch", "jax"])
@pytest.mark.parametrize("options", [{}, {"mode": "train_step"}, {"mode": "train_step", "accumulate": 2}], ids=str)
def test_a_forward_pass_has_the_catalogs_operations_whatever_the_step_adds(lane, options):
    """All parts of a batch, and no backward pass."""
    program, _ = built(Workload(lane, "cnn", batch_size=4, device="cpu", plain=True, **options))
    with program.session():
        if lane == "torch":
            program.fingerprint()
        assert program.forward_flops() == 2 * CATALOG["cnn"].macs * 4


def test_what_a_checkpoint_computes_again_is_no_part_of_pytorchs_forward_pass():
    first, second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 16)
    x = torch.zeros(4, 8, requires_grad=True)
    with Operators() as found:
        checkpoint(lambda x: second(first(x)), x, use_reentrant=False).sum().backward()
    forward = ONE + 2 * 4 * 16 * 16
    assert found.forward_flops == forward
    assert found.flops > 3 * forward


def test_jax_counts_what_is_called_looped_and_chosen():
    def products(x, w):
        return jax.jit(lambda x: jax.checkpoint(lambda x: x @ w)(x))(x)

    def loop(x, w):
        return jax.lax.scan(lambda carry, _: (jnp.tanh((carry @ w) @ w.T), None), x, None, length=5)[0]

    def choice(x, w):
        return jax.lax.cond(x[0, 0] > 0, lambda: (x @ w).sum(), lambda: 0.0)

    assert counted(products, X, W) == ONE
    assert counted(loop, X, W) == 5 * 2 * ONE
    assert counted(choice, X, W) == ONE
    assert counted(lambda x, w: jnp.exp(x).sum() * w, X, W) == 0
    batched = jnp.zeros((3, 4, 8)), jnp.zeros((3, 8, 16))
    assert counted(jnp.matmul, *batched) == 3 * ONE


@pytest.mark.parametrize("groups", [1, 8])
def test_jax_counts_a_convolution_by_its_groups(groups):
    images, kernel = jnp.zeros((2, 10, 10, 8)), jnp.zeros((3, 3, 8 // groups, 16))

    def convolve(images, kernel, dilation=1):
        return jax.lax.conv_general_dilated(
            images,
            kernel,
            (1, 1),
            ((1, 1), (1, 1)),
            lhs_dilation=(dilation, dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    macs = 2 * 10 * 10 * 16 * 9 * 8 // groups
    assert counted(convolve, images, kernel) == 2 * macs
    # A transposed one multiplies zeros that it has put between the pixels.
    dilated = counted(lambda images, kernel: convolve(images, kernel, 2), images, kernel)
    assert dilated == pytest.approx(2 * macs, rel=0.1)
