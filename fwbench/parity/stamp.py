"""What a record says of the proof that stands behind it; reads the last proof, imports no framework.

`python -m fwbench.parity` writes `proofs.json` beside `docs/parity.md`. It names the sources that were proved by their
digest, so that a record made after a network was edited says that its proof is no longer current.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("proofs.json")

# What a network's arithmetic depends on: the networks, their layers and the weights' names and scales.
_SOURCES = ("frameworks/torch/*.py", "frameworks/jax/*.py", "models/*.py", "models/*.json")
# How a lane runs them is measured, not proved; calibration and fetching make weights, which are on the record.
_LEFT_OUT = (
    "adapter.py",
    "program.py",
    "training.py",
    "calibrate.py",
    "fingerprint.py",
    "pretrained.py",
    "rematerialise.py",
    "__init__.py",
)


def stamp(model: str) -> dict[str, Any] | None:
    """The proof of a model, or None where there is none.

    Returns:
        `errors`: largest float64 error by property; `versions`: of the frameworks that were proved; `current`: whether
        the networks are still those that were proved.
    """
    proofs = _proofs()
    errors = proofs.get("models", {}).get(model)
    if errors is None:
        return None
    return {"errors": errors, "versions": proofs["versions"], "current": proofs["sources"] == sources()}


def write(models: Mapping[str, Mapping[str, float]], versions: Mapping[str, str], path: Path = FILE) -> None:
    """Keep the proofs of these sources: the largest float64 error by model and property."""
    proofs = {"sources": sources(), "versions": dict(versions), "models": {name: dict(models[name]) for name in models}}
    path.write_text(json.dumps(proofs, indent=1) + "\n", encoding="utf-8")


@functools.cache
def sources() -> str:
    """A digest of the networks' sources, the same on every machine."""
    package = Path(str(files("fwbench")))
    sha = hashlib.sha256()
    for path in sorted(found for pattern in _SOURCES for found in package.glob(pattern)):
        if path.name not in _LEFT_OUT:
            sha.update(path.relative_to(package).as_posix().encode())
            sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


def _proofs() -> dict[str, Any]:
    try:
        proofs: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return proofs
