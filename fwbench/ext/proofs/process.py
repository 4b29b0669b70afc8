"""Proves one framework's network against its model's reference, in a fresh process. Run by `start`, with a job.

The job is a line of JSON on standard input: `model`, `candidate`, `path` (the folders of the user's modules), and
`patient` (whether every mistake is planted, however long that takes).

The process answers in lines of JSON on what was standard output: a {"stage"} before each comparison, then the result.
That is {"proved"}; if there can be no proof, {"unavailable"} with a sentence, or {"missing"} with a module that this
interpreter lacks. All that the user's code prints goes to standard error.
"""

import gc
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fwbench.ext.proofs import digits, own_steps, stepping
from fwbench.ext.proofs.case import side
from fwbench.ext.proofs.choices.proof import Further
from fwbench.ext.proofs.choices.proof import prove as tried
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.ext.proofs.matching import match
from fwbench.ext.proofs.proof import Proof, _beyond, differences, modes, modes_apart
from fwbench.models import Model, ModelError
from fwbench.models.importing import described
from fwbench.models.inputs import too_large
from fwbench.models.store import Key, Nearest, Power, Proved
from fwbench.record.lanes import framework_of
from fwbench.worker.process.pipes import Pipes

Send = Callable[[Mapping[str, Any]], None]

# Mistakes are planted for half of the proof's time, or for half of these seconds if the proof was quicker.
_PLANTING = 40.0


def run(job: Mapping[str, Any], send: Send) -> None:
    """Prove, and send the result."""
    sys.path[:0] = job["path"]
    model, candidate = Model.from_json(job["model"]), job["candidate"]
    if missing := _missing((model.reference, candidate)):
        send({"missing": missing})
        return
    try:
        send({"proved": asdict(prove(model, candidate, send, patient=job["patient"]))})
    except ModelError as error:
        send({"unavailable": str(error)})
    except BaseException as error:
        no_row = too_large(model.inputs) if isinstance(error, IndexError) else ""
        send({"unavailable": f"{model.name} cannot be proved: {described(error)}{no_row}"})


def _missing(frameworks: Iterable[str]) -> str | None:
    """A module that a proof of these frameworks needs and that this interpreter lacks."""
    for framework in frameworks:
        try:
            side(framework)
        except ModelError as error:
            if isinstance(error.__cause__, ModuleNotFoundError):
                return error.__cause__.name
    return None


def prove(model: Model, candidate: str, send: Send, *, patient: bool) -> Proved:
    """Compare the two networks in this process, and plant mistakes in the candidate's.

    Of a lane's own program only inference is compared.

    Where `patient` is false, only as many are planted as fit into a time in proportion to the proof's.
    """
    _refuse_no_bounds(model)
    # The key is made before the proof, which does not cover edits of the sources while it runs.
    key, begun, found, power = Key.of(model, candidate), time.monotonic(), _Findings(), None
    failure, training_alone = _compare(model, candidate, send, found)
    training_alone = training_alone and not model.state and bool(found.proofs)
    # Inference is proved first.
    if training_alone := training_alone and found.proofs[0].worst("output").ratio <= 1:
        try:
            found.further = _further(model, candidate, found.left_out, send, trains=False)
        except (NotTheSame, ModelError) as error:
            failure, training_alone = f"{failure}. {error}", False
    if not failure:
        spent = math.inf if patient else max(time.monotonic() - begun, _PLANTING) / 2
        power = _power(model, candidate, send, spent / len(modes_apart(model)))
    further = found.further
    largest: dict[str, Nearest] = {}
    for one in (*found.nearest, *further.nearest):
        largest[one.quantity] = max(largest.get(one.quantity, one), one, key=_beyond)
    return Proved(
        model.name,
        candidate,
        model.reference,
        "failed" if failure else "proved",
        failure or " ".join(dict.fromkeys(filter(None, found.notes))),
        # An error beyond its bound is left out: it may not be finite, and a record holds finite numbers only.
        {quantity: one.error for quantity, one in largest.items() if one.error <= one.bound},
        {quantity: one.bound for quantity, one in largest.items()},
        key,
        points=(*found.points, *map(str, further.points), *further.swept),
        left_out={**found.left_out, **further.left_out},
        untried=tuple(further.untried),
        nearest=None if failure else max(largest.values(), key=_beyond, default=None),
        power=power,
        training_alone=training_alone,
    )


