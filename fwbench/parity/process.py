"""Run by `start`, with a job: proves one framework's network against its model's reference in this fresh process.

The job is a line of JSON on standard input: `model`, `candidate`, and `path`, the folders of the user's modules. With
`device`, a proof of one of the suite's own models is a full one, and float32 runs there.

On what was standard output it tells, line by line, {"stage"} of what comes next, and {"proved"} or, where there can be
no proof, {"unavailable"} with a sentence, or {"missing"} with a module that this interpreter lacks. All that the user's
code prints goes to standard error.
"""

import functools
import gc
import importlib
import json
import math
import operator
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from fwbench.models import Model, ModelError
from fwbench.models.importing import described
from fwbench.parity.case import Device, side
from fwbench.parity.errors import NotTheSame, bound
from fwbench.parity.power import Power
from fwbench.parity.proof import Proof, modes, modes_apart
from fwbench.parity.store import MUTATIONS, Full, Key, Nearest, Proved, made_with

Send = Callable[[Mapping[str, Any]], None]

# Mistakes are planted for half as long as the proof took, or for half of so many seconds if that is longer.
_PLANTING = 40.0


def run(job: Mapping[str, Any], send: Send) -> None:
    """Prove, and send what comes of it."""
    sys.path[:0] = job["path"]
    model, candidate = Model.from_json(job["model"]), job["candidate"]
    if missing := _missing((model.reference, candidate)):
        send({"missing": missing})
        return
    try:
        proved = _of_suite(model, candidate, job["device"], send) if "device" in job else _of(model, candidate, send)
        send({"proved": asdict(proved)})
    except ModelError as error:
        send({"unavailable": str(error)})
    except Exception as error:
        send({"unavailable": f"{model.name} cannot be proved: {described(error)}"})


def _missing(frameworks: Iterable[str]) -> str | None:
    """A module that a proof of these frameworks needs and that this interpreter lacks."""
    for framework in frameworks:
        try:
            side(framework)
        except ModelError as error:
            if isinstance(error.__cause__, ModuleNotFoundError):
                return error.__cause__.name
    return None


def _of(model: Model, candidate: str, send: Send, *, full: bool = False) -> Proved:
    # Stamped before the proof: an edit meanwhile has not been proved.
    key = Key.of(model, candidate)
    errors: dict[str, float] = {}
    bounds: dict[str, float] = {}
    notes: list[str] = []
    points: dict[str, None] = {}
    left_out: dict[str, str] = {}
    nearest: list[Nearest] = []
    powers: list[Power] = []
    begun = time.monotonic()
    state, sentence = "proved", ""
    try:
        for mode in modes(model):
            proof = Proof(model, candidate, mode)
            for quantity in proof.quantities:
                send({"stage": f"{mode}: {quantity}"})
                bounds[quantity] = bound(model, quantity)
                # The larger error of the two modes.
                errors[quantity] = max(proof.prove(quantity), errors.get(quantity, 0.0))
            notes.append(proof.note)
            points |= dict.fromkeys(proof.points)
            left_out |= {f"{point} ({mode})": reason for point, reason in proof.left_out.items()}
            nearest.append(proof.nearest)
            gc.collect()
        sentence = " ".join(dict.fromkeys(filter(None, notes)))
        # The number of mistakes in a full proof must not depend on the machine's speed.
        spent = max(time.monotonic() - begun, _PLANTING) / 2 if not full else math.inf
        seconds = spent / len(modes_apart(model))
        for mode in modes_apart(model):
            send({"stage": f"{mode}: planted mistakes"})
            powers += filter(None, [Proof(model, candidate, mode).power(seconds)])
            gc.collect()
    except NotTheSame as error:
        state, sentence = "failed", str(error)
    closest = max(nearest, key=lambda tensor: tensor.ratio, default=None)
    return Proved(
        model.name,
        candidate,
        model.reference,
        state,
        sentence,
        errors,
        bounds,
        key,
        points=tuple(points),
        left_out=left_out,
        nearest=closest,
        power=functools.reduce(operator.add, powers) if powers else None,
    )


def _of_suite(model: Model, candidate: str, device: Device, send: Send) -> Proved:
    with_what = made_with(candidate)
    proved = _of(model, candidate, send, full=True)
    if proved.state != "proved":
        return proved
    # The suite's own models need these two frameworks; a user's model need not.
    from fwbench.parity.float32 import SuiteProof

    mutations = importlib.import_module(MUTATIONS[candidate])
    rows, errors = [], {}
    for mode in modes_apart(model):
        send({"stage": f"{mode}: float32"})
        rows.append(SuiteProof(model, mode, device, candidate).row().to_json())
        gc.collect()
    for mutation in mutations.MUTATIONS:
        if mutation.model == model.name:
            send({"stage": f"mutations: {mutation.name}"})
            errors[mutation.name] = mutations.find(mutation)
    return replace(proved, full=Full(with_what, rows, errors))


if __name__ == "__main__":
    # The user's code may print, and so may a library in C.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def _tell(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=lines, flush=True)

    run(json.loads(sys.stdin.readline()), _tell)
