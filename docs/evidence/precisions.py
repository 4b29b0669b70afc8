"""How many times as fast bf16 is as fp32, in the same lane: `precisions.md` and its data.

    python docs/evidence/precisions.py          measures what precisions.jsonl lacks (about ten minutes on two cores)
    python docs/evidence/precisions.py --page   writes precisions.md from it

Each row has two processes in the environment of the lane's worker, one of each precision. Their blocks of calls take
turns, A B B A, and each makes a ratio with its neighbour. Before a block the other's threads get 5 ms to go to sleep,
and one call does not count. Every call is waited for.
"""

import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from decoder import interval
from lines import stored, table

from fwbench import frameworks
from fwbench.machine import machine, versions
from fwbench.models import CATALOG, stateful
from fwbench.models.weights import canonical
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import environment

HERE = Path(__file__).resolve()
DATA, PAGE = HERE.with_suffix(".jsonl"), HERE.with_suffix(".md")
PLAYED = ("torch", "jax")
PRECISIONS = ("fp32", "bf16")
MODELS = ("mlp", "cnn", "mobilenet_v3_small", "efficientnet_b0", "resnet50", "vit_b_16")
TRAINED = ("mlp", "cnn", "resnet50", "vit_b_16")
ROWS = [(model, "inference", 8) for model in MODELS] + [(model, "train_step", 2) for model in TRAINED]
# Seconds of a row, the fewest blocks of each precision, and the seconds of a block.
ROW, FEWEST, SECONDS = 12.0, 24, 0.02
WARM = 3


def serve(lane: str, model_name: str, mode: str, batch: str, precision: str) -> None:
    """Build a program, and for each number of calls on standard input write the seconds of a call."""
    framework, model = frameworks.load(LANES[lane].adapter), CATALOG[model_name]
    workload = Workload(lane, model_name, mode, int(batch), precision=precision)
    weights = canonical("drawn", model, framework.weight_shapes(model, stateful.sizes(model, workload)), 0)
    program = framework.build(workload, model, weights)
    with program.session():
        program.compile()
        for line in sys.stdin:
            program.call_and_wait()
            begun = time.perf_counter()
            for _ in range(int(line)):
                program.call_and_wait()
            print((time.perf_counter() - begun) / int(line), flush=True)


@contextmanager
def served(*row: str) -> Iterator[Any]:
    """A function that has a process make a number of calls, and returns the seconds of one."""
    variables = environment(os.environ, machine().threads, "cpu", LANES[row[0]])
    command = [sys.executable, str(HERE), "--serve", *row]
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def seconds(calls: int) -> float:
            time.sleep(0.005)
            print(calls, file=stdin, flush=True)
            return float(stdout.readline())

        yield seconds
        stdin.close()


def play(lane: str, model: str, mode: str, batch: int) -> dict[str, Any]:
    """Seconds of a call in each block of a row, by precision."""
    row = (lane, model, mode, str(batch))
    with served(*row, PRECISIONS[0]) as first, served(*row, PRECISIONS[1]) as second:
        sides = dict(zip(PRECISIONS, (first, second), strict=True))
        calls = {name: math.ceil(SECONDS / min(side(1) for _ in range(WARM))) for name, side in sides.items()}
        blocks: dict[str, list[float]] = {name: [] for name in sides}
        begun = time.monotonic()
        while len(blocks["fp32"]) < FEWEST or time.monotonic() - begun < ROW:
            for name in sorted(sides, reverse=len(blocks["fp32"]) % 2 == 1):
                blocks[name].append(float(f"{sides[name](calls[name]):.4g}"))
    facts = {"cpu": machine().cpu, "threads": machine().threads, "versions": versions(PLAYED)}
    return {"lane": lane, "model": model, "mode": mode, "batch": batch, **blocks, **facts}


def measure() -> None:
    """Play each row that the data lack."""
    done = {(line["lane"], line["model"], line["mode"]) for line in stored(DATA)}
    for (model, mode, batch), lane in itertools.product(ROWS, PLAYED):
        if (lane, model, mode) in done:
            continue
        line = play(lane, model, mode, batch)
        print(lane, model, mode, batch, f"{median(ratios(line)):.3f}", interval(ratios(line)), flush=True)
        with DATA.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def ratios(line: dict[str, Any]) -> list[float]:
    """The time of each block in fp32 over that of its neighbour in bf16, in order of size."""
    return sorted(fp32 / bf16 for fp32, bf16 in zip(line["fp32"], line["bf16"], strict=True))


def page(lines: list[dict[str, Any]]) -> str:
    """The data as Markdown."""
    rows = []
    for line in sorted(
        lines, key=lambda line: (ROWS.index((line["model"], line["mode"], line["batch"])), line["lane"])
    ):
        times = (f"{1e3 * median(line[precision]):.3g} ms" for precision in PRECISIONS)
        low, high = interval(ratios(line))
        place = (line["model"], line["mode"], line["batch"], line["lane"])
        rows.append((*place, *times, f"{median(ratios(line)):.2f}", f"{low:.2f} to {high:.2f}"))
    first = lines[0]
    return f"""# How many times as fast bf16 is as fp32

Made by `python docs/evidence/precisions.py` on {first["cpu"]}, {first["threads"]} cores;
{", ".join(" ".join(pair) for pair in first["versions"].items())}.

Programs of both precisions take turns, in two processes of one lane, {FEWEST} blocks of each or more. The ratio is the
median of those of neighbouring blocks, with its interval of 99 %; of one process each it may differ by 1 to 2 % from
that of another pair. Errors are in [What bf16 gains and costs](../precisions.md).

{table(("model", "mode", "batch", "lane", "fp32", "bf16", "times as fast", "interval"), rows)}
"""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    elif sys.argv[1:] == ["--page"]:
        PAGE.write_text(page(stored(DATA)), encoding="utf-8")
    else:
        measure()