def _refuse_no_bounds(model: Model) -> None:
    for quantity, admitted in model.tolerance.items():
        if not 0 < admitted < math.inf:
            raise ModelError(
                f"the tolerance of {model.name}'s {quantity} is {admitted}, which is no bound: give a number above 0, "
                f"as in tolerance={{{quantity!r}: 1e-6}}"
            )


@dataclass
class _Findings:
    """The comparisons so far, also where one of them raises; fields as in `Proved`, and `points` is an ordered set."""

    proofs: list[Proof] = field(default_factory=list)
    nearest: list[Nearest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    points: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    further: Further = field(default_factory=Further)


def _compare(model: Model, candidate: str, send: Send, found: _Findings) -> tuple[str, bool]:
    """Compare the networks in every mode; return the differences, and whether training alone may have any.

    If something cannot be compared, and no difference was found before, this raises a ModelError.
    """
    trains = framework_of(candidate) == candidate
    try:
        match(model, candidate)
        for mode in modes(model, trains=trains):
            proof = Proof(model, candidate, mode, trains=trains)
            for quantity in proof.quantities:
                send({"stage": f"{mode}: {quantity}"})
                found.nearest.append(proof.worst(quantity))
            found.proofs.append(proof)
            found.notes.append(proof.note)
            found.points |= dict.fromkeys(proof.points)
            found.left_out |= {f"{point} ({mode})": reason for point, reason in proof.left_out.items()}
            gc.collect()
        failure = differences(found.proofs)
        if model.state:
            send({"stage": "step by step"})
            errors, note = stepping.prove(model, candidate)
            found.nearest += errors
            found.notes.append(note)
        if model.train_step and trains:
            send({"stage": "training steps"})
            steps = own_steps.prove(model, candidate)
            found.nearest += steps.nearest
            found.notes.append(steps.note)
            failure = _joined(failure, steps.failure)
        if not failure:
            found.further = _further(model, candidate, found.left_out, send, trains=trains)
        return failure, bool(failure) and trains
    except NotTheSame as error:
        return _joined(differences(found.proofs), str(error)), trains and len(found.proofs) < len(modes(model))
    except ModelError as error:
        # A difference that was found counts, although something else could not be compared.
        if not (different := differences(found.proofs)):
            raise
        return f"{different}. {error}", False


def _joined(*failures: str) -> str:
    return ". ".join(filter(None, failures))


def _further(model: Model, candidate: str, left_out: Mapping[str, str], send: Send, *, trains: bool = True) -> Further:
    """Compare the networks at choices that no usual point takes, and in float32; raise NotTheSame if they differ."""
    send({"stage": "choices that no point takes"})
    further = tried(model, candidate, left_out, trains=trains)
    send({"stage": "float32"})
    digits.check(model, candidate, {**left_out, **further.left_out}, further.points, trains=trains)
    return further


def _power(model: Model, candidate: str, send: Send, seconds: float) -> Power | None:
    """The numbers of mistakes planted and of those found, in all modes; None if none can be planted."""
    powers: list[Power] = []
    for mode in modes_apart(model):
        send({"stage": f"{mode}: planted mistakes"})
        powers += filter(None, [Proof(model, candidate, mode).power(seconds)])
        gc.collect()
    return _together(powers) if powers else None


def _together(powers: Sequence[Power]) -> Power:
    """The power over several modes."""
    return Power(
        sum(one.planted for one in powers),
        sum(one.found for one in powers),
        tuple(dict.fromkeys(name for one in powers for name in one.missed)),
        sum(one.possible for one in powers),
        tuple(dict.fromkeys(mode for one in powers for mode in one.modes)),
    )


if __name__ == "__main__":
    pipes = Pipes()
    if job := pipes.receive():
        run(job, pipes.send)
