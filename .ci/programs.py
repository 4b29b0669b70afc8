"""Holds the suite's programs to the committed baseline, where the frameworks are those that the baseline was made with.

    .ci/programs.py            # exit code 0: all as they were, or made by other versions, which it names
    .ci/programs.py --renew    # makes the baseline

Another version may dispatch other operators and compile them otherwise, which is no change of ours.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fwbench.machine import machine, versions
from fwbench.models import CATALOG
from fwbench.record.reading import read

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / ".benchmarks" / "baselines" / "programs.jsonl"
# Models that are named have training steps, too. One batch size and one length are enough, as others change no more
# than shapes. Epochs have the program of a training step, and what measures the harness has none.
MODELS = ",".join(name for name in CATALOG if name != "noop")
SUITE = (
    *("tests/benchmarks", "--fwbench-programs-only", f"--fwbench-models={MODELS}", "--fwbench-batch-sizes=2"),
    *("-k", "not fit and not noop and not dispatch and not length1024"),
)


def run(*options: str) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *SUITE, *options], cwd=ROOT)


def renew() -> int:
    with tempfile.TemporaryDirectory() as storage:
        if failed := run(f"--benchmark-storage=file://{storage}"):
            return failed
        (journal,) = Path(storage).glob("journal/*.jsonl")
        BASELINE.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(journal, BASELINE)
    return 0


def compare() -> int:
    made_with: dict[str, str] = {}
    for measurement in read(BASELINE).measurements:
        # Of distributions: what a loaded module says of itself is not asked here.
        installed = {name: of for name, of in measurement.versions.items() if not name.endswith(".__version__")}
        made_with |= {**installed, "device": measurement.workload.device}
    here = {**versions(tuple(made_with)), "device": machine().device}
    others = [f"{name} {made} -> {here.get(name)}" for name, made in made_with.items() if here.get(name) != made]
    if others:
        print(f"The programs are not compared with the baseline, which was made under others: {', '.join(others)}.")
        return 0
    return run(f"--benchmark-compare={BASELINE}")


sys.exit(renew() if "--renew" in sys.argv else compare())
