"""A program goes on in fresh memory as if nothing had happened."""

import gc
import weakref

import numpy as np
import pytest

from fwbench import frameworks
from fwbench.models import CATALOG
from fwbench.models.weights import canonical
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from tests.tensorflow import TENSORFLOW, XLA


def built(workload):
    framework = frameworks.load(OWN[workload.lane].adapter)
    model = CATALOG[workload.model]
    weights = canonical("drawn", model, framework.weight_shapes(model, model.sizes()), workload.seed)
    program = framework.build(workload, model, weights)
    program.compile()
    return program


def outputs(program, steps):
    found = []
    with program.session():
        for _ in range(steps):
            program.step()
            program.wait()
            found.append(program.output())
    return np.array(found)


@pytest.mark.parametrize("mode", ["inference", "train_step"])
@pytest.mark.parametrize(
    "lane", ["torch", pytest.param("torch-compile", marks=pytest.mark.slow), "jax", TENSORFLOW, XLA]
)
def test_relocated_programs_compute_the_same(lane, mode):
    workload = Workload(lane, "cnn", mode, batch_size=4)
    moved = built(workload)
    first = outputs(moved, 3)
    moved.relocate()
    # A forward pass has no state: one that stays makes the same output again.
    expected = outputs(built(workload), 6) if mode == "train_step" else [*first, *first]
    assert np.array_equal([*first, *outputs(moved, 3)], expected)


@pytest.mark.parametrize("mode", ["inference", "train_step"])
@pytest.mark.parametrize("lane", ["torch", "jax", TENSORFLOW, XLA])
def test_relocating_gives_every_array_another_address(lane, mode):
    program = built(Workload(lane, "mlp", mode, batch_size=4))
    outputs(program, 1)
    before = addresses(program)
    assert len(before) >= 7
    program.relocate()
    assert not before & addresses(program)


@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_what_was_left_behind_is_not_kept(mode):
    """A second copy of the state would be in every peak of memory."""
    program = built(Workload("jax", "mlp", mode, batch_size=4))
    old = [weakref.ref(array) for array in held(program)]
    program.relocate()
    gc.collect()
    assert not [reference for reference in old if reference() is not None]


def held(program):
    """Everything that lies on the device."""
    if hasattr(program, "module"):
        optimizer = getattr(program, "optimizer", None)
        moments = [tensor for state in optimizer.state.values() for tensor in state.values()] if optimizer else []
        return [*program.inputs.values(), *program.module.parameters(), *program.module.buffers(), *moments]
    if hasattr(program, "network") and hasattr(program.network, "held"):
        variables = [*program.network.held, *getattr(getattr(program, "optimizer", None), "held", [])]
        return [*program.inputs.values(), *(variable.read_value() for variable in variables)]
    return [*program.inputs.values(), *getattr(program, "state", getattr(program, "leaves", []))]


def addresses(program):
    return {address(array) for array in held(program)}


def address(array):
    if hasattr(array, "data_ptr"):
        return array.data_ptr()
    # TensorFlow tells of none by itself.
    return np.from_dlpack(array).ctypes.data if hasattr(array, "numpy") else array.unsafe_buffer_pointer()
