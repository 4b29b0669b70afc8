"""The first ten minutes on a GPU: is what fwbench says of one true there?

make gpu                                      all steps, then the page
python docs/evidence/gpu.py WORK [STEP...]    some; a step that has ended before is left out
python docs/evidence/gpu.py --page WORK       writes gpu.md

processes   each lane against itself: three models in fresh processes, programs compiled twice
run         an ordinary run: `quick`, with all that it measures on a GPU
duet        a suite of two networks, against a commit that calls `.item()` in one of them
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from math import log
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fwbench.compare.cases import by_workload, cases
from fwbench.compare.pair import Fault
from fwbench.compare.parity import comparable_lanes
from fwbench.compare.ratios import EQUAL
from fwbench.compare.weighing import weigh
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns.lanes import Lanes
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side

HERE = Path(__file__).resolve().parent
PAGE = HERE / "gpu.md"
SAME = {
    "resnet50": ("torch", "torch-compile", "jax"),
    "efficientnet_b0": ("torch-compile", "jax"),
    "mlp": ("torch", "jax"),
}
COMPILATIONS, PROCESSES = 2, 4

NETWORKS = """
from torch import nn


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(12))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


class Slowed(Tower):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu(){planted}
        return x
"""
TEST = """
import fwbench

tower = fwbench.Model("tower", torch="networks:Tower", inputs=fwbench.normal(512))
slowed = fwbench.Model("slowed", torch="networks:Slowed", inputs=fwbench.normal(512))


@fwbench.benchmark(tower, slowed, modes=["inference"], batch_sizes=[64], lanes=["torch"])
def test_towers(fwbench_measure):
    fwbench_measure()
"""


def processes(work: Path) -> None:
    """Rounds of fresh processes that take turns; every second half from programs that were compiled anew."""
    here = machine()
    with (work / "processes.jsonl").open("w", encoding="utf-8") as file:
        for model, lanes in SAME.items():
            workload = Workload("", model, batch_size=32, device=here.device)
            for compilation in range(COMPILATIONS):
                with tempfile.TemporaryDirectory() as folder, Servers(swapped=False) as servers:
                    side = Side("here", "this run", PACKAGE, Path(folder), PACKAGE.parent, (PACKAGE.parent,))
                    played = Lanes(side, {workload: lanes}, dict(CATALOG), here, here.device, 300.0, servers)
                    for process in range(PROCESSES):
                        (result,) = played.play([workload]).values()
                        if isinstance(result, Fault):
                            raise SystemExit(f"{result.title}: {result.failure.message}")
                        line = {
                            "accelerator": here.accelerator,
                            "model": model,
                            "compilation": compilation,
                            "process": process,
                        }
                        values = {lane: dict(metrics) for lane, metrics in result.values.items()}
                        file.write(json.dumps({**line, "seconds": result.seconds, "values": values}) + "\n")
                        file.flush()


def run(work: Path) -> None:
    """An ordinary run, with the options in FWBENCH_GPU_RUN, such as `--fwbench-minutes=4 -k resnet50`."""
    options = ["--benchmark-only", "--benchmark-autosave", f"--benchmark-storage=file://{work / 'run'}", "-v"]
    options += ["--fwbench-resume"] if (work / "run").exists() else []
    command = [sys.executable, "-m", "pytest", "tests/benchmarks", *options]
    _call([*command, *os.environ.get("FWBENCH_GPU_RUN", "").split()], HERE.parent.parent)


def duet(work: Path) -> None:
    """A suite in a repository of its own; the last commit plants a wait for the device after each layer."""
    suite = work / "suite"
    shutil.rmtree(suite, ignore_errors=True)
    suite.mkdir()
    (suite / "test_towers.py").write_text(TEST)
    (suite / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    git = ["git", "-c", "user.name=fwbench", "-c", "user.email=fwbench@example.org"]
    _call(["git", "init", "-q"], suite)
    for planted in ("", " * (1 if x.sum().item() else 1)"):
        (suite / "networks.py").write_text(NETWORKS.replace("{planted}", planted))
        _call(["git", "add", "."], suite)
        _call([*git, "commit", "-q", "-m", "plant" if planted else "begin"], suite)
    asked = ["--fwbench-against=HEAD~1", f"--fwbench-summary={work / 'duet.json'}"]
    _call([sys.executable, "-m", "pytest", "--benchmark-only", *asked], suite, expected=(1,))


def _call(command: list[str], folder: Path, expected: Iterable[int] = (0,)) -> None:
    done = subprocess.run(command, cwd=folder, check=False)
    if done.returncode not in expected:
        raise SystemExit(f"{command[:4]} ended with {done.returncode}")


STEPS: Mapping[str, Callable[[Path], None]] = {"processes": processes, "run": run, "duet": duet}


def page(work: Path) -> str:
    parts = ["# What a GPU showed\n\nMade by `python docs/evidence/gpu.py`.\n"]
    if (lines := work / "processes.jsonl").exists():
        parts.append(_same([json.loads(line) for line in lines.read_text().splitlines()]))
    parts += [_answers(saved) for saved in sorted(work.glob("run/*/*.json"))]
    # A duet's summary is empty until its end.
    if (told := work / "duet.json").exists() and told.stat().st_size:
        parts.append(_duet(json.loads(told.read_text())))
    return "\n".join(parts)


def _same(rounds: list[dict[str, Any]]) -> str:
    """How far processes of one program lie apart; a process's number is the mean of its two fastest turns."""
    seconds: list[str] = []
    text = [
        f"## A lane against itself, on an {rounds[0]['accelerator']}\n",
        "| model | lane | metric | compiles | loads what was compiled | within a process, max/min |",
        "|---|---|---|---|---|---|",
    ]
    for model in dict.fromkeys(each["model"] for each in rounds):
        of = [each for each in rounds if each["model"] == model]
        for lane in of[0]["values"]:
            played = [each for each in of if lane in each["values"]]
            for metric in ("call", "latency"):
                level = {
                    first: [
                        mean(sorted(each["values"][lane][metric])[:2])
                        for each in played
                        if (each["process"] == 0) == first
                    ]
                    for first in (True, False)
                }
                spread = mean(max(v) / min(v) - 1 for each in played if (v := each["values"][lane][metric]))
                first, later = (", ".join(f"{1e6 * value:.5g} us" for value in level[key]) for key in (True, False))
                apart = f" (sd {stdev(map(log, level[False])):.2%})" if len(level[False]) > 1 else ""
                text.append(f"| {model} | {lane} | {metric} | {first} | {later}{apart} | {spread:.1%} |")
        seconds.append(f"{model} " + ", ".join(f"{each['seconds']:.0f}" for each in of))
    return "\n".join([*text, f"\nSeconds of the rounds: {'; '.join(seconds)}.\n"])


