"""How far two devices are from one after the same steps: of every model in every framework, in float64.

    python -m docs.evidence.devices              # writes both tables in devices.md
    python -m docs.evidence.devices mlp cnn      # repeats the rows of these models

The devices are two processes on this machine, over gloo.
"""

import sys
from importlib.metadata import version
from pathlib import Path

from fwbench.ext.proofs.proof import NotTheSame
from fwbench.models import CATALOG
from tests.proving import MODELS
from tests.proving.devices import FIRST, PARTS, WHOLE, Found, Trial, found
from tests.proving.devices_mutations import MISTAKES, STATISTICAL

PAGE = Path(__file__).resolve().with_name("devices.md")
TITLES = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}
CELLS = (
    *((PARTS, quantity) for quantity in ("gradients", "sgd", "adam")),
    (FIRST, "statistics"),
    *((WHOLE, quantity) for quantity in ("gradients", "sgd", "adam")),
)
ERRORS = (
    "| model | framework | gradients | 5 SGD steps | 5 Adam steps | running statistics | gradients, whole batch "
    f"| 5 SGD steps, whole batch | 5 Adam steps, whole batch |\n| --- | --- |{' ---: |' * len(CELLS)}"
)
WRONG = "| model | framework | mistake | error |\n| --- | --- | --- | ---: |"
# Of the mistakes, which are planted in two lanes.
SPOILED = ("torch", "jax")
PLANTED = {"mlp": MISTAKES, "mobilenet_v3_small": STATISTICAL}


def proved(lane: str, proof: Found) -> str:
    errors = {
        (against, quantity): f"{error:.1e}" if error else "0"
        for against, of in proof.check().items()
        for quantity, error in of.items()
    }
    return " | ".join([f"| {proof.trial.model.name}", TITLES[lane], *(errors.get(cell, "-") for cell in CELLS)]) + " |"


def planted(lane: str, proof: Found) -> str:
    try:
        proof.check()
    except NotTheSame:
        error = max(error for of in proof.errors.values() for errors in of.values() for error in errors.values())
        mistake = proof.trial.mistake.replace("_", " ")
        return f"| {proof.trial.model.name} | {TITLES[lane]} | {mistake} | {error:.1e} |"
    raise AssertionError(f"the proof of {proof.trial.model.name} does not find {proof.trial.mistake}")


def write(table: str, header: str, rows: list[str], model: str) -> None:
    """A model's rows anew in a table between its marks, whose models are in the order of the catalog."""
    begin, end = f"<!-- {table}: begin -->\n", f"<!-- {table}: end -->"
    before, _, rest = PAGE.read_text().partition(begin)
    old, _, after = rest.partition(end)
    kept = [row for row in old.splitlines() if row.startswith("| ") and _model(row) != model]
    ordered = [row for name in MODELS for row in (*kept, *rows) if _model(row) == name]
    made_with = ", ".join(f"{package} {version(package)}" for package in ("torch", "jax", "tensorflow"))
    text = "\n".join([f"With {made_with}.", "", header, *ordered])
    PAGE.write_text(f"{before}{begin}{text}\n{end}{after}")


def _model(row: str) -> str:
    return row.split(" | ")[0].removeprefix("| ")


if __name__ == "__main__":
    for model in sys.argv[1:] or MODELS:
        right, wrong = [], []
        for lane in TITLES:
            wrongs = [
                Trial(CATALOG[model], mistake.__name__, ("sgd",))
                for mistake in PLANTED.get(model, ())
                if lane in SPOILED
            ]
            proof, *spoiled = found(lane, [Trial(CATALOG[model]), *wrongs])
            right.append(proved(lane, proof))
            wrong += [planted(lane, mistake) for mistake in spoiled]
            print(right[-1], flush=True)
        write("devices", ERRORS, right, model)
        if wrong:
            write("mistakes over devices", WRONG, wrong, model)
