"""Runs of projects of a user's, in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fwbench.record.measurement import Measurement

_OPTIONS = ("--benchmark-only", "--benchmark-max-time=0", "--benchmark-min-rounds=5", "-p", "no:cacheprovider")


def measured(folder: Path) -> tuple[str, list[Measurement]]:
    """What a run of the benchmarks in a folder says, and all that it has measured."""
    command = [sys.executable, "-m", "pytest", *_OPTIONS, "--fwbench-minutes=0", "--fwbench-set=patience=0", "-rs"]
    # Without what a parallel run of the tests tells its own workers.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (journal,) = (folder / ".benchmarks").rglob("*.jsonl")
    records: list[dict[str, Any]] = [json.loads(line) for line in journal.read_text().splitlines()]
    found = [record for record in records if "workload" in record and not record.get("failure")]
    return done.stdout, [Measurement.from_json(record) for record in found]
