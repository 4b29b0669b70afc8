"""Two revisions of a network, as a duet reads what both compute when their turns are over."""

import functools

import pytest

from fwbench.compare.agreement import of_sides
from fwbench.meters.remembering import vary
from fwbench.models import Model, inputs
from fwbench.record.workload import Workload
from fwbench.worker.process.checks import computed
from tests.programs import built


@functools.cache
def outputs(lane, name, mode, precision="fp32"):
    """What a side computes after some calls, of several batches where timed calls take these."""
    model = Model("block", inputs=inputs.normal(9, 32), **{lane: f"sides_{lane}:{name}"})
    workload = Workload(lane, model.name, mode, 4, precision)
    program, weights = built(workload, model)
    vary(program, model, workload)
    with program.session():
        program.compile()
        # Two sides make other numbers of calls, so that their last ones took other batches.
        for _ in range(3 + len(name) % 3):
            program.call_and_wait()
        return computed(program, model, workload, weights)


def held(lane, name, mode, precision="fp32"):
    workload = Workload(lane, "block", mode, 4, precision)
    return of_sides(workload, outputs(lane, "Base", mode, precision), outputs(lane, name, mode, precision))


MODES = pytest.mark.parametrize("mode", ["inference", "train_step"])


@MODES
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_another_order_of_sums_is_the_same(lane, mode, precision):
    found = held(lane, "Reordered", mode, precision)
    assert found.agrees, str(found)
    # Exact equality would be no test of the bound.
    assert found.difference > 0


@MODES
@pytest.mark.parametrize(("lane", "name"), [("torch", "Scaled"), ("torch", "Loosened"), ("jax", "Scaled")])
def test_another_scale_or_epsilon_is_something_else(lane, name, mode):
    found = held(lane, name, mode)
    assert found.agrees is False, str(found)
    assert found.difference > 2 * found.bound


@MODES
def test_a_norm_with_fewer_weights_is_something_else(mode):
    assert str(held("torch", "Unbiased", mode)) == "HEAD has 3,365 weights, and BASE 3,397"


def test_weights_of_other_names_are_drawn_anew_so_nothing_is_said():
    found = held("torch", "Renamed", "inference")
    assert found.agrees is None
    assert "other weights" in str(found)