def _answers(saved: Path) -> str:
    measurements = read(saved).measurements
    text = [
        f"## {saved.name}\n",
        "| workload | lane | throughput | on the GPU, of a call back to back | against the first lane |",
        "|---|---|--:|--:|---|",
    ]
    known = asked = 0
    for lanes in by_workload(cases(measurements)).values():
        first, *others = comparable_lanes(lanes).values() or [None]
        for lane, case in lanes.items():
            throughput, device = case.value("throughput"), case.value("device_time")
            share = f"{device * throughput / case.workload.batch_size:.0%}" if device and throughput else "-"
            answer = "-"
            if case in others:
                weighed = weigh(first, case)
                asked += 1
                if weighed.interval:
                    low, high = weighed.interval.low, weighed.interval.high
                    known += (high / low) ** 0.5 - 1 <= EQUAL
                    answer = f"{weighed.confidence}: {weighed.ratio:.3f} ({low:.3f} to {high:.3f})"
            name = f"{case.workload.model} {case.workload.mode} b{case.workload.batch_size} {case.workload.precision}"
            text.append(f"| {name} | {lane} | {throughput or 0:,.0f} | {share} | {answer} |")
    return "\n".join([*text, f"\n{known} of {asked} ratios are known within 5 %.\n"])


def _duet(summary: Mapping[str, Any]) -> str:
    text = [
        "## A duet with a wait for the device planted in `slowed`\n",
        "| benchmark | metric | verdict |",
        "|---|---|---|",
    ]
    for each in summary["findings"]:
        if verdict := each["verdict"]:
            change = f"{verdict['ratio'] - 1:+.1%} after {verdict['pairs']} pairs" if verdict["ratio"] else ""
            text.append(f"| {each['benchmark']} | {each['metric']} | {verdict['kind']} {change} |")
    return "\n".join([*text, f"\n{summary['reason']}, in {summary['seconds']:.0f} s.\n"])


def main(arguments: list[str]) -> None:
    if "--page" in arguments:
        arguments.remove("--page")
        PAGE.write_text(page(Path(arguments[0])), encoding="utf-8")
        return
    if (here := machine()).device != "gpu":
        raise SystemExit(f"This needs a GPU: {here.accelerator}.")
    work = Path(arguments[0]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:] or STEPS:
        ended = work / f"{name}.ended"
        if not ended.exists():
            begun = time.time()
            STEPS[name](work)
            ended.touch()
            print(f"{name}: {time.time() - begun:.0f} s", flush=True)
    print(page(work))


if __name__ == "__main__":
    main(sys.argv[1:])
