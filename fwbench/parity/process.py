"""Run by `start`, with a job: proves one framework's network against its model's reference in this fresh process.

The job is a line of JSON on standard input: `model`, `candidate`, and `path`, the folders of the user's modules. With
`device`, a proof of one of the suite's own models is a full one, and float32 runs there.

On what was standard output it tells, line by line, {"stage"} of what comes next, and {"proved"} or, where there can be
no proof, {"unavailable"} with a sentence. All that the user's code prints goes to standard error.
"""

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from fwbench.models import Model, ModelError
from fwbench.models.importing import described
from fwbench.parity.case import Device
from fwbench.parity.proof import NotTheSame, Proof, bound, modes
from fwbench.parity.store import MUTATIONS, Full, Key, Proved, made_with

Send = Callable[[Mapping[str, Any]], None]


def run(job: Mapping[str, Any], send: Send) -> None:
    """Prove, and send what comes of it."""
    sys.path[:0] = job["path"]
    model, candidate = Model.from_json(job["model"]), job["candidate"]
    try:
        proved = _of_suite(model, candidate, job["device"], send) if "device" in job else _of(model, candidate, send)
        send({"proved": asdict(proved)})
    except ModelError as error:
        send({"unavailable": str(error)})
    except Exception as error:
        send({"unavailable": f"{model.name} cannot be proved: {described(error)}"})


def _of(model: Model, candidate: str, send: Send) -> Proved:
    # Before the proof: whatever is edited meanwhile has not been proved.
    key = Key.of(model, candidate)
    errors: dict[str, float] = {}
    bounds: dict[str, float] = {}
    state, sentence = "proved", ""
    try:
        for mode in modes(model):
            proof = Proof(model, candidate, mode)
            for quantity in proof.quantities:
                send({"stage": f"{mode}: {quantity}"})
                bounds[quantity] = bound(model, quantity)
                # Of both modes the larger one.
                errors[quantity] = max(proof.prove(quantity), errors.get(quantity, 0.0))
            sentence = proof.note or sentence
            gc.collect()
    except NotTheSame as error:
        state, sentence = "failed", str(error)
    return Proved(model.name, candidate, model.reference, state, sentence, errors, bounds, key)


def _of_suite(model: Model, candidate: str, device: Device, send: Send) -> Proved:
    with_what = made_with(candidate)
    proved = _of(model, candidate, send)
    if proved.state != "proved":
        return proved
    # The two frameworks of the suite's own models; a user's need have neither.
    from fwbench.parity.float32 import SuiteProof

    mutations = importlib.import_module(MUTATIONS[candidate])
    rows, errors = [], {}
    for mode in modes(model):
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
