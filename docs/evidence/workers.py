"""What a hundred workers in a row leave behind: counted for a lane without a framework, and for PyTorch's.

    python docs/evidence/workers.py [NUMBER]    # writes the table in ../reliability.md

Counted with the server idle, after the first worker and after the last one, and once more when all is closed.
"""

import dataclasses
import os
import sys
import tempfile
from pathlib import Path

from fwbench.machine import machine
from fwbench.machine.load import family
from fwbench.models.project import Project
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.workers import Workers

PAGE = Path(__file__).resolve().parents[1] / "reliability.md"
BEGIN, END = "<!-- workers: begin -->", "<!-- workers: end -->"
WORKLOADS = (Workload("noop", "noop"), Workload("torch", "mlp"), Workload("torch", "mlp", mode="train_step"))
# Nothing is timed here that anybody would believe.
PROTOCOL = dataclasses.replace(
    PROFILES["quick"],
    warmup_iterations=1,
    warmup_time=0.0,
    max_time=0.0,
    percentile_time=0.0,
    throughput_time=0.01,
    energy_time=0.01,
)
COLUMNS = (
    "processes started by pytest's",
    "descriptors of pytest's process",
    "descriptors of the server",
    "temporary files and folders",
)

Counts = tuple[int, ...]


def counted(folder: Path) -> Counts:
    others = family() - {os.getpid()}
    # Its worker has ended, so the server is all that there is.
    servers = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in others)
    return (
        len(others),
        len(os.listdir("/proc/self/fd")),
        servers,
        sum(1 for _ in folder.rglob("*")),
    )


def measured(workload: Workload, number: int, folder: Path) -> list[Counts]:
    """Before any, after one, after all, and when all is closed."""
    found = [counted(folder)]
    workers = Workers(machine(), "cpu", {}, Project(Path(), ()))
    for done in range(number):
        measurement = workers.measure(workload, PROTOCOL, lambda stage: None)
        assert measurement.failure is None, measurement.failure
        if done in (0, number - 1):
            for server in workers._servers.values():
                server.settle()
            found.append(counted(folder))
    workers.close()
    return [*found, counted(folder)]


def main(number: int) -> list[str]:
    lines = [f"| what | moment | {' | '.join(COLUMNS)} |", f"|---|---|{'--:|' * len(COLUMNS)}"]
    moments = ("before", "after 1 worker", f"after {number} workers", "closed")
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        for workload in WORKLOADS:
            found = measured(workload, number, Path(folder))
            for moment, counts in zip(moments, found, strict=True):
                lines.append(f"| `{workload.id}` | {moment} | {' | '.join(map(str, counts))} |")
    return lines


if __name__ == "__main__":
    table = main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text("\n".join([before + BEGIN, "", *table, "", END + rest.partition(END)[2]]), encoding="utf-8")
