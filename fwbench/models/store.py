"""The stored proofs, one file a model, and the statement on a proof that goes into a record.

Proofs of the suite's own models ship with fwbench; a project's lie among its records. A proof holds until the model's
definition, its own source files or the versions of their imports change. Adding or editing another model makes no
proof stale. No framework is imported.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fwbench.machine import versions
from fwbench.models import CATALOG, Model, ModelError
from fwbench.models.sources import Sources, sources
from fwbench.record import files
from fwbench.record.decoding import Decoded
from fwbench.record.lanes import LANES, framework_of, networks

SHIPPED = Path(__file__).with_name("proofs")

# Fields without influence on a proof: titles, figures for readers, and axis values that are not proved.
_NOT_PROVED = ("title", "source", "classes", "parameters", "macs", "published", "axes", "buckets")


@dataclass(frozen=True)
class Key(Decoded):
    """The subject of a proof. Any change to it requires a new proof.

    Attributes:
        definition: digest of the model's definition for the two frameworks.
        files: digest of each of the networks' own source files, by module.
        versions: versions of the distributions by framework.
    """

    definition: str
    files: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, model: Model, candidate: str) -> "Key":
        """The present key of a framework's network and the reference's, as this interpreter finds them."""
        candidate = framework_of(candidate)
        by_framework = _sources(model, candidate)
        installed = {}
        for framework, own in by_framework.items():
            lanes = [lane.distributions for lane in LANES.values() if lane.framework == framework]
            installed[framework] = versions(itertools.chain(*lanes, own.distributions))
        return cls(_definition(model, candidate), _files(by_framework) | _checkpoint(model), installed)

    def changed(self, model: Model, framework: str) -> str:
        """The first change since the proof, in a few words; empty if there is none.

        Only the framework's own versions are compared, as this interpreter need not have the reference's.
        """
        if self.definition != _definition(model, framework):
            return "the model's definition has changed"
        present = _files(_sources(model, framework)) | _checkpoint(model)
        edited = [name for name in {**self.files, **present} if self.files.get(name) != present.get(name)]
        if edited:
            return f"{', '.join(sorted(edited)[:3])} {'has' if len(edited) == 1 else 'have'} changed"
        proved = self.versions[framework]
        installed = versions(tuple(proved))
        for name, version in proved.items():
            if installed.get(name) != version:
                return f"{name} was {version} and is {installed.get(name, 'not installed')}"
        return ""


@dataclass(frozen=True)
class Nearest(Decoded):
    """The tensor whose error is nearest to its bound.

    Attributes:
        tensor: its name; the quantity's name if the quantity is a single number or array.
        point: the point at which it was compared.
    """

    quantity: str
    tensor: str
    point: str
    mode: str
    error: float
    bound: float

    @property
    def ratio(self) -> float:
        """The error as a multiple of its bound."""
        return self.error / self.bound


@dataclass(frozen=True)
class Power(Decoded):
    """The counts of planted mistakes, and of those that a proof finds at its points and with its bounds.

    Attributes:
        planted: number of mistakes, each tried by itself.
        found: number of those that cause an error beyond its bound at one of the points.
        missed: name and place of each of the others.
        possible: number of mistakes that could have been planted; the planted ones are spread evenly over kinds and
            depth.
        modes: modes of the programs in which they were planted; empty if an older proof does not record them.
    """

    planted: int
    found: int
    missed: tuple[str, ...]
    possible: int
    modes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proved(Decoded):
    """The result of a proof of a framework's network, or of a lane's own program, against the reference's network.

    Attributes:
        candidate: the framework, or the lane.
        state: `proved`, or `failed`.
        sentence: the differences, if it failed.
        errors: the largest float64 error of each quantity that the proof reached.
        bounds: the bounds on these errors.
        points: the points at which the networks were compared: their weights, and the scale of the inputs.
        left_out: by point and mode, the reason why the networks could not be compared there.
        untried: sides of the networks' choices that none of the points takes.
        nearest: the tensor nearest to its bound, if it is proved.
        power: the counts of mistakes planted in the candidate's program and found; None if none could be planted.
        training_alone: whether a failed proof found inference to be the same, and training alone to differ.
    """

    model: str
    candidate: str
    reference: str
    state: str
    sentence: str
    errors: Mapping[str, float]
    bounds: Mapping[str, float]
    key: Key
    points: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    untried: tuple[str, ...] = ()
    nearest: Nearest | None = None
    power: Power | None = None
    training_alone: bool = False


def write(proved: Proved, folder: Path) -> None:
    """Store a proof in place of an older one of the same two networks.

    A proof of the same sources with other versions stays: it holds for users of those versions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = [
        one for one in _read(folder, proved.model) if one.candidate != proved.candidate or _besides(one.key, proved.key)
    ]
    text = json.dumps([one.to_json() for one in (*kept, proved)], indent=1) + "\n"
    # Atomically, as another process may be reading, or proving the model's next framework.
    files.write(folder / f"{proved.model}.json", text)


