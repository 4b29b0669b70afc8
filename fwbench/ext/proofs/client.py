"""The parent's side of a proof, made in a fresh process: this one must import no framework and no user's module."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fwbench.errors import UserError
from fwbench.machine import machine
from fwbench.models import Model, store
from fwbench.models.project import Project
from fwbench.models.store import Proved
from fwbench.record.lanes import LANES, framework_of
from fwbench.record.measurement import Failure
from fwbench.record.storage import PROOFS
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.conversation import Conversation
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.starting import PACKAGE, command, environment

_PROCESS = PACKAGE / "ext" / "proofs" / "process.py"

# Seconds after which a proof is given up, as a network may loop for ever. ResNet-50's takes five minutes on two cores.
DEADLINE = 3600.0


def prove(
    model: Model,
    candidate: str,
    project: Project,
    tell: Callable[[str], None] = lambda stage: None,
    deadline: float = DEADLINE,
    *,
    pythons: Mapping[str, str] | None = None,
) -> Proved:
    """Prove a candidate against the model's reference, and keep the proof among the project's records.

    The candidate is a framework, or a lane whose own program is proved.

    The proof is in the state `proved` or `failed`. Frameworks that do not run under this interpreter have theirs in
    `pythons`, and `tell` is called with the name of each comparison as it begins.

    Raises:
        UserError: there can be no proof (a network cannot be built, or the process died), or the proof cannot be
            written. The sentence says why.
    """
    kept, framework = folder(model, candidate, project), framework_of(candidate)
    job = {
        "model": model.to_json(),
        "candidate": candidate,
        "path": [str(path) for path in project.path],
        # The number of mistakes planted for a proof that ships must not depend on the machine's speed.
        "patient": kept == store.SHIPPED,
    }
    variables = dict(os.environ)
    for lane in LANES.values():
        if lane.framework in (model.reference, framework):
            variables = environment(variables, machine().threads, "cpu", lane)
    python = interpreter(model, candidate, pythons or {})
    no_proof = f"{model.name}: no proof of {candidate}"
    with Scratch() as scratch, ExitStack() as stack:
        channel = Channel(command(python, _PROCESS), {**variables, "TMPDIR": str(scratch.path)})
        # The process reads no pipe while it proves, so it is killed at once; that loses nothing.
        stack.callback(channel.close, patience=0.0)
        channel.send(job)
        answer = _answer(channel, deadline, tell, no_proof)
    if "missing" in answer:
        raise UserError(
            f"{no_proof}: it needs {model.reference} and {framework} in one process, and {python} has no "
            f"{answer['missing']}: install that there, or name an interpreter that has both by --fwbench-python "
            f"{framework}=PATH (--python of fwbench prove)"
        )
    if "unavailable" in answer:
        raise UserError(f"{no_proof}: {answer['unavailable']}")
    proved = Proved.from_json(answer["proved"])
    try:
        store.write(proved, kept)
    except OSError as error:
        raise UserError(
            f"{proved.model}: {proved.candidate} is {proved.state}, but {error.filename} cannot be written "
            f"({error.strerror}): make room there, and prove it again"
        ) from None
    return proved


def _answer(channel: Channel, deadline: float, tell: Callable[[str], None], no_proof: str) -> dict[str, Any]:
    """The last answer of the process that proves.

    Raises:
        UserError: the process died, sent something else than messages, or was not done after `deadline` seconds; the
            sentence begins with `no_proof`.
    """
    conversation = Conversation(channel, "its process", tell)
    answer = conversation.receive(conversation.asked + deadline, deadline)
    if not isinstance(answer, Failure):
        return answer
    said = answer.detail.strip().rpartition("\n")[2]
    hint = f" ({said})" if said else ""
    if answer.kind == "timed_out":
        hint = ": proof_axes= of the model makes proofs smaller"
    raise UserError(f"{no_proof}: {answer.message}{hint}")


def interpreter(model: Model, candidate: str, pythons: Mapping[str, str]) -> str:
    """The interpreter that proves: the candidate's, as its versions are proved; else the reference's; else this one."""
    return pythons.get(framework_of(candidate)) or pythons.get(model.reference) or sys.executable


def folder(model: Model, candidate: str, project: Project) -> Path:
    """The folder of a model's proofs: among the project's records; for the suite's models, in fwbench's checkout."""
    ships = store.of_suite(model, candidate) and project.root == PACKAGE.parent
    return store.SHIPPED if ships else project.root / PROOFS
