"""Each TensorFlow lane beside the same network called by hand: the CPU time of the lane's call over that of the other.

    python docs/evidence/by_hand.py [MODEL ...]   # writes the table in lanes.md

By hand means `tf.function(model)`, with `jit_compile=True` where the lane has it, and `model(x)` without either; for a
training step a function of GradientTape, Keras's loss and Keras's Adam. All of a row run by turns in one process, with
the lane's weights and batch, in the environment of one of its workers; the median of the turns counts.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.models.project import complete
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import environment

PAGE = Path(__file__).resolve().with_name("lanes.md")
BEGIN, END = "<!-- by hand: begin -->", "<!-- by hand: end -->"
MODELS = [name for name, model in CATALOG.items() if "tensorflow" in complete(model).networks]
CALLS = (("inference", 1), ("inference", 8), ("train_step", 2))
TURNS, SECONDS = 5, 0.3

Call = Callable[[], Any]


def by_hand(program: Any, mode: str) -> dict[str, Call]:
    """What somebody would write who has the program's network and its batch."""
    from fwbench.ext.tensorflow.imported import keras, tf
    from fwbench.ext.tensorflow.layers import training

    module, images = program.network.module, program.inputs[""]
    if mode == "inference":
        called = tf.function(module, jit_compile=program.xla or None)
        return {"tf.function": lambda: called(images), "model(x)": lambda: module(images)}
    variables = program.network.parameters
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(1e-4)
    optimizer.build(module.trainable_variables)
    (labels,) = program.targets

    @tf.function(jit_compile=program.xla or None)
    def step(images: Any, labels: Any) -> Any:
        with training(tf.constant([0, 0])) as told:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, module(images, training=True))
            gradients = tape.gradient(loss, variables)
        told.assign()
        optimizer.apply(gradients, module.trainable_variables)
        return loss

    return {"tf.function": lambda: step(images, labels)}


def seconds(call: Call) -> float:
    """CPU time of a call."""
    begun, calls = time.process_time(), 0
    while (spent := time.process_time() - begun) < SECONDS or not calls:
        call()
        calls += 1
    return spent / calls


def play(lane: str, name: str, mode: str, batch: int) -> dict[str, float]:
    """The lane's CPU time over that of each call by hand."""
    from fwbench import frameworks
    from fwbench.models.weights import canonical

    framework = frameworks.load(LANES[lane].adapter)
    workload, model = Workload(lane, name, mode, batch), complete(CATALOG[name])
    weights = canonical("drawn", model, framework.weight_shapes(model, model.sizes(workload.axes)), 0)
    program = framework.build(workload, model, weights)

    def ours() -> None:
        program.step()
        program.wait()

    with program.session():
        program.compile()
        calls = {"lane": ours, **by_hand(program, mode)}
        for call in calls.values():
            call()
            call()
        taken: dict[str, list[float]] = {what: [] for what in calls}
        for _ in range(TURNS):
            for what, call in calls.items():
                taken[what].append(seconds(call))
    lanes = median(taken.pop("lane"))
    return {what: lanes / median(times) for what, times in taken.items()}


def table(models: list[str]) -> list[str]:
    lanes = [name for name, lane in LANES.items() if lane.framework == "tensorflow"]
    lines = [f"| the lane's time over | {' | '.join(f'`{lane}`' for lane in lanes)} |", f"|---|{'--:|' * len(lanes)}"]
    for name in models:
        for mode, batch in CALLS:
            cells = []
            for lane in lanes:
                done = subprocess.run(
                    [sys.executable, __file__, "--play", lane, name, mode, str(batch)],
                    env=environment(os.environ, machine().threads, "cpu", LANES[lane]),
                    stdout=subprocess.PIPE,
                    check=True,
                )
                found = json.loads(done.stdout.splitlines()[-1])
                cells.append(", ".join(f"{ratio:.2f} ({what})" for what, ratio in found.items()))
                print(name, mode, batch, lane, cells[-1], flush=True)
            lines.append(f"| {name} {mode} b{batch} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        lane, name, mode, batch = sys.argv[2:]
        print(json.dumps(play(lane, name, mode, int(batch))))
    else:
        made = "\n".join((BEGIN, f"On {machine().cpu}.", "", *table(sys.argv[1:] or MODELS), END))
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(before + made + rest.partition(END)[2], encoding="utf-8")
