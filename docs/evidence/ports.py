"""fwbench's JAX networks beside public ports of them: the time of a call of ours over one of theirs.

    python docs/evidence/ports.py WORK [MODEL ...] # plays each model's pairs in a fresh process and adds what it took
    python docs/evidence/ports.py WORK --read      # writes the table in lanes.md

Both networks of a pair run by turns in one process, on one CPU, in the environment of a worker of fwbench's. Needs,
beside fwbench's own dependencies, keras, and torchax with a PyTorch and a torchvision that it can import. The table's
ranges are as good as the number of processes: call the first form several times.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve()
PAGE = HERE.with_name("lanes.md")
BEGIN, END = "<!-- beside public ports: begin -->", "<!-- beside public ports: end -->"

# Keras's applications and torchvision's networks, the latter as functions of JAX's arrays.
PORTS = {
    "mobilenet_v3_small": "keras",
    "efficientnet_b0": "keras",
    "resnet50": "torchax",
    "vit_b_16": "torchax",
}
MODES = {"inference": "forward", "train_step": "train step"}
BATCHES = (1, 8)
DISTRIBUTIONS = ("jax", "flax", "optax", "keras", "torchax", "torch", "torchvision")
SECONDS, LEAST_ROUNDS = 3.0, 2  # of CPU time for each pair in a process
LARGEST = 0.98  # the ratio that we claim

Port = tuple[Callable[..., Any], tuple[Any, ...]]  # a jitted function and its arguments


def from_keras(name: str, mode: str, weights: Mapping[str, Any], images: Any, labels: Any) -> Port:
    """As Keras's guide to training loops in JAX has it; donated as in `keras.Model.fit`. Weights are Keras's own."""
    import jax
    import keras

    if name == "mobilenet_v3_small":
        model = keras.applications.MobileNetV3Small(
            weights=None, include_preprocessing=False, classifier_activation=None
        )
    else:
        whole = keras.applications.EfficientNetB0(weights=None, classifier_activation=None)
        # Without the layers that rescale and normalise the images, which ours does not have.
        normalised = next(layer for layer in whole.layers if isinstance(layer, keras.layers.Normalization))
        model = keras.Model(normalised.output, whole.output)
    trained = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]

    def forward(trained: Any, others: Any, images: Any) -> Any:
        return model.stateless_call(trained, others, images, training=False)[0]

    if mode == "inference":
        return jax.jit(forward), (trained, others, images)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-4, 100_000), epsilon=1e-8)
    optimizer.build(model.trainable_variables)

    def loss(trained: Any, others: Any, images: Any, labels: Any) -> Any:
        logits, others = model.stateless_call(trained, others, images, training=True)
        return loss_of(labels, logits), others

    def step(state: Any, images: Any, labels: Any) -> Any:
        trained, others, memory = state
        (value, others), gradients = jax.value_and_grad(loss, has_aux=True)(trained, others, images, labels)
        trained, memory = optimizer.stateless_apply(memory, gradients, trained)
        return (trained, others, memory), value

    memory = [variable.value for variable in optimizer.variables]
    return jax.jit(step, donate_argnums=0), ((trained, others, memory), images, labels)


def from_torchax(name: str, mode: str, weights: Mapping[str, Any], images: Any, labels: Any) -> Port:
    """torchvision's network through `torchax.extract_jax`, with our weights; trained by Optax."""
    import jax
    import optax
    import torch
    import torchax
    import torchvision

    model = torchvision.models.get_model(name).train(mode == "train_step")
    model.load_state_dict({key: torch.from_numpy(array) for key, array in weights.items()}, strict=False)
    others, function = torchax.extract_jax(model)
    trained = {key: others.pop(key) for key, _ in model.named_parameters()}
    images = images.transpose(0, 3, 1, 2)

    def forward(trained: Any, others: Any, images: Any) -> Any:
        return function(trained | others, (images,))

    if mode == "inference":
        return jax.jit(forward), (trained, others, images)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-4, 100_000))

    def loss(trained: Any, others: Any, images: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(forward(trained, others, images), labels).mean()

    def step(state: Any, others: Any, images: Any, labels: Any) -> Any:
        trained, memory = state
        value, gradients = jax.value_and_grad(loss)(trained, others, images, labels)
        updates, memory = optimizer.update(gradients, memory, trained)
        return (optax.apply_updates(trained, updates), memory), value

    return jax.jit(step, donate_argnums=0), ((trained, optimizer.init(trained)), others, images, labels)


def play(name: str, mode: str, batch: int) -> dict[str, Any]:
    """One process's rounds of a pair, in seconds of CPU time; and whether both compute the same."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from fwbench.frameworks.jax.adapter import FRAMEWORK
    from fwbench.frameworks.training import targets
    from fwbench.models.catalog import CATALOG
    from fwbench.models.inputs import draw
    from fwbench.models.weights import canonical
    from fwbench.record.workload import Workload

    model = CATALOG[name]
    sizes = model.sizes(())
    workload, plain = (Workload("jax", name, mode, batch, plain=plain) for plain in (False, True))
    weights = canonical("drawn", model, FRAMEWORK.weight_shapes(model, sizes), 0)
    (images,) = draw(model.inputs, batch, 0, sizes).values()
    labels = targets(workload, model, (batch, model.classes))
    port = {"keras": from_keras, "torchax": from_torchax}[PORTS[name]]
    function, arguments = port(name, mode, weights, jnp.asarray(images), jnp.asarray(labels))
    # Compiled before the build of ours sets the precision of the whole process.
    lowered = function.lower(*arguments)
    compiled = lowered.compile()
    state, rest = arguments[0], arguments[1:]
    # In the form whose arithmetic XLA counts as it is.
    ours = FRAMEWORK.build(plain, model, weights)
    flops = ours.function.lower(*ours.arguments).cost_analysis()["flops"]
    ours = FRAMEWORK.build(workload, model, weights)
    ours.compile()

    def call_ours() -> Any:
        ours.step()
        return jax.block_until_ready((ours.out, getattr(ours, "state", ())))[0][0]

    def call_theirs() -> Any:
        nonlocal state
        out = jax.block_until_ready(compiled(state, *rest))
        if mode == "train_step":
            state, out = out
        return out

    calls = {"ours": call_ours, "theirs": call_theirs}
    first = [np.asarray(call()) for call in calls.values()]
    seconds: dict[str, list[float]] = {side: [] for side in calls}
    while len(seconds["ours"]) < LEAST_ROUNDS or sum(map(sum, seconds.values())) < SECONDS:
        for side in sorted(calls, reverse=len(seconds["ours"]) % 2 == 1):
            begun = time.process_time()
            calls[side]()
            seconds[side].append(time.process_time() - begun)
    trained = jax.tree.leaves(arguments[0][0] if mode == "train_step" else arguments[0])
    return {
        "model": name,
        "mode": mode,
        "batch": batch,
        **seconds,
        "parameters": [model.parameters, sum(array.size for array in trained)],
        "flops": [flops, lowered.cost_analysis()["flops"]],
        "difference": float(abs(first[0] - first[1]).max() / abs(first[0]).max()),
    }


def run(work: Path, names: list[str]) -> None:
    from fwbench.record.lanes import OWN
    from fwbench.worker.client.starting import environment

    lane = OWN["jax"]
    # Compiled once for all processes.
    shared = lane.sharing | {"JAX_COMPILATION_CACHE_DIR": str(work / "cache")}
    variables = environment(os.environ, 1, "cpu", lane) | shared | {"KERAS_BACKEND": "jax"}
    work.mkdir(parents=True, exist_ok=True)
    for name in names or PORTS:
        subprocess.run([sys.executable, HERE, str(work), "--play", name], env=variables, check=True)


def measure(work: Path, name: str) -> None:
    from fwbench.machine import machine, versions

    # The last one: scripts that take one alone take the first.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    told = {"versions": versions(DISTRIBUTIONS), "cpu": machine().cpu}
    with (work / "rounds.jsonl").open("a", encoding="utf-8") as file:
        for mode in MODES:
            for batch in BATCHES:
                played = play(name, mode, batch)
                print(name, mode, batch, f"{ratio(played):.3f}", played["flops"], played["difference"], flush=True)
                file.write(json.dumps(played | told) + "\n")
                file.flush()


def ratio(played: Mapping[str, Any]) -> float:
    """Of one process: the median round's."""
    return median(ours / theirs for ours, theirs in zip(played["ours"], played["theirs"], strict=True))


def tables(rows: list[dict[str, Any]]) -> list[str]:
    """A row for every pair that was played, over all processes that did, and what each pair is made of."""
    times = [
        "| network | port | what | batch | ours | theirs | ours / theirs | least to greatest | processes |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    work = [
        "| network | port | parameters, ours | theirs | FLOPs of a forward pass, ours | theirs | logits apart by |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    names = {row["model"] for row in rows}
    for name, port in ((name, port) for name, port in PORTS.items() if name in names):
        for mode, batch in itertools.product(MODES, BATCHES):
            played = [row for row in rows if (row["model"], row["mode"], row["batch"]) == (name, mode, batch)]
            if not played:
                continue
            ratios = sorted(map(ratio, played))
            ours, theirs = (duration(median(median(row[side]) for row in played)) for side in ("ours", "theirs"))
            found = f"{median(ratios):.2f}"
            claimed = found if median(ratios) <= LARGEST else f"**{found}**"
            cells = (name, port, MODES[mode], batch, ours, theirs, claimed, f"{ratios[0]:.2f} to {ratios[-1]:.2f}")
            times.append(f"| {' | '.join(map(str, (*cells, len(played))))} |")
        # The first that is played.
        row = next(row for row in rows if row["model"] == name)
        flops = (f"{count:.3e}" for count in row["flops"])
        apart = f"{row['difference']:.0e}" if port == "torchax" else "(other weights)"
        work.append(f"| {' | '.join((name, port, *map('{:,}'.format, row['parameters']), *flops, apart))} |")
    return [*times, "", *work]


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def write(rows: list[dict[str, Any]]) -> None:
    ((cpu, versions),) = {(row["cpu"], tuple(row["versions"].items())) for row in rows}
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    lines = [f"{cpu}, one core; {', '.join(map(' '.join, versions))}.", "", *tables(rows)]
    PAGE.write_text("\n".join([before + BEGIN, *lines, END + rest.partition(END)[2]]), encoding="utf-8")


if __name__ == "__main__":
    folder, *options = sys.argv[1:]
    if options[:1] == ["--play"]:
        measure(Path(folder), options[1])
    elif options == ["--read"]:
        write([json.loads(line) for line in (Path(folder) / "rounds.jsonl").read_text(encoding="utf-8").splitlines()])
    else:
        run(Path(folder).resolve(), options)
