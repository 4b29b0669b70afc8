"""The proofs that are kept, one file a model, and what a record says of the one that stands behind it.

The suite's own models' proofs ship with fwbench; a project's lie among its records. A proof holds as long as the
model's definition, its own source files and the versions of what they import are those that were proved: adding or
editing another model makes no proof stale. No framework is imported.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fwbench.machine import versions
from fwbench.models import CATALOG, Model
from fwbench.parity.sources import sources
from fwbench.record.lanes import LANES

SHIPPED = Path(__file__).with_name("proofs")

# Titles and figures for readers, and values of axes at which nothing is proved.
_NOT_PROVED = ("title", "source", "classes", "parameters", "macs", "published", "axes")


@dataclass(frozen=True)
class Key:
    """What a proof is of. Whoever changes any of it has to prove again.

    Attributes:
        definition: digest of what the model says of the two frameworks.
        files: digest of each of the networks' own source files, by module.
        versions: of the distributions by framework.
    """

    definition: str
    files: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, model: Model, candidate: str) -> "Key":
        """The present one of a framework's network and the reference's, as this interpreter finds them."""
        sides = (model.reference, candidate)
        described = {name: value for name, value in model.to_json().items() if name not in _NOT_PROVED}
        described |= {
            "networks": {framework: model.networks[framework] for framework in sides},
            "sizes": model.sizes(),
            "loss": {framework: loss_of(model, framework) for framework in sides},
            "weights": model.weights,
        }
        text = json.dumps(described, sort_keys=True)
        files: dict[str, str] = {}
        found: dict[str, dict[str, str]] = {}
        for framework in sides:
            own = sources(_paths(model, framework))
            files |= own.files
            known = (name for lane in LANES.values() if lane.framework == framework for name in lane.distributions)
            found[framework] = versions(tuple(dict.fromkeys((*known, *own.distributions))))
        return cls(hashlib.sha256(text.encode()).hexdigest()[:16], files, found)

    def changed(self, now: "Key", framework: str) -> str:
        """What is no longer as it was proved, in a few words; empty where all is.

        Of the versions only the framework's own are looked at: this interpreter need not have the other's.
        """
        if self.definition != now.definition:
            return "the model's definition has changed"
        edited = [name for name in {**self.files, **now.files} if self.files.get(name) != now.files.get(name)]
        if edited:
            return f"{', '.join(sorted(edited)[:3])} {'has' if len(edited) == 1 else 'have'} changed"
        installed = now.versions[framework]
        for name, version in self.versions[framework].items():
            if installed.get(name) != version:
                return f"{name} was {version} and is {installed.get(name, 'not installed')}"
        return ""


@dataclass(frozen=True)
class Proved:
    """What a proof of a framework's network against the reference's came to.

    Attributes:
        state: `proved`, or `failed`.
        sentence: of a failed one, what differs.
        errors: the largest float64 error of each quantity, as far as the proof came.
        bounds: on these errors.
    """

    model: str
    candidate: str
    reference: str
    state: str
    sentence: str
    errors: Mapping[str, float]
    bounds: Mapping[str, float]
    key: Key

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Proved":
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**data, "key": Key(**data["key"])})


def write(proved: Proved, folder: Path) -> None:
    """Keep a proof, in the place of an older one of the same two networks."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {one.candidate: one for one in _read(folder, proved.model)} | {proved.candidate: proved}
    text = json.dumps([dataclasses.asdict(one) for one in kept.values()], indent=1) + "\n"
    # In one go: another process may be reading, or proving the model's next framework.
    new = folder / f".{proved.model}.{os.getpid()}"
    new.write_text(text, encoding="utf-8")
    new.replace(_file(folder, proved.model))


def stamp(model: Model, framework: str, folder: Path | None) -> dict[str, Any]:
    """What a record of a framework's lane says of the proof of its network.

    Args:
        folder: of the project's proofs.

    Returns:
        `framework`, and `state`: `alone` (the model has no other framework), `reference` (the others are proved
        against this one), `proved`, `stale`, `failed`, or `missing`. Of the last four `reason` says what is wrong, and
        where there is a proof, `errors`, `bounds` and `versions` are its own.
    """
    own = {"framework": framework}
    if len(model.networks) < 2 or framework not in model.networks:
        return {**own, "state": "alone"}
    if framework == model.reference:
        return {**own, "state": "reference"}
    folders = [*([folder] if folder else []), *([SHIPPED] if of_suite(model, framework) else [])]
    kept = [one for place in folders for one in _read(place, model.name) if one.candidate == framework]
    if not kept:
        return {**own, "state": "missing", "reason": "it has never been proved"}
    now = Key.of(model, framework)
    # A project may have proved one of the suite's own models again, with its own versions.
    proved = next((one for one in kept if not one.key.changed(now, framework)), kept[0])
    changed = proved.key.changed(now, framework)
    return {
        **own,
        "state": "stale" if changed else proved.state,
        "reason": changed or proved.sentence,
        "errors": dict(proved.errors),
        "bounds": dict(proved.bounds),
        "versions": {name: version for of in proved.key.versions.values() for name, version in of.items()},
    }


def of_suite(model: Model, framework: str) -> bool:
    """Whether it is one of the suite's own models, and the network the suite's own too: a lane may bring others."""
    own = CATALOG.get(model.name)
    if own is None or framework not in own.networks:
        return False
    named = {name: path for name, path in model.networks.items() if name in own.networks}
    return Model.from_json({**model.to_json(), "networks": named}) == own


def loss_of(model: Model, framework: str) -> str:
    """A loss's name, or the import path of the framework's own."""
    return model.loss if isinstance(model.loss, str) else model.loss.get(framework, "")


def _paths(model: Model, framework: str) -> list[str]:
    """All import paths that a framework's side of a model runs through."""
    own = [model.networks[framework], loss_of(model, framework)]
    if isinstance(model.weights, str) and framework != model.reference:
        own.append(model.weights)
    return [path for path in own if ":" in path]


def _file(folder: Path, model: str) -> Path:
    return folder / f"{model}.json"


def _read(folder: Path, model: str) -> list[Proved]:
    """The proofs of a model; none where the file is of another version of fwbench, or damaged."""
    try:
        return [Proved.from_json(one) for one in json.loads(_file(folder, model).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError):
        return []
