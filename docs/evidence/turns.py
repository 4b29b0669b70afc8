"""How far rounds of turns lie apart, by the number of turns and by the turns that count.

    python docs/evidence/turns.py                      # writes turns.md from turns.jsonl
    python docs/evidence/turns.py MACHINE MODEL:MODE:BATCH[,...] ROUNDS    # first plays rounds here, and adds them

A line of turns.jsonl is a workload: seconds of a call in each lane's turns, in their order, for each round.
"""

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fwbench.compare.pair import Fault
from fwbench.compare.ratios import round_difference
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.models.project import Project
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns.lanes import AMOUNTS, Lanes, settled
from fwbench.worker.turns.sides import Side

SERIES = Path(__file__).with_suffix(".jsonl")
PAGE = Path(__file__).with_suffix(".md")
LANES = ("torch", "jax")
FEWEST = AMOUNTS["cpu"].fewest
COUNTS = (2, 8, 24, 48)
HEAD = """# How far rounds of turns lie apart

Each cell is the standard deviation, over rounds of fresh processes, of the logarithm of PyTorch's time over JAX's (in
percent), from the first turns of each round; behind it the mean. *Rule*: the two fastest turns of each lane count, or
the faster half where a call takes less than 0.1 ms. *Half*: the faster half always counts, as in fwbench before. With
few turns the mean differs, too: programs were not warm, JAX's most of all. *Settled*: turns are over, after ten of
each lane or more, when the three fastest of each lie within 2 %; the number is the mean. Made by
`python docs/evidence/turns.py` from `turns.jsonl`, on virtual machines with two AMD EPYC cores and 24 to 48 turns a
lane.

| machine | workload | rounds | turns | rule | two fastest | half | median of neighbours |
| --- | --- | --: | --: | --: | --: | --: | --: |
"""


def two(own: Sequence[float], theirs: Sequence[float]) -> float:
    def fastest(turns: Sequence[float]) -> float:
        return statistics.fmean(map(math.log, sorted(turns)[:2]))

    return fastest(theirs) - fastest(own)


def half(own: Sequence[float], theirs: Sequence[float]) -> float:
    def faster(turns: Sequence[float]) -> float:
        return statistics.fmean(map(math.log, sorted(turns)[: (len(turns) + 1) // 2]))

    return faster(theirs) - faster(own)


def neighbours(own: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(math.log(b / a) for a, b in zip(own, theirs, strict=True))


RULES = (round_difference, two, half, neighbours)


def until_settled(round_: dict[str, list[float]], most: int) -> int:
    """After how many turns of each lane a round's turns are over; a block is two of each."""
    return next((n for n in range(2, most, 2) if settled((round_[lane][:n] for lane in LANES), FEWEST)), most)


def title_of(count: int | None, counts: Sequence[int]) -> str:
    return str(count) if count else f"{statistics.fmean(counts):.1f} (settled)"


def play(name: str, workloads: Sequence[str], rounds: int) -> None:
    """Play rounds on this machine and add them to the series."""
    asked = {}
    for each in workloads:
        model, mode, batch = each.split(":")
        asked[Workload("", model, mode=mode, batch_size=int(batch))] = LANES
    series: dict[Workload, list[dict[str, list[float]]]] = {workload: [] for workload in asked}

    def arrived(workload: Workload, result: Any) -> None:
        if isinstance(result, Fault):
            raise SystemExit(f"{result.title}: {result.failure.message}")
        series[workload].append(
            {lane: [float(f"{call:.4g}") for call in result.values[lane]["call"]] for lane in LANES}
        )

    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder), ())
        here = Side("here", "this run", PACKAGE, Path(folder), project.root, project.path)
        lanes = Lanes(here, asked, dict(CATALOG), machine(), "cpu", 600.0)
        for _ in range(rounds):
            lanes.play(list(asked), arrived)
    with SERIES.open("a", encoding="utf-8") as file:
        for workload, played in series.items():
            place = {"model": workload.model, "mode": workload.mode, "batch_size": workload.batch_size}
            file.write(json.dumps({"machine": name, **place, "rounds": played}, separators=(",", ":")) + "\n")


def main(arguments: Sequence[str]) -> None:
    if arguments:
        name, workloads, rounds = arguments
        play(name, workloads.split(","), int(rounds))
    lines = []
    for text in SERIES.read_text(encoding="utf-8").splitlines():
        workload = json.loads(text)
        rounds = workload["rounds"]
        turns = min(len(round_[lane]) for round_ in rounds for lane in LANES)
        for count in (*(count for count in COUNTS if count <= turns), None):
            cells = []
            counts = [count or until_settled(round_, min(turns, 24)) for round_ in rounds]
            for rule in RULES:
                values = [rule(each["jax"][:n], each["torch"][:n]) for each, n in zip(rounds, counts, strict=True)]
                cells.append(f"{100 * statistics.stdev(values):.1f} ({statistics.fmean(values):+.3f})")
            title = f"{workload['model']} {workload['mode']} b{workload['batch_size']}"
            lines.append(
                f"| {workload['machine']} | {title} | {len(rounds)} | {title_of(count, counts)} | {' | '.join(cells)} |"
            )
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
