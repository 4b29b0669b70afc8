"""After the passes: what the program computed, and which program it was."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from fwbench.frameworks.contract import Program
from fwbench.frameworks.faults import first_line
from fwbench.meters.sketching import of_inference, of_training
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Failure
from fwbench.record.workload import HARNESS_MODES
from fwbench.worker.process.building import starting_weights
from fwbench.worker.process.job import Job


@contextlib.contextmanager
def sketched(job: Job, program: Program, feed: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Sketch what the program computes, around one step more that the caller makes in this context.

    A failure here must not lose what has been timed.

    Args:
        feed: gives the program the batch with which every lane begins, if it does not hold that already.
    """
    if job.workload.mode in HARNESS_MODES or job.lane.internal:
        yield
        return

    def sketching() -> Iterator[dict[str, Any]]:
        feed()
        precision = job.workload.precision
        if job.workload.mode == "inference":
            yield from of_inference(program, precision)
        else:
            yield from of_training(program, lambda: starting_weights(job), precision, job.mean)

    def next_part() -> dict[str, Any]:
        with job.stage("check"):
            try:
                return next(parts)
            except NotImplementedError:
                return {"reason": f"the lane {job.lane.name} cannot start its training steps again"}
            except Exception as error:
                what = f"{type(error).__name__}: {first_line(error)}"
                return {"reason": f"reading back what it computes failed: {what}"}

    parts = sketching()
    job.parity["check"] = next_part()
    yield
    if not job.parity["check"]:
        job.parity["check"] = next_part()


def fingerprint(job: Job, program: Program) -> None:
    """Fingerprint the program after its passes, to disturb none; a failure must not lose what has been timed."""
    with job.stage("program"):
        if job.workload.devices > 1:
            job.settings |= program.settings
            job.program = Fingerprint.untold("programs over several devices are not described")
            return
        try:
            description = program.fingerprint()
        except Exception as error:
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
