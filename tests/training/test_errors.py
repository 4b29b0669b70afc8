"""The error that a row in bf16 states, against the error that whole arrays have."""

import numpy as np
import pytest

from fwbench.meters import sketching
from fwbench.meters.sketching import of_inference, of_training
from fwbench.record.workload import Workload
from tests.programs import built

# Three standard errors of an estimate.
WITHIN = 0.08


def computed(lane, precision, mode):
    """A program of the MLP after its first step, with the weights that it began with."""
    program, weights = built(Workload(lane, "mlp", mode, batch_size=4, precision=precision))
    with program.session():
        program.compile()
        program.restart(weights)
        program.call_and_wait()
    return program, weights


def flat(program, mode):
    """Every number of the output, or of all gradients."""
    arrays = [program.output()] if mode == "inference" else [of for _, of in sorted(program.gradients().items())]
    return np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])


def stated(lane, mode):
    """The error that a row in bf16 states, and the true one."""
    program, weights = computed("torch", "fp64", mode)
    exact = flat(program, mode)
    with program.session():
        folded = sketching.folded_output(program) if mode == "inference" else sketching.folded_step(program, weights)
    program, weights = computed(lane, "bf16", mode)
    true = np.linalg.norm(flat(program, mode) - exact) / np.linalg.norm(exact)
    with program.session():
        if mode == "inference":
            check = of_inference(program, "bf16", exact=lambda: folded)
        else:
            check = of_training(program, weights, "bf16", exact=lambda: folded)
    return check["errors"]["output" if mode == "inference" else "gradients"], true


@pytest.mark.parametrize("mode", ["inference", "train_step"])
@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_a_stated_error_is_the_true_one_and_one_off_by_a_factor_of_two_is_found(lane, mode):
    error, true = stated(lane, mode)
    assert 1e-3 < true < 1e-1
    assert error == pytest.approx(true, rel=WITHIN)
    for factor in (0.5, 2.0):
        assert factor * error != pytest.approx(true, rel=WITHIN)
