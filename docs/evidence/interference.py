"""What one other process that computes does to the suite's small models, and what waiting makes of it.

    python docs/evidence/interference.py run WORK      # quiet, then twice beside a process that spins for a third of it
    python docs/evidence/interference.py policy WORK   # OpenMP's threads waiting as by default, or passively
    python docs/evidence/interference.py rounds WORK   # rounds of turns beside a process that spins now and then
    python docs/evidence/interference.py read WORK     # writes the tables in interference.md of all that WORK holds

Needs a machine that does nothing else. Of the two runs beside the process the first has no patience, so that it neither
waits nor measures anything again.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import geometric_mean, mean, median, stdev
from typing import Any

from fwbench import units
from fwbench.compare.cases import by_workload, cases, title
from fwbench.compare.weighing import weigh
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.record.measurement import Measurement
from fwbench.record.reading import read, runs
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns.lanes import Lanes, Round
from fwbench.worker.turns.sides import Side

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).resolve().with_name("interference.md")
SUITE = (
    *("tests/benchmarks/test_inference.py", "tests/benchmarks/test_training.py", "--benchmark-only"),
    *("-p", "no:cacheprovider", "--fwbench-models=mlp,cnn,mobilenet_v3_small"),
)
SPIN = "while True: pass"
# Of OpenMP, which PyTorch computes by; the other lanes have thread pools of their own.
POLICIES: dict[str, dict[str, str]] = {"default": {}, "passive": {"OMP_WAIT_POLICY": "PASSIVE"}}

# Rounds: shares of a core that the process takes, in bursts of tenths of a second; and limits of the table's rows.
SHARES = (0.0, 0.12, 0.25, 0.5)
BURSTS = """
import random, sys, time
while True:
    period, begun = random.uniform(0.2, 0.6), time.perf_counter()
    while time.perf_counter() - begun < float(sys.argv[1]) * period:
        pass
    time.sleep((1 - float(sys.argv[1])) * period)
