"""Prove the suite's own models, with float32 results and planted mistakes, and write `docs/parity.md`.

`python -m tests.proving` proves, each in a process of its own, what no record of today's prover holds for, so that it
can be stopped and run again. A proof goes to `fwbench/models/proofs`, which ship, and what it found besides to
`tests/proving/records`. With a model's name and a framework it proves that network alone, in this process.
"""

import gc
import importlib
import os
import subprocess
import sys
from pathlib import Path

from fwbench.ext.proofs.command import programs
from fwbench.machine import machine
from fwbench.models import CATALOG, store
from fwbench.models.project import complete
from fwbench.record.lanes import LANES
from fwbench.worker.client.starting import environment
from tests.proving import page, records

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "parity.md"


def main() -> None:
    pairs = [
        (name, candidate)
        for name, model in CATALOG.items()
        for candidate in records.MUTATIONS
        if candidate in complete(model).networks
    ]
    for pair in pairs:
        if not records.current(*pair):
            _start(*pair)
    for name, model in CATALOG.items():
        for lane in programs(model).values():
            found = store.stamp(complete(model), lane, None)
            if "program" in found and found["state"] == "stale":
                subprocess.run([sys.executable, "-m", "fwbench", "prove", name, "--lanes", lane], cwd=ROOT, check=True)
    PAGE.write_text(page.render({pair: records.full(*pair) for pair in pairs}), encoding="utf-8")


def _start(model: str, candidate: str) -> None:
    """Prove in a process like a worker, whose variables decide how many threads compute."""
    variables = dict(os.environ)
    for framework in ("torch", candidate):
        variables = environment(variables, machine().threads, machine().device, LANES[framework])
    command = [sys.executable, "-m", "tests.proving", model, candidate]
    if code := subprocess.run(command, env=variables, cwd=ROOT, check=False).returncode:
        raise SystemExit(code)


def prove(name: str, candidate: str) -> None:
    """Prove a network in this process, and keep what came of it.

    Raises:
        SystemExit: the networks differ; the sentence says how.
    """
    from fwbench.ext.proofs import process
    from fwbench.ext.proofs.proof import modes_apart
    from tests.proving.float32 import SuiteProof, device_at_hand

    model = complete(CATALOG[name])
    # Before the proof: whatever is edited meanwhile has not been proved.
    made_with = records.made_with(name, candidate)
    proved = process.prove(model, candidate, lambda message: _tell(message["stage"]), patient=True)
    store.write(proved, store.SHIPPED)
    if proved.state != "proved":
        raise SystemExit(proved.sentence)
    planted = importlib.import_module(records.MUTATIONS[candidate])
    rows, errors = [], {}
    for mode in modes_apart(model):
        _tell(f"{mode}: float32")
        rows.append(SuiteProof(model, mode, device_at_hand(), candidate).row())
        gc.collect()
    for mutation in planted.MUTATIONS:
        if mutation.model == name:
            _tell(f"mutations: {mutation.name}")
            errors[mutation.name] = planted.find(mutation)
    records.write(name, records.Full(candidate, made_with, tuple(rows), errors))


def _tell(stage: str) -> None:
    print(f"  {stage}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    (prove if sys.argv[1:] else main)(*sys.argv[1:])
