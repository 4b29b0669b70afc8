"""After the timed passes: what the program computed, and which program it was."""

from collections.abc import Callable, Iterator
from typing import Any

from fwbench.frameworks.contract import Program
from fwbench.frameworks.faults import first_line
from fwbench.meters.sketching import free_signs, of_inference, of_training
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Failure, unavailable
from fwbench.record.workload import HARNESS_MODES
from fwbench.worker.process.building import starting_weights
from fwbench.worker.process.job import Job


def sketch(
    job: Job, program: Program, measure: Callable[[], None] | None = None, feed: Callable[[], None] = lambda: None
) -> None:
    """Sketch what the program computes. A failure here must not lose what has been timed.

    Args:
        measure: makes the step with moved weights, and measures its memory. None: the step is only made.
        feed: loads the batch that every lane begins with, if the program holds another.
    """
    if job.workload.mode in HARNESS_MODES or job.lane.internal:
        if measure is not None:
            measure()
        return

    def sketching() -> Iterator[dict[str, Any]]:
        feed()
        precision, devices = job.workload.precision, job.workload.devices
        if job.workload.mode == "inference":
            # A rank has only its slice's outputs. A process with several devices has all outputs.
            samples = job.workload.batch_size // devices if devices > 1 else None
            yield from of_inference(program, precision, samples)
        else:
            yield from of_training(program, lambda: starting_weights(job), precision, job.mean)

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
    job.parity["check"] = result


def _failed(error: BaseException) -> dict[str, Any]:
    return {"reason": f"reading back what it computes failed: {type(error).__name__}: {first_line(error)}"}


def fingerprint(job: Job, program: Program) -> None:
    """Fingerprint the program after its passes, to disturb none; a failure must not lose what has been timed."""
    with job.stage("program"):
        if job.workload.devices > 1:
            job.settings |= program.settings
            job.program = Fingerprint.untold("programs over several devices are not described")
            return
        try:
            description = program.fingerprint()
        except BaseException as error:
            if job.protocol.programs:
                raise
            description = Fingerprint.untold(f"{type(error).__name__}: {first_line(error)}")
        # Some settings are known only now.
        job.settings |= program.settings
        if "warm-up" in job.compilations:
            description = description.counted(job.compilations["warm-up"], job.compilations.get("steady"))
        job.program = description


def aim(job: Job, program: Program, target: str) -> Failure | None:
    """Fingerprint the program for a GPU that is not here."""
    with job.stage("compile"):
        description = program.fingerprint_for(target)
    if isinstance(description, str):
        return Failure("unavailable", description)
    job.program = description
    return None
