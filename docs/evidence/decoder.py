"""fwbench's calls of the decoder beside a plain loop written by hand: `decoder.md` and its data.

    python docs/evidence/decoder.py          measures what decoder.jsonl lacks (about a quarter of an hour on two cores)
    python docs/evidence/decoder.py --page   writes decoder.md from it

Each row is a process in the environment of the lane's worker. The loop has the lane's network, weights and tokens, a
cache of its own, and no fwbench: eager PyTorch under `torch.inference_mode`, `torch.compile`, or `jax.jit` with a
donated state. Its position moves on with each call, as in generation, and is set back before each block of calls; a
prompt always begins at 0. The cache has room for all calls of a block, and its size alone decides how much a call
computes. Every call is waited for. Short blocks of both take turns, A B B A, and each makes a ratio with its neighbour.
"""

import copy
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from lines import stored, table
from scipy.stats import binom

from fwbench import frameworks
from fwbench.machine import machine, versions
from fwbench.models import CATALOG, stateful
from fwbench.models.weights import canonical
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import environment

HERE = Path(__file__).resolve()
DATA, PAGE = HERE.with_suffix(".jsonl"), HERE.with_suffix(".md")
PLAYED = ("torch", "jax", "torch-compile")
CALLS = (("prefill", 128), ("decode", 128), ("decode", 1024))
BATCHES = (1, 8)
# Seconds of a row, the fewest blocks of each, and the seconds of a block.
ROW, FEWEST, SECONDS = 25.0, 100, 0.02
WARM = 3

# A call, and what sets the position back.
Loop = tuple[Callable[[], Any], Callable[[], None]]


def in_torch(program: Any, lane: str, depth: int, batch: int) -> Loop:
    """A loop in PyTorch; the call returns logits."""
    import torch

    from fwbench.frameworks.torch.decoder import cache

    module = copy.deepcopy(program.module)
    state, tokens = cache(batch, depth + 1), program.inputs[""]
    if program.filling is not None:
        module(program.filling[""], state)
    start = 0 if program.filling is None else depth
    called = torch.compile(module) if lane == "torch-compile" else module

    def call() -> Any:
        if not start:
            state["position"].zero_()
        return called(tokens, state)[0]

    return call, lambda: state["position"].fill_(start)


def in_jax(program: Any, lane: str, depth: int, batch: int) -> Loop:
    """A loop in JAX; the call returns logits that are ready."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from fwbench.frameworks.jax.decoder import cache

    graph, weights = nnx.split(program.network.assembled(program.leaves))

    def stepped(weights: Any, tokens: Any, state: Any) -> Any:
        return nnx.merge(graph, weights)(tokens, state)

    step = jax.jit(stepped, donate_argnums=2)
    state, tokens = jax.tree.map(jnp.asarray, cache(batch, depth + 1)), program.inputs[""]
    if program.filling is not None:
        _, state = step(weights, program.filling[""], state)
    start = 0 if program.filling is None else depth

    def restart() -> None:
        state["position"] = jnp.asarray(start)

    def call() -> Any:
        nonlocal state
        if not start:
            restart()
        logits, state = step(weights, tokens, state)
        return jax.block_until_ready(logits)

    return call, restart


def seconds(loop: Loop, calls: int) -> float:
    """Time of each of so many calls in a row."""
    call, restart = loop
    restart()
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begun) / calls


def play(lane: str, mode: str, depth: int, batch: int) -> dict[str, Any]:
    """Seconds of a call in each block of a row, of fwbench's program and of the loop."""
    framework, model = frameworks.load(LANES[lane].adapter), CATALOG["decoder"]
    workload = Workload(lane, "decoder", mode, batch, axes=(("length", depth),))
    weights = canonical("drawn", model, framework.weight_shapes(model, stateful.sizes(model, workload)), 0)
    program = framework.build(workload, model, weights)
    with program.session():
        program.compile()
        by_hand = (in_jax if lane == "jax" else in_torch)(program, lane, depth, batch)
        loops: dict[str, Loop] = {"ours": (program.call_and_wait, lambda: None), "by_hand": by_hand}
        for loop in loops.values():
            seconds(loop, WARM)
        by_hand[1]()
        np.testing.assert_allclose(np.asarray(by_hand[0]()), program.output(), rtol=1e-3, atol=1e-4)
        call = seconds(by_hand, WARM)
        calls = math.ceil(SECONDS / call)
        blocks: dict[str, list[float]] = {name: [] for name in loops}
        for number in range(max(FEWEST, math.ceil(ROW / (2 * calls * call)))):
            for name in sorted(loops, reverse=number % 2 == 1):
                blocks[name].append(float(f"{seconds(loops[name], calls):.4g}"))
    facts = {"cpu": machine().cpu, "threads": machine().threads, "versions": versions(("torch", "jax"))}
    return {"lane": lane, "mode": mode, "depth": depth, "batch": batch, "calls": calls, **blocks, **facts}


