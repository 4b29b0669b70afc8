"""Repeats `--fwbench-programs-only` over unchanged code and keeps every difference: it must find none.

    python docs/evidence/programs.py WORK        # runs, some 15 minutes; continues where an interrupted one stopped
    python docs/evidence/programs.py WORK --read # writes programs.json beside this file

Runs take turns between two copies of the committed tree, in folders of different names, and between all CPUs and one,
so that a path or a thread count in a fingerprint would show. Python's hash seed is another one in every process.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
RUNS = 21  # the baseline and twenty against it
COMMAND = (
    *("tests/benchmarks", "-p", "no:cacheprovider", "--fwbench-programs-only"),
    *("--fwbench-models=mlp,cnn,mobilenet_v3_small", "-k", "not fit and not noop and not dispatch"),
)


def run(work: Path) -> None:
    copies = (work / "a", work / "another place" / "b")
    for copy in copies:
        copy.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=HERE.parents[2], check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "x"], input=archive, cwd=copy, check=True)
    cpus = os.sched_getaffinity(0)
    for number in range(RUNS):
        storage = work / "runs" / str(number)
        if (storage / "exit").exists():
            continue
        baseline = [f"--benchmark-compare={journal(work, 0)}"] if number else []
        os.sched_setaffinity(0, {min(cpus)} if number % 4 >= 2 else cpus)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *COMMAND, f"--benchmark-storage=file://{storage}", *baseline],
            cwd=copies[number % 2],
        )
        (storage / "exit").write_text(str(done.returncode))


def journal(work: Path, number: int) -> Path:
    (path,) = (work / "runs" / str(number) / "journal").glob("*.jsonl")
    return path


def read(work: Path) -> dict[str, object]:
    runs = [records(journal(work, number)) for number in range(RUNS)]
    differences = [
        {"run": number, "workload": name, "field": field, "base": value, "head": record["program"][field]}
        for number, found in enumerate(runs)
        for name, record in found.items()
        for field, value in runs[0][name]["program"].items()
        if record["program"][field] != value
    ]
    return {
        "runs": RUNS - 1,
        "exits": [int((work / "runs" / str(number) / "exit").read_text()) for number in range(1, RUNS)],
        "fingerprints": sum(len(found) for found in runs[1:]),
        "differences": differences,
        "threads": [next(iter(found.values()))["settings"]["OMP_NUM_THREADS"] for found in runs],
        "versions": {name: v for record in runs[0].values() for name, v in record["versions"].items()},
        "workloads": {
            name: {
                "digest": record["program"]["digest"],
                "seconds": spread([sum(found[name]["stages"].values()) for found in runs]),
                "fingerprint_seconds": spread([cost(found[name]) for found in runs]),
            }
            for name, record in runs[0].items()
        },
    }


def records(path: Path) -> dict[str, dict]:
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    return {title(record["workload"]): record for record in map(json.loads, lines)}


def title(workload: dict) -> str:
    return "{framework}-{model}-{mode}-b{batch_size}".format(**workload)


def cost(record: dict) -> float:
    """Its own stage; in JAX also reading the lowered module, which the compile stage has beside its timed parts."""
    seconds = record["stages"]["program"]
    if record["workload"]["lane"] == "jax":
        timed = sum(record["metrics"][name]["value"] for name in ("trace_time", "compile_time", "first_call_time"))
        seconds += record["stages"]["compile"] - timed
    return seconds


def spread(values: list[float]) -> dict[str, float]:
    return {"least": round(min(values), 4), "median": round(statistics.median(values), 4)}


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    if "--read" in sys.argv:
        HERE.with_suffix(".json").write_text(json.dumps(read(folder), indent=1) + "\n", encoding="utf-8")
    else:
        run(folder)
