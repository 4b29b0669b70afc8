"""Full proofs of the suite's own models, one file a model: their float32 results, and the planted mistakes they found.

A record holds as long as the networks, the versions and the device are those it was made with. Until then the tests of
correctness need not repeat it. After a change of the prover it still holds, as the tests prove each network on small
images anyway and the prover on small networks; `python -m tests.proving` renews it. No framework is imported.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from fwbench.ext.proofs.case import Mode
from fwbench.ext.proofs.errors import BOUNDS, Quantity
from fwbench.machine import machine, versions
from fwbench.models import CATALOG
from fwbench.models.project import complete
from fwbench.models.sources import sources
from fwbench.models.store import Key, digest
from fwbench.record.decoding import Decoded

FOLDER = Path(__file__).with_name("records")

# What the suite's own models are proved with in each framework, and which module plants mistakes in its networks.
DISTRIBUTIONS = {
    "jax": ("torch", "torchvision", "jax", "jaxlib", "flax", "optax", "numpy"),
    "tensorflow": ("torch", "torchvision", "tensorflow", "keras", "numpy"),
}
MUTATIONS = {"jax": "tests.proving.mutations", "tensorflow": "tests.proving.tensorflow_mutations"}

# The modules of fwbench whose arithmetic a full proof runs through. Of the latter some look for the place of a
# difference when a proof has failed; others read files and name faults: none of the suite's networks has a checkpoint.
_COMPUTES = ("fwbench.frameworks.", "fwbench.models.", "fwbench.ext.proofs.", "fwbench.ext.tensorflow.")
_ASIDE = (
    "fwbench.ext.proofs.where",
    "fwbench.models.store",
    "fwbench.ext.proofs.checkpoint",
    "fwbench.models.importing",
    "fwbench.frameworks.faults",
)


# How many times the reference's own float32 error another float32 result may err.
ROOM = 5


@dataclass(frozen=True)
class Rounding(Decoded):
    """Errors of float32 results: the reference's own, what they allow, and the candidate's."""

    own: float
    bound: float
    error: float


@dataclass(frozen=True)
class Row(Decoded):
    """What one model's network in a framework reached in one mode; compiled results are of inference alone.

    Attributes:
        torch_compile: of PyTorch itself; in one framework's rows alone.
        jit: of the candidate as its lane compiles it, by `jax.jit` or `tf.function`.
        xla: of TensorFlow's lane with XLA.
    """

    model: str
    mode: Mode
    float64: Mapping[Quantity, float]
    logits: Rounding
    gradients: Rounding
    torch_compile: float | None
    jit: float | None
    xla: float | None = None
    candidate: str = "jax"

    @property
    def holds(self) -> bool:
        """Whether every error is within its bound."""
        float64 = all(error <= BOUNDS[quantity] for quantity, error in self.float64.items())
        compiled = [error for error in (self.torch_compile, self.jit, self.xla) if error is not None]
        return (
            float64
            and all(error <= self.logits.bound for error in (self.logits.error, *compiled))
            and self.gradients.error <= self.gradients.bound
        )


@dataclass(frozen=True)
class Full(Decoded):
    """What a full proof of a framework's network found.

    Attributes:
        candidate: the framework.
        made_with: what the module's function of this name said where the proof was made.
        rows: the errors in each mode.
        mutations: the error of each planted mistake by its name; all were found.
    """

    candidate: str
    made_with: Mapping[str, Any]
    rows: tuple[Row, ...]
    mutations: Mapping[str, float]


def full(model: str, candidate: str) -> Full | None:
    """The full proof of one of the suite's own models that holds here; None where none does."""
    now = made_with(model, candidate)
    # Whichever prover made it.
    there = (one for one in _read(model) if {**one.made_with, "prover": now["prover"]} == now)
    return next((one for one in there if one.candidate == candidate), None)


def current(model: str, candidate: str) -> bool:
    """Whether a full proof holds here that today's prover made."""
    found = full(model, candidate)
    return found is not None and found.made_with["prover"] == made_with(model, candidate)["prover"]


def write(model: str, proved: Full) -> None:
    """Keep a full proof beside those of the same sources with other versions, and in the place of all others."""
    kept = [one for one in _read(model) if one.candidate != proved.candidate or _besides(one, proved)]
    text = json.dumps([one.to_json() for one in (*kept, proved)], indent=1)
    (FOLDER / f"{model}.json").write_text(f"{text}\n", encoding="utf-8")


def made_with(model: str, candidate: str) -> dict[str, Any]:
    """All that decides what a full proof finds.

    Returns:
        `sources`, a digest of the networks and of the scales that their weights are drawn with; `prover`, a digest of
        all that proves them; `versions` of all distributions that compute; and `device`, on which float32 runs.
    """
    key = Key.of(complete(CATALOG[model]), candidate)
    followed = sources(("tests.proving.float32:SuiteProof", f"{MUTATIONS[candidate]}:find"), _COMPUTES).files
    proving = {module: own for module, own in followed.items() if not module.startswith(_ASIDE)}
    scales = resources.files("fwbench.models").joinpath("batch_norm_scale.json").read_text(encoding="utf-8")
    return {
        "sources": digest([key.definition, key.files, scales]),
        "prover": digest(proving),
        "versions": versions(DISTRIBUTIONS[candidate]),
        "device": machine().device,
    }


def _besides(one: Full, proved: Full) -> bool:
    now = proved.made_with
    return one.made_with["sources"] == now["sources"] and one.made_with["versions"] != now["versions"]


def _read(model: str) -> list[Full]:
    path = FOLDER / f"{model}.json"
    every = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [Full.from_json(one) for one in every]