def measure() -> None:
    """Play each row that the data lack."""
    done = {(line["lane"], line["mode"], line["depth"], line["batch"]) for line in stored(DATA)}
    for lane, (mode, depth), batch in itertools.product(PLAYED, CALLS, BATCHES):
        if (lane, mode, depth, batch) in done:
            continue
        played = subprocess.run(
            [sys.executable, HERE, "--play", lane, mode, str(depth), str(batch)],
            env=environment(os.environ, machine().threads, "cpu", LANES[lane]),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        line = json.loads(played.stdout.splitlines()[-1])
        print(lane, mode, depth, batch, f"{median(ratios(line)):.3f}", flush=True)
        with DATA.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def ratios(line: dict[str, Any]) -> list[float]:
    """The time of each of our blocks over that of the loop's neighbouring one, in order of size."""
    return sorted(ours / by_hand for ours, by_hand in zip(line["ours"], line["by_hand"], strict=True))


def interval(values: list[float]) -> tuple[float, float]:
    """The interval of 99 % of the median of ordered values, by the sign test."""
    rank = max(0, int(binom.ppf(0.005, len(values), 0.5)) - 1)
    return values[rank], values[-1 - rank]


def page(lines: list[dict[str, Any]]) -> str:
    """The data as Markdown."""
    rows = []
    for line in lines:
        times = (f"{1e3 * median(line[side]):.3g} ms" for side in ("ours", "by_hand"))
        low, high = interval(ratios(line))
        place = (line[name] for name in ("lane", "mode", "depth", "batch"))
        rows.append((*place, *times, f"{median(ratios(line)):.3f}", f"{low:.3f} to {high:.3f}"))
    first, largest = lines[0], max(median(ratios(line)) for line in lines)
    return f"""# The decoder beside loops written by hand

Made by `python docs/evidence/decoder.py` on {first["cpu"]}, {first["threads"]} cores;
{", ".join(" ".join(pair) for pair in first["versions"].items())}.

A row compares a call of [the decoder](../models.md#the-decoder) as fwbench measures it with one in a plain loop: the
same network and weights in eager PyTorch under `torch.inference_mode`, in `torch.compile`, or in `jax.jit` with a
donated state. Depth is the length of the prompt in `prefill`, and the number of steps in the cache in `decode`. Both
take turns in one process, in {FEWEST} blocks or more of each. The ratio is the median of those of
neighbouring blocks, with its interval of 99 %. The greatest ratio is {largest:.3f}.

{table(("lane", "mode", "depth", "batch", "fwbench", "by hand", "ratio", "interval"), rows)}
"""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        lane, mode, *sizes = sys.argv[2:]
        print(json.dumps(play(lane, mode, *map(int, sizes))))
    elif sys.argv[1:] == ["--page"]:
        PAGE.write_text(page(stored(DATA)), encoding="utf-8")
    else:
        measure()
