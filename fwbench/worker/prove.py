"""The parent's side of a proof: a fresh process for each, so that no framework and no user's module comes in here."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fwbench.errors import UserError
from fwbench.machine import machine
from fwbench.models import Model
from fwbench.models.project import Project
from fwbench.parity import store
from fwbench.parity.store import Proved
from fwbench.record.lanes import LANES
from fwbench.record.reading import PROOFS
from fwbench.worker.channel import Channel, GarbledError, describe_exit
from fwbench.worker.client import PACKAGE, command, environment
from fwbench.worker.scratch import Scratch

_PROCESS = PACKAGE / "parity" / "process.py"

# Seconds after which a proof is given up. ResNet-50's takes five minutes on two cores; a network that loops would take
# for ever.
DEADLINE = 3600.0


def prove(
    model: Model,
    candidate: str,
    project: Project,
    tell: Callable[[str], None] = lambda stage: None,
    deadline: float = DEADLINE,
    *,
    full: bool = False,
) -> Proved:
    """Prove a framework's network against the model's reference, and keep the proof.

    Args:
        candidate: another framework of the model than its reference.
        project: whose modules these are, and among whose records the proof is kept.
        tell: told what is compared next.
        full: of one of the suite's own models: its float32 results and mutations too, as of those that ship.

    Returns:
        The proof, in state `proved` or `failed`.

    Raises:
        UserError: there can be no proof: a network cannot be built, or the process died; or it cannot be kept. The
            sentence says why.
    """
    kept = folder(model, candidate, project)
    full = full or kept == store.SHIPPED
    threads, device = machine().threads, machine().device if full else "cpu"
    job = {"model": model.to_json(), "candidate": candidate, "path": [str(path) for path in project.path]}
    if full:
        job["device"] = device
    variables = dict(os.environ)
    for lane in LANES.values():
        if lane.framework in (model.reference, candidate):
            variables = environment(variables, threads, device, lane)
    until = time.monotonic() + deadline
    with Scratch() as scratch, ExitStack() as stack:
        channel = Channel(command(sys.executable, _PROCESS), {**variables, "TMPDIR": str(scratch.path)})
        # It reads no pipe while it proves, and has nothing to lose.
        stack.callback(channel.close, patience=0.0)
        channel.send(job)
        while True:
            try:
                message = channel.receive(until)
            except TimeoutError:
                raise UserError(
                    f"{model.name}: no proof of {candidate} within {deadline:g} s, so its process was ended"
                    f"{channel.stacks().where}: proof_axes= of the model makes proofs smaller"
                ) from None
            except GarbledError as error:
                raise UserError(
                    f"{model.name}: no proof of {candidate}: what its process sent is no message: {error}"
                ) from None
            if message is None:
                said = channel.said().strip().rpartition("\n")[2]
                ending = describe_exit(channel.wait()).replace("the worker", "its process", 1)
                raise UserError(f"{model.name}: no proof of {candidate}: {ending}" + (f" ({said})" if said else ""))
            if "stage" in message:
                tell(message["stage"])
            elif "unavailable" in message:
                raise UserError(f"{model.name}: no proof of {candidate}: {message['unavailable']}")
            elif "proved" in message:
                proved = Proved.from_json(message["proved"])
                break
    try:
        store.write(proved, kept)
    except OSError as error:
        raise UserError(
            f"{model.name}: {candidate} is {proved.state}, but {error.filename} cannot be written ({error.strerror}): "
            "make room there, and prove it again"
        ) from None
    return proved


def folder(model: Model, candidate: str, project: Project) -> Path:
    """Where a model's proofs are kept: among the project's records; in fwbench's own checkout, the suite's own ship."""
    ships = store.of_suite(model, candidate) and project.root == PACKAGE.parent
    return store.SHIPPED if ships else project.root / PROOFS
