"""How far rounds of turns lie apart, by the number of turns and by the turns that count.

    python docs/evidence/turns.py                      # writes turns.md from turns.jsonl
    python docs/evidence/turns.py MACHINE MODEL:MODE:BATCH[,...] ROUNDS    # first plays rounds here, and adds them

A line of turns.jsonl is a workload: for each round, seconds of a call in each lane's turns, in their order, and where
it was read the pace (`fwbench.machine.pace`) before the first block of two turns and after each.
"""

import dataclasses
import json
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

from fwbench.compare.pair import Fault
from fwbench.compare.ratios import as_usual, round_difference, usual_pace
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.models.project import Project
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns.lanes import AMOUNTS, Lanes, Round, settled
from fwbench.worker.turns.sides import Side
from fwbench.worker.turns.taken import Taken

SERIES = Path(__file__).with_suffix(".jsonl")
PAGE = Path(__file__).with_suffix(".md")
LANES = ("torch", "jax")
COUNTS = (2, 8, 16, 24, 48, 96)
# The fewest turns of a lane at the usual pace that make a round.
FEW = 8
HEAD = """# How far rounds of turns lie apart

Each cell is the standard deviation, over rounds of fresh processes, of the logarithm of PyTorch's time over JAX's (in
percent), from the first turns of each round; behind it the mean. *Rule*: the two fastest turns of each lane count, or
the faster half where a call takes less than 0.1 ms. *Half*: the faster half always counts, as in fwbench before. With
few turns the mean differs, too: programs were not warm, JAX's most of all. *Settled*: turns are over, after 16 of each
lane or more, when the five fastest of each lie within 2 %; the number is the mean. *At the usual pace*: turns of
those blocks of two before and after which the CPUs' hand-over took the usual time (docs/method.md, "Slow spells"), in
rounds with eight of them or more; they are no neighbours. Made by `python docs/evidence/turns.py` from `turns.jsonl`.
The fourth is a virtual machine with two Intel Xeon cores, the others have two AMD EPYC cores. On the fourth half of the
hand-overs were slow, and half an hour later (*fourth, slow*) nine of ten. Its turns took 10 ms, and later 20.

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


class All(Lanes):
    """Lanes that take all turns and keep them, whatever the pace."""

    paces: Sequence[float]

    def _counted(self, taken: Taken) -> list[int]:
        return list(range(taken.blocks))

    def _over(self, taken: Taken) -> bool:
        super()._over(taken)
        return False

    def _result(self, taken: Taken, seconds: float, starting: float) -> Round:
        self.paces = taken.paces
        return super()._result(taken, seconds, starting)


def until_settled(round_: dict[str, list[float]], most: int) -> int:
    """After how many turns of each lane a round's turns are over; a block is two of each."""
    amounts = dataclasses.replace(AMOUNTS["cpu"], enough=most)
    return next((n for n in range(2, most, 2) if settled([round_[lane][:n] for lane in LANES], amounts)), most)


def title_of(count: int | None, counts: Sequence[int]) -> str:
    return str(count) if count else f"{statistics.fmean(counts):.1f} (settled)"


def play(name: str, workloads: Sequence[str], rounds: int) -> None:
    """Play rounds on this machine and add them to the series."""
    asked = {}
    for each in workloads:
        model, mode, batch = each.split(":")
        asked[Workload("", model, mode=mode, batch_size=int(batch))] = LANES
    series: dict[Workload, list[dict[str, Any]]] = {workload: [] for workload in asked}

    def arrived(workload: Workload, result: Any) -> None:
        if isinstance(result, Fault):
            raise SystemExit(f"{result.title}: {result.failure.message}")
        series[workload].append(
            {lane: [float(f"{call:.4g}") for call in result.values[lane]["call"]] for lane in LANES}
            | {"paces": [float(f"{pace:.3g}") for pace in lanes.paces]}
        )
        print(workload.model, workload.mode, workload.batch_size, round(result.seconds, 1), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder), ())
        here = Side("here", "this run", PACKAGE, Path(folder), project.root, project.path)
        lanes = All(here, asked, dict(CATALOG), machine(), "cpu", 600.0)
        for _ in range(rounds):
            lanes.play(list(asked), arrived)
    with SERIES.open("a", encoding="utf-8") as file:
        for workload, played in series.items():
            place = {"model": workload.model, "mode": workload.mode, "batch_size": workload.batch_size}
            file.write(json.dumps({"machine": name, **place, "rounds": played}, separators=(",", ":")) + "\n")


def at_usual_pace(round_: dict[str, list[float]], usual: float) -> dict[str, list[float]]:
    """The turns of a round's blocks that count."""
    flags = [as_usual(pace, usual) for pace in round_["paces"]]
    turns = [counts for around in pairwise(flags) for counts in [all(around)] * 2]
    return {lane: list(compress(round_[lane], turns)) for lane in LANES}


def rows_of(workload: dict[str, Any], title: str, rounds: Sequence[dict[str, Any]], counted: str) -> list[str]:
    """The table's rows on the turns of some rounds."""
    turns = min(len(round_[lane]) for round_ in rounds for lane in LANES)
    rows = []
    for count in (*(count for count in COUNTS if count <= turns), None):
        most = min(turns, AMOUNTS["cpu"].enough)
        counts = [count or until_settled(round_, most) for round_ in rounds]
        cells = []
        # Turns that count are no neighbours.
        for rule in RULES[:-1] if counted else RULES:
            values = [rule(each["jax"][:n], each["torch"][:n]) for each, n in zip(rounds, counts, strict=True)]
            cells.append(f"{100 * statistics.stdev(values):.1f} ({statistics.fmean(values):+.3f})")
        cells += ["-"] * (len(RULES) - len(cells))
        number = f"{title_of(count, counts)}{counted}"
        rows.append(f"| {workload['machine']} | {title} | {len(rounds)} | {number} | {' | '.join(cells)} |")
    return rows


def host_of(workload: Mapping[str, Any]) -> str:
    """The machine; *fourth, slow* is the fourth at another time."""
    return str(workload["machine"]).partition(",")[0]


def main(arguments: Sequence[str]) -> None:
    if arguments:
        name, workloads, count = arguments
        play(name, workloads.split(","), int(count))
    lines = []
    series = [json.loads(text) for text in SERIES.read_text(encoding="utf-8").splitlines()]
    paces: dict[str, list[float]] = defaultdict(list)
    for each in series:
        paces[host_of(each)] += [pace for round_ in each["rounds"] for pace in round_.get("paces", [])]
    for workload in series:
        usual = usual_pace(paces[host_of(workload)])
        title = f"{workload['model']} {workload['mode']} b{workload['batch_size']}"
        lines += rows_of(workload, title, workload["rounds"], "")
        if "paces" in workload["rounds"][0]:
            kept = [at_usual_pace(round_, usual) for round_ in workload["rounds"]]
            kept = [round_ for round_ in kept if min(map(len, round_.values())) >= FEW]
            lines += rows_of(workload, title, kept, " at the usual pace") if len(kept) > 1 else []
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
