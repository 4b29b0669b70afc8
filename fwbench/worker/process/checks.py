"""Checks after the timed passes: the program's results, and its fingerprint."""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from fwbench.frameworks.contract import Program, Rotating
from fwbench.frameworks.faults import first_line
from fwbench.frameworks.own_steps import Stepping
from fwbench.meters.generation import margins
from fwbench.meters.own_steps import of_own_steps
from fwbench.meters.remembering import fix, probe, vary
from fwbench.meters.sketching import Exact, folded_output, free_signs, of_inference, of_training, read
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


def sketch(
    job: Job, program: Program, measure: Callable[[], None] | None = None, feed: Callable[[], None] = lambda: None
) -> None:
    """Sketch the program's results. A failure here must not lose what has been timed.

    Args:
        measure: makes the step with moved weights, and measures its memory. None: the step is only made.
        feed: loads the batch that every lane begins with, if the program holds another.
    """
    if not checked(job):
        if measure is not None:
            measure()
        return

    def sketching() -> Iterator[dict[str, Any]]:
        feed()
        precision, exact = job.workload.precision, _exact(job)
        if job.workload.mode in FORWARD:
            leads = margins(job.model, program.output()) if job.workload.mode in STATEFUL else []
            forward = of_inference(program, precision, _samples(job), job.first_output, exact)
            yield next(forward)
            yield next(forward) | ({"margins": leads} if leads else {})
        elif isinstance(program, Stepping):
            yield from of_own_steps(program, lambda: starting_weights(job), precision)
        else:
            yield from of_training(program, lambda: starting_weights(job), precision, job.mean, exact)

    def next_part(step: Callable[[], None] = lambda: None) -> dict[str, Any]:
        with job.stage("check"):
            try:
                step()
                return next(parts)
            except NotImplementedError:
                return {"reason": f"the lane {job.lane.name} cannot start its training steps again"}
            except BaseException as error:
                return _failed(error)
            finally:
                free_signs()

    parts = sketching()
    # Empty if the first part has gone well.
    result = next_part()
    if measure is not None:
        try:
            measure()
        except ArithmeticError:
            raise  # the meter's own error
        except BaseException as error:
            result = result or _failed(error)
            job.metrics["host_peak_memory"] = unavailable("VmHWM", result["reason"])
    if not result:
        result = next_part(program.call_and_wait if measure is None else lambda: None)
    if job.workload.mode == "inference" and job.samples and "reason" not in result:
        # If memory runs out in further batches, that is no fault of the program.
        with job.stage("check"), suppress(Exception):
            usual = sorted(job.samples)[len(job.samples) // 2]
            result |= probe(program, job.model, job.workload, usual, job.clock)
    _state_errors(job, result)
    job.parity["check"] = result


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


def computed(program: Program, model: Model, workload: Workload, weights: Callable[[], Weights]) -> dict[str, Any]:
    """The results of a program that took turns, from the weights of its build. This changes its state.

    As in a record's `parity`: `weights`, their digest, and `check`; and the `numbers` in all weights.
    """
    told: dict[str, Any] = {}
    try:
        given = weights()
        told |= {"weights": digest(given), "numbers": sum(array.size for array in given.values())}
        del given
        if isinstance(program, Stepping):
            parts = of_own_steps(program, weights, workload.precision)
        elif workload.mode not in FORWARD:
            parts = of_training(program, weights, workload.precision)
        else:
            if isinstance(program, Rotating) and len(workload.each) == 1:
                fix(program, model, workload)
            parts = of_inference(program, workload.precision)
        if silent := next(parts):
            return {**told, "check": silent}
        program.call_and_wait()
        return {**told, "check": next(parts)}
    except NotImplementedError:
        return {**told, "check": {"reason": f"the lane {workload.lane} cannot start its training steps again"}}
    except Exception as error:
        return {**told, "check": _failed(error)}
    finally:
        free_signs()


def _failed(error: BaseException) -> dict[str, Any]:
    return {"reason": f"reading back what it computes failed: {type(error).__name__}: {first_line(error)}"}


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
