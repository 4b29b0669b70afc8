"""Programs over two devices in one process; run by `test_devices.py` where JAX sees two devices on the CPU."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fwbench.models import CATALOG, Model
from fwbench.models.inputs import normal
from fwbench.record.workload import Workload
from tests import programs
from tests.correctness.test_devices import NORMALISED

STREAMS = Model("streams", jax="tests.correctness.normalised:with_streams", inputs=normal(784), classes=10)
MODELS = {model.name: model for model in (CATALOG["mlp"], NORMALISED, STREAMS)}
COLLECTIVE = re.compile(r"= .*?\b(all-\w+|reduce-scatter|collective-\w+|send|recv)(?:-start)?\(")


def built(model="normalised", mode="train_step", **fields):
    program, _ = programs.built(Workload("jax", model, mode, **{"batch_size": 4, **fields}), MODELS[model])
    program.compile()
    return program


def losses(program, steps):
    return programs.outputs(program, steps)[:, 0].tolist()


def collectives(program):
    return sorted(set(COLLECTIVE.findall(program.compiled.as_text())))


def plain(array):
    return np.asarray(jax.random.key_data(array) if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key) else array)


def same_everywhere(program):
    copies = [[plain(shard.data) for shard in leaf.addressable_shards] for leaf in program.state]
    return all(np.array_equal(one, other) for one, other in copies)


def test_gradients_are_brought_together_by_all_reduce_alone():
    assert collectives(built(devices=2)) == ["all-reduce"]


def test_a_forward_pass_exchanges_nothing_and_gives_all_rows_in_order():
    forward = built(mode="inference", devices=2)
    assert collectives(forward) == []
    expected = programs.outputs(built(mode="inference"), 1)
    np.testing.assert_allclose(programs.outputs(forward, 1), expected, rtol=1e-5, atol=1e-8)


def test_a_step_is_that_of_one_device_dropout_included():
    """Also after everything has moved to fresh memory; all devices hold the same state, running statistics included."""
    program = built(devices=2)
    found = losses(program, 2)
    program.relocate()
    found += losses(program, 2)
    assert found == pytest.approx(losses(built(accumulate=2), 4), rel=1e-5)
    assert same_everywhere(program)


def test_each_device_accumulates_its_parts_with_their_own_random_keys():
    on_one = losses(built(accumulate=4, batch_size=8), 2)
    assert losses(built(devices=2, accumulate=2, batch_size=8), 2) == pytest.approx(on_one, rel=1e-5)


def test_running_statistics_are_those_of_the_first_slice_step_after_step():
    # Steps too short to change a weight: running statistics then tell which samples they are of.
    several, one = (built(learning_rate=1e-30, **fields) for fields in ({"devices": 2}, {"batch_size": 2}))
    one.feed(*(np.asarray(array.addressable_data(0)) for array in (*several.inputs.values(), *several.targets)))
    for program in (several, one):
        losses(program, 5)
    expected, found = one.weights(), several.weights()
    for name in ("norm.running_mean", "norm.running_var"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)


def test_curve_and_scores_of_an_epoch_are_of_the_whole_batch():
    """Of two batches, and the evaluation of a third of which one sample does not count."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((3, 16, 784), np.float32)
    labels = rng.integers(0, 10, (3, 16), np.int32)
    labels[2, -1] = -1
    curves, scores = [], []
    for devices in (2, 1):
        program = built("mlp", "fit", devices=devices, batch_size=16)
        for batch in range(2):
            program.feed(images[batch], labels[batch])
            program.step()
        program.score(images[2], labels[2])
        program.wait()
        curves.append(program.curve())
        scores.append(dataclasses.astuple(program.scores()))
    np.testing.assert_allclose(*curves, rtol=1e-5, atol=1e-8)
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_a_networks_own_random_stream_gives_each_device_other_numbers():
    def keys():
        """Random keys in the state."""
        leaves = [leaf.addressable_data(0) for leaf in program.state]
        return [jnp.copy(leaf) for leaf in leaves if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)]

    program = built("streams", devices=2)
    (key,) = keys()
    losses(program, 1)
    (after,) = keys()
    np.testing.assert_array_equal(plain(after), plain(jax.random.fold_in(key, 0)))
    assert same_everywhere(program)