"""
LOADS = (0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 1.0)


@contextmanager
def spinning() -> Iterator[None]:
    """One process that computes and does nothing else."""
    spinner = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()


def start(storage: Path, *options: str, **variables: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "pytest", *SUITE, f"--benchmark-storage=file://{storage}", *options]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **variables})


def run(work: Path) -> None:
    lanes = "--fwbench-lanes=torch,jax"
    begun = time.monotonic()
    start(work / "quiet", lanes, "--fwbench-set=patience=0").wait()
    third = (time.monotonic() - begun) / 3
    for name, patience in (("impatient", ["--fwbench-set=patience=0"]), ("patient", [])):
        beside = start(work / name, lanes, *patience)
        time.sleep(third)
        with spinning():
            time.sleep(third)
        beside.wait()


def policy(work: Path) -> None:
    options = ("--fwbench-lanes=torch", "--fwbench-set=patience=0")
    for chosen in (*POLICIES, *reversed(POLICIES)):
        start(work / f"quiet-{chosen}", *options, **POLICIES[chosen]).wait()
    for chosen in POLICIES:
        with spinning():
            start(work / f"beside-{chosen}", *options, **POLICIES[chosen]).wait()


def rounds(work: Path) -> None:
    """Three times three rounds of each of three workloads beside each of the processes."""
    wanted = [
        Workload("", "mlp", batch_size=8),
        Workload("", "cnn", mode="train_step", batch_size=2),
        Workload("", "cnn", batch_size=8),
    ]
    work.mkdir(parents=True, exist_ok=True)
    side = Side("here", "this run", PACKAGE, work, PACKAGE.parent)
    lanes = Lanes(side, dict.fromkeys(wanted, ("torch", "jax")), CATALOG, machine(), "cpu", 60.0)
    with (work / "rounds.jsonl").open("a", buffering=1) as lines:

        def keep(workload: Workload, played: Round) -> None:
            torch, jax = (median(map(math.log, played.values[lane]["call"])) for lane in ("torch", "jax"))
            line = {"workload": f"{workload.model} {workload.mode}", "load": played.load, "ratio": torch - jax}
            lines.write(f"{json.dumps(line)}\n")

        for share in SHARES * 3:
            spinner = subprocess.Popen([sys.executable, "-c", BURSTS, str(share)])
            for _ in range(3):
                lanes.play(wanted, keep)
            spinner.kill()
            spinner.wait()


def of_rounds(work: Path) -> list[str]:
    lines = [json.loads(line) for line in (work / "rounds.jsonl").read_text().splitlines()]
    quiet: dict[str, Any] = {}
    for line in lines:
        if line["load"] < LOADS[0]:
            quiet.setdefault(line["workload"], []).append(line["ratio"])
    made = ["| load | rounds | JAX over PyTorch, to quiet rounds | scatter |", "|--:|--:|--:|--:|"]
    for low, high in zip((0.0, *LOADS), LOADS, strict=False):
        off = [
            line["ratio"] - median(quiet[line["workload"]]) for line in lines if low <= max(0.0, line["load"]) < high
        ]
        sure = 2 * stdev(off) / math.sqrt(len(off))
        shown = f"{100 * mean(off):+.1f} % (± {100 * sure:.1f})"
        made.append(f"| {100 * low:g} to {100 * high:g} % | {len(off)} | {shown} | {100 * stdev(off):.1f} % |")
    return made


def measured(folder: Path) -> list[Measurement]:
    return [m for path in runs(folder) for m in read(path).measurements if not m.failure]


def ratios(measurements: Iterable[Measurement]) -> dict[str, float]:
    """JAX's throughput over PyTorch's, by model, mode and batch."""
    found = {}
    for workload, lanes in by_workload(cases(measurements)).items():
        if {"torch", "jax"} <= lanes.keys():
            name = f"{CATALOG[workload.model].title}, {workload.mode.replace('_', ' ')}, {workload.batch_size}"
            found[name] = weigh(lanes["jax"], lanes["torch"]).shown
    return found


def table(quiet: Mapping[str, float], before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    lines = [
        "| JAX over PyTorch: model, mode, batch | quiet | beside it, without patience | beside it, with patience |",
        "|---|--:|--:|--:|",
    ]
    for name, ratio in quiet.items():
        raw = before[name]
        once = f"{float(raw):.2f}x" + (f" ({units.ratio(raw)})" if isinstance(raw, units.Within) else "")
        lines.append(f"| {name} | {units.ratio(ratio)} | {once} | {units.ratio(after[name])} |")
    return lines


def of_policies(work: Path) -> list[str]:
    times: dict[str, dict[tuple[str, str], float]] = {}
    for where in ("quiet", "beside"):
        for chosen in POLICIES:
            for m in measured(work / f"{where}-{chosen}"):
                seconds, w = m.workload.batch_size / (m.value("throughput") or 1.0), m.workload
                name = f"{CATALOG[w.model].title}, {w.mode.replace('_', ' ')}, {w.batch_size}, {title(w.lane)}"
                of = times.setdefault(name, {})
                of[where, chosen] = min(seconds, of.get((where, chosen), seconds))
    lines = [
        "| a call's time: model, mode, batch, lane | quiet: passive / default | default: beside it / quiet "
        "| passive: beside it / quiet |",
        "|---|--:|--:|--:|",
    ]
    columns: list[list[float]] = [[], [], []]
    for name, of in times.items():
        usual, passive = ("quiet", "default"), ("quiet", "passive")
        cells = (
            of[passive] / of[usual],
            of["beside", "default"] / of[usual],
            of["beside", "passive"] / of[passive],
        )
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell)
        lines.append(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    means = " | ".join(f"{geometric_mean(column):.2f}" for column in columns)
    return [*lines, f"| geometric mean | {means} |"]


def write(marker: str, lines: list[str]) -> None:
    begin, end = f"<!-- {marker}: begin -->", f"<!-- {marker}: end -->"
    text = PAGE.read_text()
    before, rest = text.split(begin)
    here = machine()
    made = "\n".join((f"{here.cpu}, {here.threads} cores.", "", *lines))
    PAGE.write_text(f"{before}{begin}\n{made}\n{end}{rest.split(end)[1]}")


def main(what: str, folder: str) -> None:
    work = Path(folder).resolve()
    if what == "run":
        run(work)
    elif what == "policy":
        policy(work)
    elif what == "rounds":
        rounds(work)
    else:
        if (work / "quiet").exists():
            write("interference", table(*(ratios(measured(work / name)) for name in ("quiet", "impatient", "patient"))))
        if (work / "quiet-default").exists():
            write("wait policy", of_policies(work))
        if (work / "rounds.jsonl").exists():
            write("rounds", of_rounds(work))


if __name__ == "__main__":
    main(*sys.argv[1:])
