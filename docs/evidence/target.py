"""Compiles the paper's programs for an H100, on any machine, and puts what they need beside the peaks that it measured.

    python docs/evidence/target.py WORK        # compiles; goes on after the last model that is done
    python docs/evidence/target.py WORK --read # writes target.json beside this file, and the tables in ../gpu.md

Needs fwbench[target]. A model is compiled twice, the second time held to the first by the gate.
"""

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- compiled for an H100: begin -->", "<!-- compiled for an H100: end -->"
MODELS = ("resnet50", "vit_b_16", "mobilenet_v3_small", "efficientnet_b0")
FIELDS = ("memory", "memory_parts", "fusions", "libraries", "precisions", "aliased", "compiler")
COMMAND = (
    *(sys.executable, "-m", "pytest", "tests/benchmarks", "-p", "no:cacheprovider"),
    *("--fwbench-programs-only=h100", "--fwbench-profile=paper", "--fwbench-lanes=jax"),
    *("-k", "not fit and not dispatch and not noop"),
)


def run(work: Path) -> None:
    for model in MODELS:
        for number in (1, 2):
            storage = work / model / str(number)
            if (storage / "exit").exists():
                continue
            baseline = [f"--benchmark-compare={journal(work, model, 1)}"] if number == 2 else []
            options = (f"--fwbench-models={model}", f"--benchmark-storage=file://{storage}", *baseline)
            done = subprocess.run([*COMMAND, *options], cwd=ROOT)
            (storage / "exit").write_text(str(done.returncode))


def journal(work: Path, model: str, number: int) -> Path:
    (path,) = (work / model / str(number) / "journal").glob("*.jsonl")
    return path


def read(work: Path) -> list[dict]:
    """A row a program that has been compiled, in the order of the paper's tables."""
    rows = []
    for model in (model for model in MODELS if (work / model / "1" / "exit").exists()):
        twice = (work / model / "2" / "exit").exists()
        again = {name(record): record["program"] for record in records(journal(work, model, 2))} if twice else {}
        for record in records(journal(work, model, 1)):
            workload, program = record["workload"], record["program"]
            rows.append(
                {
                    **{field: workload[field] for field in ("model", "mode", "batch_size")},
                    "id": name(record),
                    "digest": program["digest"],
                    "same_twice": again[name(record)] == program if twice else None,
                    "seconds": round(sum(record["stages"].values()), 1),
                    **{field: program[field] for field in FIELDS},
                }
            )
    return rows


def records(path: Path) -> list[dict]:
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def name(record: dict) -> str:
    workload = record["workload"]
    return "{model}-{mode}-b{batch_size}".format(**workload)


def tables(rows: list[dict]) -> Iterator[str]:
    published = {}
    with (ROOT / "fwbench" / "report" / "published" / "paper_inference_h100.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            published[row["model"], row["framework"], int(row["batch_size"])] = f"{row['peak_memory_mb']} MB"
    yield "Inference, compiled, not run; beside it, in the last two columns, the peaks that the paper measured."
    yield ""
    yield head("weights and batch", "paper, JAX", "paper, PyTorch")
    yield "|---|--:|--:|--:|--:|--:|---|--:|--:|"
    for row in rows:
        if row["mode"] == "inference":
            peaks = (published[row["model"], framework, row["batch_size"]] for framework in ("jax", "torch"))
            yield "| " + " | ".join((*cells(row), *peaks)) + " |"
    yield ""
    yield "Training step (Adam), compiled, not run. The paper states no peak of a training."
    yield ""
    yield head("weights, optimizer and batch", "written in place")
    yield "|---|--:|--:|--:|--:|--:|---|--:|"
    for row in rows:
        if row["mode"] == "train_step":
            yield "| " + " | ".join((*cells(row), megabytes(row["memory_parts"]["aliased"]))) + " |"


def head(arguments: str, *more: str) -> str:
    columns = ("model", "batch", "needs", arguments, "temporaries", "fusions", "library calls", *more)
    return f"| {' | '.join(columns)} |"


def cells(row: dict) -> tuple[str, ...]:
    parts, calls = row["memory_parts"], {"cublas": 0, "cudnn": 0}
    for call, count in row["libraries"].items():
        library = call.partition("$")[0]
        calls[library] = calls.get(library, 0) + count
    return (
        row["model"],
        str(row["batch_size"]),
        f"**{megabytes(row['memory'])}**",
        megabytes(parts["arguments"]),
        megabytes(parts["temporaries"]),
        str(row["fusions"]),
        ", ".join(f"{count} {library}" for library, count in calls.items() if count),
    )


def megabytes(value: float) -> str:
    """As the paper counts them: 10^6 B."""
    return f"{value / 1e6:.0f} MB"


def write(rows: list[dict]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    (versions,) = {tuple(row["compiler"].items()) for row in rows}
    told = ", ".join(f"{name} {version}" for name, version in versions if version and name != "options")
    twice = [row["same_twice"] for row in rows if row["same_twice"] is not None]
    lines = [
        f"Compiled with {told} and `{dict(versions)['options']}` by `python docs/evidence/target.py WORK`: "
        f"{len(rows)} programs in {sum(row['seconds'] for row in rows) / 60:.0f} minutes on two shared CPU cores; "
        f"{len(twice)} of them a second time, of which {sum(twice)} had the same fingerprint again "
        "([evidence/target.json](evidence/target.json)). 1 MB is 10^6 B, fp32 is IEEE.",
        "",
        *tables(rows),
    ]
    PAGE.write_text("\n".join([before + BEGIN, *lines, END + after]), encoding="utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    if "--read" in sys.argv:
        found = read(folder)
        HERE.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        write(found)
    else:
        run(folder)
