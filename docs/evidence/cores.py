"""What each lane gains from the cores: its speed with one thread and with as many as this machine has physical cores.

    python docs/evidence/cores.py WORK [OPTION ...]  # measures with both; options go to pytest; may be repeated
    python docs/evidence/cores.py WORK --read        # writes the table in lanes.md of all that WORK holds

Of several runs of a benchmark the fastest counts: whatever else runs can only slow it down. What was disturbed does not
count.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fwbench.machine import machine
from fwbench.machine.disturbances import disturbances
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.machine import Machine
from fwbench.record.measurement import Measurement
from fwbench.record.reading import read, runs
from fwbench.record.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).resolve().with_name("lanes.md")
BEGIN, END = "<!-- cores: begin -->", "<!-- cores: end -->"
COMMAND = (
    *("tests/benchmarks/test_inference.py", "--benchmark-only", "-p", "no:cacheprovider"),
    *("--fwbench-models=resnet50,vit_b_16,mobilenet_v3_small,efficientnet_b0", "--fwbench-batch-sizes=1,8"),
    "--fwbench-lanes=torch,torch-compile,jax",
)

Measured = Mapping[int, list[Measurement]]  # by the number of threads


def measure(work: Path, options: list[str]) -> None:
    for threads in (1, machine().threads):
        storage = f"--benchmark-storage=file://{work}"
        command = [sys.executable, "-m", "pytest", *COMMAND, storage, f"--fwbench-threads={threads}", *options]
        subprocess.run(command, cwd=ROOT)


def kept(work: Path) -> tuple[Machine, dict[Workload, Measured]]:
    found: dict[Workload, dict[int, list[Measurement]]] = {}
    here = machine()
    for record in map(read, runs(work)):
        assert record.machine is not None
        here = record.machine
        for measurement in record.measurements:
            if measurement.failure is None and not disturbances([measurement]):
                found.setdefault(measurement.workload, {}).setdefault(here.threads, []).append(measurement)
    return here, {workload: measured for workload, measured in found.items() if len(measured) > 1}


def table(found: Mapping[Workload, Measured]) -> list[str]:
    lanes = [name for name in LANES if any(workload.lane == name for workload in found)]
    columns = [f"`{lane}`: {what}" for lane in lanes for what in ("latency", "throughput")]
    lines = [f"| model, batch size | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    for model in CATALOG.values():
        for batch in sorted({workload.batch_size for workload in found if workload.model == model.name}):
            of_lane = {w.lane: found[w] for w in found if (w.model, w.batch_size) == (model.name, batch)}
            cells = [gains(of_lane[lane]) if lane in of_lane else "- | -" for lane in lanes]
            lines.append(f"| {model.title}, {batch} | {' | '.join(cells)} |")
    return lines


def gains(measured: Measured) -> str:
    one, all_cores = (measured[threads] for threads in (min(measured), max(measured)))
    latency = best(one, "latency_p50", min) / best(all_cores, "latency_p50", min)
    throughput = best(all_cores, "throughput", max) / best(one, "throughput", max)
    return f"{latency:.2f} | {throughput:.2f}"


def best(measurements: list[Measurement], metric: str, which: Callable[[Iterable[float]], float]) -> float:
    return which(value for m in measurements if (value := m.value(metric)) is not None)


def text(work: Path) -> str:
    here, found = kept(work)
    versions = {name: v for m in found.values() for runs in m.values() for r in runs for name, v in r.versions.items()}
    told = ", ".join(f"{name} {versions[name]}" for name in ("torch", "jax", "jaxlib") if name in versions)
    return "\n".join((f"{here.cpu}, {len(here.cpus)} cores; {told}.", "", *table(found)))


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    if "--read" in sys.argv:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        made = "\n".join((BEGIN, text(folder), END))
        PAGE.write_text(before + made + rest.partition(END)[2], encoding="utf-8")
    else:
        measure(folder, sys.argv[2:])
