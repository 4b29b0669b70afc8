"""How often an answer between lanes is wrong: a lane against itself, and against itself slowed down by 5 and 10 %.

    python docs/evidence/answers.py 40 WORK   runs suites in WORK until answers.jsonl holds 40, half of them under load
    python docs/evidence/answers.py --page    writes answers.md

A suite is an ordinary run of one minute with one workload: inference of the small CNN, or training of the MLP. In it
PyTorch's lane takes turns with itself under three other names; under two of them each step also spins, for 5 or 10 % of
the step's time. In every second suite a process computes from the beginning to the middle of the run, on a CPU that the
suite may use. The machine must do nothing else.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median, stdev

from lines import stored, table

from fwbench.compare.cases import by_workload, cases
from fwbench.compare.ratios import EQUAL, FEWEST_ROUNDS, LEVEL, Scatter, ratio_interval
from fwbench.compare.rounds import differences as counted_differences
from fwbench.compare.weighing import BY_CHANCE, weigh
from fwbench.machine import machine
from fwbench.record.reading import read

HERE = Path(__file__).resolve().parent
DATA, PAGE = HERE / "answers.jsonl", HERE / "answers.md"
MINUTES = 1
SPIN = "while True: pass"

# The share by which each other lane is slower.
PLANTED = {"torch-again": 0.0, "torch-5": 0.05, "torch-10": 0.10}
CONDITIONS = {False: "quiet", True: "a process computes for half of it"}
MEASURED = {"cnn": "inference", "mlp": "train_step"}

LANES = f"""
import dataclasses
import time

from fwbench.record.lanes import OWN

PLANTED = {PLANTED}
LANES = [
    dataclasses.replace(
        OWN["torch"], name=name, title=name, adapter="planted_lanes:framework", baseline=False
    )
    for name in PLANTED
]


def __getattr__(name):
    # Workers alone ask for it; pytest's process imports no framework.
    from fwbench.frameworks.torch.adapter import Torch

    class Slowed(Torch):
        def build(self, workload, *given, **named):
            program = super().build(workload, *given, **named)
            share = PLANTED[workload.lane]
            usual = program.step

            def step():
                begun = time.perf_counter()
                usual()
                end = begun + (1 + share) * (time.perf_counter() - begun)
                while time.perf_counter() < end:
                    pass

            if share:
                program.step = step
            return program

    if name == "framework":
        return Slowed()
    raise AttributeError(name)
"""
TEST = """
import fwbench


@fwbench.benchmark("{model}", modes=["{mode}"], batch_sizes=[8], lanes={lanes})
def test_{model}(fwbench_measure):
    fwbench_measure()
