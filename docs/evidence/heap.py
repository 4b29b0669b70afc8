"""How long JAX's calls take on a CPU in processes that have compiled their programs, and in ones that have loaded them.

    python docs/evidence/heap.py ROUNDS   plays rounds and adds their turns to heap.jsonl
    python docs/evidence/heap.py --page   writes heap.md

In a round four processes run one program in turns. Two have compiled it, and two have loaded what an earlier process
has compiled; of each kind one has one heap for all threads, as in any measurement of fwbench, and one has glibc's
defaults. The machine must do nothing else.
"""

import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev

from lines import stored, table

from fwbench.compare.pair import Fault
from fwbench.compare.ratios import round_difference
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns.lanes import Lanes
from fwbench.worker.turns.partner import Seat
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side

HERE = Path(__file__).resolve().parent
DATA, PAGE = HERE / "heap.jsonl", HERE / "heap.md"
MEASURED = [
    *(Workload("", model, batch_size=batch) for model in ("mobilenet_v3_small", "efficientnet_b0") for batch in (1, 8)),
    Workload("", "resnet50"),
    Workload("", "cnn", batch_size=8),
    Workload("", "mlp", mode="train_step", batch_size=2),
]
# A variable of the allocator's, here with its default, switches fwbench's own settings off.
DEFAULTS = {"GLIBC_TUNABLES": "glibc.malloc.perturb=0"}
COMPILES = dataclasses.replace(LANES["jax"], sharing={})
# By name: the lane, and variables of its processes.
KINDS: Mapping[str, tuple] = {
    "glibc's defaults, loaded": (LANES["jax"], DEFAULTS),
    "glibc's defaults, compiled": (COMPILES, DEFAULTS),
    "one heap, loaded": (LANES["jax"], {}),
    "one heap, compiled": (COMPILES, {}),
}
LOADED, COMPILED, *_ = KINDS


class Kinds(Lanes):
    """Rounds of one lane in processes of several kinds."""

    def seats(self, workload: Workload) -> tuple[Seat, ...]:
        return tuple(
            Seat(name, dataclasses.replace(self._side, title=name, variables=variables), lane)
            for name, (lane, variables) in KINDS.items()
        )


def play(rounds: int) -> None:
    """Play rounds, after a first one in which all compile."""
    with tempfile.TemporaryDirectory() as folder, Servers(swapped=False) as servers, DATA.open("a") as data:
        side = Side("here", "this run", PACKAGE, Path(folder), HERE, (HERE,))
        kinds = Kinds(side, {}, CATALOG, machine(), "cpu", 600.0, servers)
        kinds.play(MEASURED)
        for _ in range(rounds):
            for workload, played in kinds.play(MEASURED).items():
                if isinstance(played, Fault):
                    raise SystemExit(f"{workload.model}: {played.failure.message}")
                turns = {name: values["call"] for name, values in played.values.items()}
                row = {"model": workload.model, "mode": workload.mode, "batch": workload.batch_size, "turns": turns}
                data.write(json.dumps({**row, "cpu": machine().cpu}) + "\n")


def page() -> None:
    """Write the page: how much longer calls take than with a loaded program under glibc's defaults."""
    rounds = stored(DATA)
    others = [name for name in KINDS if name != LOADED]
    rows = []
    for model, mode, batch in dict.fromkeys((each["model"], each["mode"], each["batch"]) for each in rounds):
        own = [each["turns"] for each in rounds if (each["model"], each["mode"], each["batch"]) == (model, mode, batch)]
        longer = [[round_difference(turns[LOADED], turns[name]) for turns in own] for name in others]
        rows.append((f"{model} {mode} b{batch}", len(own), *(f"{fmean(of):+.1%} ({stdev(of):.1%})" for of in longer)))
    cpus = ", ".join(sorted({each["cpu"] for each in rounds}))
    text = f"""# Calls after compiling, and after loading

`python docs/evidence/heap.py ROUNDS` fills `heap.jsonl`, and `--page` writes this page from it. Measured on {cpus}, two
cores. By how much longer JAX's calls take than in a process that has loaded its program and has glibc's default
allocator, in the mean of rounds (standard deviation): a logarithm of the ratio, by the two fastest turns of each.

{table(("program", "rounds", *others), rows)}

fwbench gives all threads of a process one heap (`MALLOC_ARENA_MAX=1`), so that large blocks stay there. What a compiler
has freed lies in that heap, and all threads look for their blocks among it, one at a time. So JAX's lane is measured in
a process that has loaded its program; another one compiles it before, and is timed while it does.

One heap is no free choice: it makes EfficientNet-B0 at batch 8 faster, whose calls under glibc's defaults take 75 MiB
from the kernel and give it back, and the MLP's step, whose threads take small blocks often, slower.
"""
    PAGE.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--page"]:
        page()
    elif len(sys.argv) == 2 and sys.argv[1].isdecimal():
        play(int(sys.argv[1]))
    else:
        raise SystemExit(__doc__)
