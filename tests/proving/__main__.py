"""Prove the suite's own models, with float32 results and planted mistakes, and write `docs/parity.md`.

`python -m tests.proving` proves, each in a process of its own, what no record of today's prover holds for, so that it
can be stopped and run again. A proof goes to `fwbench/parity/proofs`, which ship, and what it found besides to
`tests/proving/records`.
"""

import os
import subprocess
import sys
from pathlib import Path

from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.record.lanes import OWN
from fwbench.worker.client.starting import environment
from tests.proving import page, records

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "parity.md"


def main() -> None:
    """Prove what no record of today's prover holds for, and write the page."""
    pairs = [
        (name, candidate)
        for name, model in CATALOG.items()
        for candidate in records.MUTATIONS
        if candidate in model.networks
    ]
    for pair in pairs:
        if not records.current(*pair):
            _prove(*pair)
    PAGE.write_text(page.render({pair: records.full(*pair) for pair in pairs}), encoding="utf-8")


def _prove(model: str, candidate: str) -> None:
    """In a process like a worker, whose variables decide how many threads compute."""
    variables = dict(os.environ)
    for framework in ("torch", candidate):
        variables = environment(variables, machine().threads, machine().device, OWN[framework])
    command = [sys.executable, "-m", "tests.proving.full", model, candidate]
    if code := subprocess.run(command, env=variables, cwd=ROOT, check=False).returncode:
        raise SystemExit(code)


if __name__ == "__main__":
    main()
