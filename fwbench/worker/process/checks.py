"""Checks after the timed passes: the program's results, and its fingerprint."""

import functools
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from fwbench.frameworks.contract import Program, Rotating
from fwbench.frameworks.faults import first_line
from fwbench.frameworks.own_steps import Stepping
from fwbench.meters.generation import margins
from fwbench.meters.own_steps import of_own_steps
from fwbench.meters.remembering import fix, probe, vary
from fwbench.meters.sketching import Exact, Folded, folded_output, free_signs, of_inference, of_training, read
from fwbench.models import Model, ModelError
from fwbench.models.inputs import too_large
from fwbench.models.weights import Weights, digest
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Failure, Metric, unavailable
from fwbench.record.metrics import ERRORS
from fwbench.record.workload import FORWARD, HARNESS_MODES, STATEFUL, Workload
from fwbench.worker.process.building import starting_weights
from fwbench.worker.process.job import Job


def sound(job: Job, program: Program) -> None:
    """See that the last call's output is finite and covers the whole batch.

    Otherwise its time would mean nothing, and a ModelError says so.
    """
    output, workload = program.output(), job.workload
    made = f" after {job.growth.calls} calls" if job.growth and job.growth.calls else ""
    if not np.isfinite(output).all():
        raise ModelError(
            f"the network of {job.model.name} returns infinities or NaN{made}, so its time would mean nothing"
            f"{too_large(job.model.inputs)}"
        )
    # One of several devices may have only its slice's outputs.
    sizes = {workload.batch_size, workload.batch_size // workload.devices}
    if workload.mode in FORWARD and checked(job) and not sizes & {*output.shape[:1]}:
        raise ModelError(
            f"the lane {workload.lane} returns an output of shape {output.shape}{made} for a batch of "
            f"{workload.batch_size}, so its throughput would be wrong: the first axis must be the batch"
        )


def checked(job: Job) -> bool:
    """True if the program's results are checked; those of workloads that only price the harness are not."""
    return job.workload.mode not in HARNESS_MODES and not job.lane.internal


def _samples(job: Job) -> int | None:
    # A rank has only its slice's outputs. A process with several devices has all outputs.
    return job.workload.batch_size // job.workload.devices if job.workload.devices > 1 else None


def begin(job: Job, program: Program) -> None:
    """Keep the output of the build's batch, and let timed calls take several batches if that costs nothing."""
    if job.workload.mode in FORWARD and checked(job):
        job.first_output = folded_output(program, _samples(job))
        free_signs()
        job.batches = vary(program, job.model, job.workload)


def end(job: Job, program: Program) -> None:
    """See that the program still computes once all is timed (`sound`); a last call takes the build's batch again."""
    if checked(job):
        with job.stage("check"):
            if job.batches > 1:
                fix(program, job.model, job.workload)
            sound(job, program)


def sketch(job: Job, program: Program, feed: Callable[[], None] = lambda: None) -> None:
    """Sketch the program's results. A failure here must not lose what has been timed.

    Args:
        feed: loads the batch that every lane begins with, if the program holds another.
    """
    if not checked(job):
        return
    workload, model = job.workload, job.model
    leads: list[float] = []

    def prepare() -> None:
        feed()
        if workload.mode in STATEFUL:
            leads.extend(margins(model, program.output()))

    with job.stage("check"):
        result = _results(
            program,
            workload,
            prepare,
            lambda: starting_weights(job),
            samples=_samples(job),
            before=job.first_output,
            mean=job.mean,
            exact=_exact(job),
        )
        if "reason" not in result:
            result |= {"margins": leads} if leads else {}
            if workload.mode == "inference" and job.samples:
                # If memory runs out in further batches, that is no fault of the program.
                with suppress(Exception):
                    usual = sorted(job.samples)[len(job.samples) // 2]
                    result |= probe(program, model, workload, usual, job.clock)
    _state_errors(job, result)
    job.parity["check"] = result


def _results(
    program: Program,
    workload: Workload,
    prepare: Callable[[], None],
    weights: Callable[[], Weights],
    *,
    samples: int | None = None,
    before: dict[str, Folded] | None = None,
    mean: Callable[[float], float] = float,
    exact: Exact | None = None,
) -> dict[str, Any]:
    """The sketches of a program's results from the weights of its build, or the `reason` why there are none."""
    try:
        prepare()
        if workload.mode in FORWARD:
            return of_inference(program, workload.precision, samples, before, exact)
        if isinstance(program, Stepping):
            return of_own_steps(program, weights(), workload.precision)
        return of_training(program, weights(), workload.precision, mean, exact)
    except NotImplementedError:
        return {"reason": f"the lane {workload.lane} cannot start its training steps again"}
    except BaseException as error:
        return {"reason": f"reading back what it computes failed: {type(error).__name__}: {first_line(error)}"}
    finally:
        free_signs()


def _exact(job: Job) -> Exact | None:
    file = (job.exact or {}).get("file")
    return functools.partial(read, file) if file else None


def _state_errors(job: Job, result: dict[str, Any]) -> None:
    """Turn the errors in the check's result into metrics, and remove them from the result."""
    found = result.pop("errors", {})
    if job.exact is None:
        return
    source = f"relative L2, against float64 in {job.exact.get('lane', 'no lane')}"
    why = job.exact.get("reason") or result.get("reason")
    if "draws" in result:
        why = "the training step has random layers, which draw other numbers in float64"
    for quantity in ("output",) if job.workload.mode in FORWARD else ("loss", "gradients"):
        reason = why or f"the lane {job.lane.name} tells no {quantity} of the reference's names"
        if quantity in found:
            reason = "it is not finite, or zero in float64"
        error = found.get(quantity, math.nan)
        metric = Metric(error, source) if math.isfinite(error) else unavailable(source, reason)
        job.metrics[ERRORS[quantity]] = metric


def computed(program: Program, model: Model, workload: Workload, weights: Weights) -> dict[str, Any]:
    """The results of a program that took turns, from the weights of its build. This changes its state.

    As in a record's `parity`: `weights`, their digest, and `check`; and the `numbers` in all weights.
    """

    def prepare() -> None:
        if isinstance(program, Rotating) and workload.mode in FORWARD and len(workload.each) == 1:
            fix(program, model, workload)

    numbers = sum(array.size for array in weights.values())
    check = _results(program, workload, prepare, lambda: weights)
    return {"weights": digest(weights), "numbers": numbers, "check": check}


def fingerprint(job: Job, program: Program) -> None:
    """Fingerprint the program after its passes, to disturb none; a failure must not lose what has been timed."""
    with job.stage("program"):
        if job.workload.devices > 1:
            job.settings |= program.settings
            job.program = Fingerprint.untold("programs over several devices are not described")
            return
        description = program.fingerprint() if job.protocol.programs else fingerprinted(program)
        # Some settings are known only now.
        job.settings |= program.settings
        if "warm-up" in job.compilations:
            description = description.counted(job.compilations["warm-up"], job.compilations.get("steady"))
        job.program = description


def fingerprinted(program: Program) -> Fingerprint:
    """The program's fingerprint, or one with the reason why making it failed."""
    try:
        return program.fingerprint()
    except BaseException as error:
        return Fingerprint.untold(f"{type(error).__name__}: {first_line(error)}")


def aim(job: Job, program: Program, target: str) -> Failure | None:
    """Fingerprint the program for a GPU that is not here."""
    with job.stage("compile"):
        description = program.fingerprint_for(target)
    if isinstance(description, str):
        return Failure("unavailable", description)
    job.program = description
    return None
