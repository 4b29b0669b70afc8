"""Run every proof and write the errors reached: `python -m fwbench.parity [docs/parity.md]`.

The page is for readers; `proofs.json` beside this file is what a record's parity stamp is read from.
"""

import gc
import sys
from importlib.metadata import version
from pathlib import Path

from fwbench.parity import stamp
from fwbench.parity.case import MODELS, MODES
from fwbench.parity.proof import BOUNDS, Proof, device_at_hand
from fwbench.parity.report import Row, render

PACKAGES = ("torch", "torchvision", "jax", "jaxlib", "flax", "optax", "numpy")


def measure() -> list[Row]:
    """Every model in every mode, in the catalog's order.

    Raises:
        NotTheSame: the frameworks do not compute the same thing, so there is nothing to publish.
    """
    rows = []
    for model in MODELS:
        for mode in MODES:
            rows.append(Row.of(Proof(model, mode, device_at_hand())))
            print(f"{model} ({mode})", file=sys.stderr)
            gc.collect()
    return rows


def worst(rows: list[Row], model: str) -> dict[str, float]:
    """The model's largest float64 error of each quantity, over both modes."""
    found = {
        quantity: [error for row in rows if row.model == model and (error := row.float64[quantity]) is not None]
        for quantity in BOUNDS
    }
    return {quantity: max(errors) for quantity, errors in found.items() if errors}


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/parity.md")
    versions = {package: version(package) for package in PACKAGES}
    rows = measure()
    path.write_text(render(rows, versions, device_at_hand()), encoding="utf-8")
    stamp.write({model: worst(rows, model) for model in MODELS}, versions)