"""


def prepare(work: Path) -> None:
    """Write the suite, and the lanes as an installed package would hold them."""
    information = work / "planted_lanes-0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-lanes\nVersion: 0\n")
    (information / "entry_points.txt").write_text("[fwbench.lanes]\nplanted = planted_lanes:LANES\n")
    (work / "planted_lanes.py").write_text(LANES)
    for model, mode in MEASURED.items():
        (work / f"test_{model}.py").write_text(TEST.format(model=model, mode=mode, lanes=["torch", *PLANTED]))


def suite(work: Path, number: int) -> list[dict]:
    """Run a suite; return a line for each of its comparisons."""
    storage = work / f"suite-{number}"
    options = ["--benchmark-only", "--benchmark-quiet", "--benchmark-autosave", f"--benchmark-storage=file://{storage}"]
    model, loaded = list(MEASURED)[number // 2 % len(MEASURED)], number % 2 == 1
    command = [sys.executable, "-m", "pytest", f"test_{model}.py", *options, f"--fwbench-minutes={MINUTES}"]
    begun = time.time()
    spinner = subprocess.Popen([sys.executable, "-c", SPIN]) if loaded else None
    run = subprocess.Popen(command, cwd=work, env={**os.environ, "PYTHONPATH": os.pathsep.join((str(work), *_path()))})
    if spinner:
        time.sleep(60 * MINUTES / 2)
        spinner.kill()
        spinner.wait()
    if run.wait():
        raise SystemExit(f"suite {number} ended with exit code {run.returncode}")
    facts = {"suite": number, "loaded": loaded, "cpu": machine().cpu, "seconds": time.time() - begun}
    (saved,) = storage.glob("*/*.json")
    return [{**facts, **line} for line in verdicts(read(saved).measurements, begun)]


def _path() -> Iterable[str]:
    return filter(None, [os.environ.get("PYTHONPATH")])


def verdicts(measurements, begun: float) -> Iterable[dict]:
    """The verdict on each other lane, as tables and sentences state it; the ratio is above 1 if PyTorch is faster."""
    for workload, lanes in by_workload(cases(measurements)).items():
        first = lanes["torch"]
        for lane, slower in PLANTED.items():
            other = lanes[lane]
            weighed = weigh(first, other)
            (differences,) = counted_differences({"torch": _turns(first), lane: _turns(other)})
            yield {
                "model": workload.model,
                "slower": slower,
                "verdict": weighed.confidence,
                "ratio": weighed.ratio,
                "ends": [weighed.reach.low, weighed.reach.high],
                "differences": differences,
                "begun": [each["begun"] - begun for each in _turns(first)],
                "expected": [first.expected.deviation, first.expected.counts],
                "single": first.value("throughput") / other.value("throughput"),
            }


def _turns(case) -> list[dict]:
    return [turns for _, turns in case.turns]


def outcome(line: dict) -> str:
    """`found`, `equal`, `bounded` if the interval holds the truth and names no lane, or `wrong`."""
    truth, (low, high) = 1 + line["slower"], line["ends"]
    if line["verdict"] in ("clear", "likely"):
        return "found" if line["slower"] and line["ratio"] > 1 else "wrong"
    if line["verdict"] == "equal":
        return "equal" if line["slower"] <= EQUAL else "wrong"
    return "bounded" if low <= truth <= high else "wrong"


def missed(line: dict) -> bool:
    """Whether the interval leaves out the truth."""
    low, high = line["ends"]
    return not low <= 1 + line["slower"] <= high


def page(lines: list[dict]) -> str:
    """The tables as Markdown."""
    suites = len({line["suite"] for line in lines})
    rows, biases = [], []
    for loaded, condition in CONDITIONS.items():
        for slower in sorted({line["slower"] for line in lines}):
            of = [line for line in lines if (line["loaded"], line["slower"]) == (loaded, slower)]
            counts = [sum(outcome(line) == kind for line in of) for kind in ("found", "equal", "bounded", "wrong")]
            name = f"{slower:.0%} slower" if slower else "the same lane"
            rows.append((condition, name, len(of), *counts, sum(map(missed, of))))
            if errors := [math.log(line["ratio"] / (1 + slower)) for line in of if len(line["differences"]) > 1]:
                error = stdev(errors) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
                biases.append((condition, name, len(errors), f"{100 * mean(errors):+.2f} %", f"{100 * error:.2f} %"))
    widths = []
    for count in range(FEWEST_ROUNDS, max(len(line["differences"]) for line in lines) + 1):
        of = [line for line in lines if len(line["differences"]) >= count]
        ends = [ratio_interval(line["differences"][:count], Scatter(*line["expected"]))[1:] for line in of]
        found = [low > 0 for line, (low, _) in zip(of, ends, strict=True) if line["slower"] == EQUAL]
        shown = f"{100 * math.expm1(median(high - low for low, high in ends) / 2):.1f} %"
        after = median([*line["begun"], line["seconds"]][count] for line in of)
        widths.append((count, len(of), f"{after:.0f} s", shown, f"{sum(found)} of {len(found)}"))
    singles = []
    for loaded, condition in CONDITIONS.items():
        off = [_off(line) for line in lines if line["loaded"] == loaded]
        beyond = (sum(factor > by for factor in off) for by in (1.28, 1.6, BY_CHANCE))
        singles.append((condition, len(off), *beyond, f"{max(off, default=1.0):.2f}"))
    wrong = [
        f"- suite {line['suite']}, {line['model']}, a lane that is {line['slower']:.0%} slower: {line['verdict']}, "
        f"{line['ratio']:.3f} ({line['ends'][0]:.3f} to {line['ends'][1]:.3f}), after {len(line['differences'])} rounds"
        for line in lines
        if outcome(line) == "wrong" or missed(line)
    ]
    seconds = median(line["seconds"] for line in lines)
    cpus = " and ".join(sorted({line["cpu"] for line in lines}))
    return f"""# How often an answer between lanes is wrong

Made by `python docs/evidence/answers.py` on {cpus}, two cores: {suites} runs of {MINUTES} minute with
a workload in four lanes each, {seconds:.0f} s a run in all. PyTorch's lane is compared with itself under
another name, and with itself where each step takes 5 or 10 % longer. *Found*: the slower lane is called slower.
*Equal*: the two are called equal within {EQUAL:.0%}. *Bounded*: no lane is named, and the interval holds the truth.
Everything else is *wrong*. *Missed*: the interval, of {LEVEL:.0%}, does not hold the truth, whatever is said.

{table(("run", "second lane", "comparisons", "found", "equal", "bounded", "wrong", "missed"), rows)}

What was wrong or missed, with how many times as fast PyTorch was said to be:

{chr(10).join(wrong) or "- nothing"}

By how much the ratios of those with two rounds or more lie beside the truth on average:

{table(("run", "second lane", "comparisons", "bias", "its standard error"), biases)}

What the first rounds of each comparison would have said. Rounds do not count while the other process computes.

{
        table(
            ("rounds", "comparisons", "over after, median", "half of the interval's width, median", "5% slower, found"),
            widths,
        )
    }

By how much one process of each lane was off: the factor between the ratio of their throughputs and the truth. The
report calls no such ratio likely unless it is beyond {BY_CHANCE:g}.

{table(("run", "comparisons", "beyond 1.28", "beyond 1.6", f"beyond {BY_CHANCE:g}", "largest"), singles)}
"""


def _off(line: dict) -> float:
    factor = line["single"] / (1 + line["slower"])
    return max(factor, 1 / factor)


def main() -> None:
    if sys.argv[1:] == ["--page"]:
        PAGE.write_text(page(stored(DATA)))
        return
    wanted, work = int(sys.argv[1]), Path(sys.argv[2]).resolve()
    prepare(work)
    while (number := len({line["suite"] for line in stored(DATA)})) < wanted:
        lines = suite(work, number)
        with DATA.open("a") as data:
            data.writelines(f"{json.dumps(line)}\n" for line in lines)


if __name__ == "__main__":
    main()
