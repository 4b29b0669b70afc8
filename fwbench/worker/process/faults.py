"""Turns exceptions of the measured code into failures, whoever runs it."""

import traceback

from fwbench import frameworks, units
from fwbench.errors import UnavailableError
from fwbench.frameworks.contract import Framework
from fwbench.frameworks.faults import memory_asked
from fwbench.models import ModelError
from fwbench.models.importing import described
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure


class ToldError(Exception):
    """An error whose sentence needs no traceback."""


def load(lane: Lane) -> Framework | Failure:
    """The lane's framework, or the failure to load it here."""
    try:
        return frameworks.load(lane.adapter)
    except ImportError as error:
        return Failure("unavailable", f"{lane.name} cannot be imported ({error}); install it there")
    except BaseException as error:
        sentence = f"the adapter of {lane.name} cannot be loaded: {described(error)}"
        return Failure("error", sentence, detail=traceback.format_exc())


def failure(error: BaseException, framework: Framework, stage: str | None = None) -> Failure:
    """The failure for an exception of the measured code, also for one that the network raises to end the process."""
    if isinstance(error, (ModelError, ToldError)):
        # The user's own mistake, in one sentence.
        return Failure("error", str(error), stage)
    if isinstance(error, UnavailableError):
        return Failure("unavailable", str(error), stage)
    lacking = framework.is_out_of_memory(error)
    said = framework.said(error) if isinstance(error, Exception) else f"the network raised {described(error)}"
    if lacking:
        asked = memory_asked(error)
        wanted = "" if asked is None else f" when {units.size(asked)} were asked for"
        said = f"memory ran out{wanted} ({said})"
    return Failure(
        "out_of_memory" if lacking else "error",
        said,
        stage,
        "".join(traceback.format_exception(error)),
        compiler=framework.is_compilers_fault(error),
    )