def stamp(model: Model, candidate: str, folder: Path | None) -> dict[str, Any]:
    """The statement in a record of a lane on the proof of its network or program.

    Args:
        candidate: the lane's framework, or the lane if its own program is proved.
        folder: the folder of the project's proofs.

    Returns:
        `framework`, and `state`: `alone` (the model has no other framework), `reference` (the others are proved
        against this one), `proved`, `stale`, `failed`, or `missing`. The last four have a `reason` (the fault in words)
        and, if there is a proof, its `errors`, `bounds`, `versions` and any `untried` sides. A `failed` one that holds
        for inference has `training_alone`, too.
    """
    framework = framework_of(candidate)
    # A lane's own program is proved beside its framework's network, also if the model has no other framework.
    own = {"framework": framework} if candidate == framework else {"framework": framework, "program": candidate}
    if framework not in model.networks or (len(model.networks) < 2 and candidate == framework):
        return {**own, "state": "alone"}
    if candidate == model.reference:
        return {**own, "state": "reference"}
    folders = [*([folder] if folder else []), *([SHIPPED] if of_suite(model, framework) else [])]
    kept = [one for place in folders for one in _read(place, model.name) if one.candidate == candidate]
    if not kept:
        what = "it" if candidate == framework else f"what the lane {candidate} compiles"
        return {**own, "state": "missing", "reason": f"{what} has never been proved"}
    # A project may have proved one of the suite's own models again, with its own versions.
    changes = [one.key.changed(model, framework) for one in kept]
    changed = min(changes, key=bool)
    proved = kept[changes.index(changed)]
    return {
        **own,
        "state": "stale" if changed else proved.state,
        "reason": changed or proved.sentence,
        **({"untried": list(proved.untried)} if proved.untried else {}),
        **({"training_alone": True} if proved.training_alone and not changed else {}),
        "errors": dict(proved.errors),
        "bounds": dict(proved.bounds),
        "versions": {name: version for of in proved.key.versions.values() for name, version in of.items()},
    }


def of_suite(model: Model, candidate: str) -> bool:
    """True if both the model and the candidate's network are the suite's own: a lane may bring other networks."""
    framework, own = framework_of(candidate), CATALOG.get(model.name)
    if own is None:
        return False
    suite = own.networks | networks(model.name, own=True)
    if framework not in suite or model.networks[framework] != suite[framework]:
        return False
    named = {name: path for name, path in model.networks.items() if name in own.networks}
    return Model.from_json({**model.to_json(), "networks": named}) == own


def _definition(model: Model, candidate: str) -> str:
    sides = (model.reference, candidate)
    described = {name: value for name, value in model.to_json().items() if name not in _NOT_PROVED}
    described |= {
        "networks": {framework: model.networks[framework] for framework in sides},
        "loss": {framework: _loss(model, framework) for framework in sides},
        "sizes": model.sizes(),
    }
    return digest(described)


def digest(data: Any) -> str:
    """Digest of JSON primitives."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _besides(one: Key, proved: Key) -> bool:
    """True if two proofs of the same networks differ in versions alone, so that both hold side by side."""
    return one != proved and dataclasses.replace(one, versions=proved.versions) == proved


def _sources(model: Model, candidate: str) -> dict[str, Sources]:
    """The sources behind all import paths of each framework's side of the model, by framework."""
    by_framework = {}
    for framework in (model.reference, candidate):
        paths = [model.networks[framework], *model.functions(framework), model.state.get(framework, "")]
        if isinstance(model.weights, str) and framework != model.reference:
            paths.append(model.weights)
        by_framework[framework] = sources(path for path in paths if ":" in path)
    return by_framework


def _files(by_framework: Mapping[str, Sources]) -> dict[str, str]:
    return {module: digest for of in by_framework.values() for module, digest in of.files.items()}


def _checkpoint(model: Model) -> dict[str, str]:
    """Digest of the model's file of weights, by its path; empty if there is no such file here."""
    try:
        with files.opened(checkpoint_file(model)) as file:
            return {str(model.checkpoint): hashlib.file_digest(file, "sha256").hexdigest()[:16]}
    except (OSError, ModelError):
        return {}


def checkpoint_file(model: Model) -> Path:
    """The path of the model's checkpoint, below the first folder of `sys.path` that has it, or a ModelError.

    The project's root is one of these folders wherever its modules are imported.
    """
    places = [Path(folder, model.checkpoint or "") for folder in sys.path]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ModelError(f"there is no checkpoint {model.checkpoint!r}: name it by its path from the project's root")
    return path


def _loss(model: Model, framework: str) -> str:
    """The loss's name, or the import path of the framework's own loss."""
    return model.loss if isinstance(model.loss, str) else model.loss.get(framework, "")


def _read(folder: Path, model: str) -> list[Proved]:
    """The proofs of a model, without those that are damaged or from another version of fwbench."""
    try:
        stored = json.loads(files.read(folder / f"{model}.json"))
    except (OSError, ValueError, RecursionError):
        return []
    proofs = []
    for one in stored if isinstance(stored, list) else ():
        with contextlib.suppress(TypeError, AttributeError):
            proofs.append(Proved.from_json(one))
    return proofs
