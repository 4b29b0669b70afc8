"""Run in a process in which JAX sees two devices on the CPU: tells as JSON what programs over both of them do."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np

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


def output(program):
    return programs.outputs(program, 1)[0].tolist()


def collectives(program):
    return sorted(set(COLLECTIVE.findall(program.compiled.as_text())))


def plain(array):
    return np.asarray(jax.random.key_data(array) if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key) else array)


def same_everywhere(program):
    copies = [[plain(shard.data) for shard in leaf.addressable_shards] for leaf in program.state]
    return all(np.array_equal(one, other) for one, other in copies)


def keys(program):
    """Random keys in the state."""
    leaves = [leaf.addressable_data(0) for leaf in program.state]
    return [jnp.copy(leaf) for leaf in leaves if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)]


def epoch(program):
    """Two batches, and the evaluation of a third of which one sample does not count."""
    rng = np.random.default_rng(0)
    for _ in range(2):
        program.feed(rng.standard_normal((16, 784), np.float32), rng.integers(0, 10, 16, np.int32))
        program.step()
    labels = np.append(rng.integers(0, 10, 15, np.int32), np.int32(-1))
    program.score(rng.standard_normal((16, 784), np.float32), labels)
    program.wait()
    return {"curve": program.curve(), "scores": dataclasses.astuple(program.scores())}


def statistics(program):
    """After five steps."""
    losses(program, 5)
    return {name: array.tolist() for name, array in program.weights().items() if "running" in name}


def main():
    jax.config.update("jax_disable_most_optimizations", True)
    trained, forward = built(devices=2), built(mode="inference", devices=2)
    told = {
        "trained": {"collectives": collectives(trained), "losses": losses(trained, 2)},
        "forward": {"collectives": collectives(forward), "output": output(forward)},
        "forward on one": output(built(mode="inference")),
    }
    trained.relocate()
    told["trained"]["losses"] += losses(trained, 2)
    told["trained"]["same everywhere"] = same_everywhere(trained)
    told["in parts"] = losses(built(devices=2, accumulate=2, batch_size=8), 2)
    told["on one"] = losses(built(accumulate=2), 4)
    told["in parts on one"] = losses(built(accumulate=4, batch_size=8), 2)
    told["epoch"], told["epoch on one"] = (epoch(built("mlp", "fit", devices=count, batch_size=16)) for count in (2, 1))

    # Steps too short to change a weight: running statistics then tell which samples they are of.
    standing = {"learning_rate": 1e-30}
    several, one = built(devices=2, **standing), built(batch_size=2, **standing)
    one.feed(*(np.asarray(array.addressable_data(0)) for array in (*several.inputs.values(), *several.targets)))
    told["statistics"], told["statistics of the first slice"] = statistics(several), statistics(one)

    streams = built("streams", devices=2)
    (key,) = keys(streams)
    losses(streams, 1)
    told["streams"] = {
        "the first device's": plain(jax.random.fold_in(key, 0)).tolist(),
        "after": [plain(key).tolist() for key in keys(streams)],
        "same everywhere": same_everywhere(streams),
    }
    return told


if __name__ == "__main__":
    print(json.dumps(main()))
