"""What one other process that computes does to the suite's small models, and what waiting makes of it.

    python docs/evidence/interference.py run WORK      # quiet, then twice beside a process that spins for a third of it
    python docs/evidence/interference.py policy WORK   # OpenMP's threads waiting as by default, or passively
    python docs/evidence/interference.py read WORK     # writes the tables in interference.md of all that WORK holds

Needs a machine that does nothing else. Of the two runs beside the process the first has no patience, so that it neither
waits nor measures anything again.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import geometric_mean

from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.record.measurement import Measurement
from fwbench.record.reading import read, runs
from fwbench.report import units
from fwbench.report.cases import cases, comparisons, title
from fwbench.report.weighing import weigh

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).resolve().with_name("interference.md")
SUITE = (
    *("tests/benchmarks/test_inference.py", "tests/benchmarks/test_training.py", "--benchmark-only"),
    *("-p", "no:cacheprovider", "--fwbench-models=mlp,cnn,mobilenet_v3_small"),
)
SPIN = "while True: pass"
# Of OpenMP, which PyTorch computes by; the other lanes have thread pools of their own.
POLICIES: dict[str, dict[str, str]] = {"default": {}, "passive": {"OMP_WAIT_POLICY": "PASSIVE"}}


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
    lanes = "--fwbench-frameworks=torch,jax"
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
    options = ("--fwbench-frameworks=torch", "--fwbench-set=patience=0")
    for chosen in (*POLICIES, *reversed(POLICIES)):
        start(work / f"quiet-{chosen}", *options, **POLICIES[chosen]).wait()
    for chosen in POLICIES:
        with spinning():
            start(work / f"beside-{chosen}", *options, **POLICIES[chosen]).wait()


def measured(folder: Path) -> list[Measurement]:
    return [m for path in runs(folder) for m in read(path).measurements if not m.failure]


def ratios(measurements: Iterable[Measurement]) -> dict[str, float]:
    """JAX's throughput over PyTorch's, by model, mode and batch."""
    found = {}
    for comparison in comparisons(cases(measurements)):
        lanes, workload = comparison.lanes, comparison.workload
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
    else:
        write("interference", table(*(ratios(measured(work / name)) for name in ("quiet", "impatient", "patient"))))
        write("wait policy", of_policies(work))


if __name__ == "__main__":
    main(*sys.argv[1:])
