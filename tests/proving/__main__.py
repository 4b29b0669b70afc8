"""Prove the suite's own models, with float32 results and planted mistakes, and write `docs/parity.md`.

`python -m tests.proving` proves, each in a process of its own, what no record holds for, so that it can be stopped and
run again; `python -m tests.proving MODEL FRAMEWORK` proves one network anew. A proof goes to `fwbench/parity/proofs`,
which ship, and what it found besides to `tests/proving/records`.
"""

import gc
import importlib
import os
import subprocess
import sys
from pathlib import Path

from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.parity import process, store
from fwbench.parity.proof import modes_apart
from fwbench.record.lanes import OWN
from fwbench.worker.client import environment
from tests.proving import page, records
from tests.proving.records import MUTATIONS, Full

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "parity.md"


def everything() -> None:
    """Prove what no record holds for, and write the page."""
    pairs = [
        (name, candidate) for name, model in CATALOG.items() for candidate in MUTATIONS if candidate in model.networks
    ]
    for pair in pairs:
        if records.full(*pair) is None:
            variables = dict(os.environ)
            for framework in ("torch", pair[1]):
                variables = environment(variables, machine().threads, machine().device, OWN[framework])
            command = [sys.executable, "-m", "tests.proving", *pair]
            if code := subprocess.run(command, env=variables, cwd=ROOT, check=False).returncode:
                raise SystemExit(code)
    PAGE.write_text(page.render({pair: records.full(*pair) for pair in pairs}), encoding="utf-8")


def one(name: str, candidate: str) -> None:
    """Prove one network, and keep what came of it."""
    model = CATALOG[name]
    # Before the proof: whatever is edited meanwhile has not been proved.
    made_with = records.made_with(name, candidate)
    proved = process.prove(model, candidate, lambda message: _tell(message["stage"]), patient=True)
    store.write(proved, store.SHIPPED)
    if proved.state != "proved":
        raise SystemExit(proved.sentence)
    # They import frameworks.
    from tests.proving.float32 import SuiteProof, device_at_hand

    planted = importlib.import_module(MUTATIONS[candidate])
    rows = []
    for mode in modes_apart(model):
        _tell(f"{mode}: float32")
        rows.append(SuiteProof(model, mode, device_at_hand(), candidate).row())
        gc.collect()
    errors = {}
    for mutation in planted.MUTATIONS:
        if mutation.model == name:
            _tell(f"mutations: {mutation.name}")
            errors[mutation.name] = planted.find(mutation)
    records.write(name, Full(candidate, made_with, rows, errors))


def _tell(stage: str) -> None:
    print(f"  {stage}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    one(*sys.argv[1:]) if sys.argv[1:] else everything()
