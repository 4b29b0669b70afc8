"""Which gate the options ask for."""

import importlib

import pytest

from fwbench.compare.findings import Outcome
from fwbench.errors import hint
from fwbench.gates.contract import Gate
from fwbench.gates.options import ALLOW_MISMATCH, DIFFERENT, refuse_idle
from fwbench.machine import Machine, targets
from fwbench.models.project import Project
from fwbench.record import files
from fwbench.report import outcome_file
from fwbench.suite.selection import Selection

# Module and class; imported when asked for, as statistics load SciPy, which every other run of pytest would wait for.
_GATES = {
    "--fwbench-against": ("duet", "DuetGate"),
    "--fwbench-gate": ("saved", "SavedGate"),
    "--fwbench-programs-only": ("programs", "ProgramsOnly"),
}

# The values of those that may have one.
_VALUES = {"--fwbench-gate": (ALLOW_MISMATCH,), "--fwbench-programs-only": targets.NAMES}

# What means nothing to a run without one of these.
_ABOUT = {"--fwbench-fail": ("--fwbench-against", "--fwbench-gate"), "--fwbench-summary": tuple(_GATES)}


def choose(config: pytest.Config, selection: Selection, machine: Machine, project: Project) -> Gate | None:
    """The gate, if any.

    Raises:
        pytest.UsageError: what it is asked to compare with cannot be used, or options contradict each other.
    """
    asked = [option for option in _GATES if _given(config, option)]
    if len(asked) > 1:
        raise pytest.UsageError(f"{' and '.join(asked)} are different gates: leave one of them out.")
    for option, values in _VALUES.items():
        value = config.getoption(option)
        if isinstance(value, str) and value not in values:
            raise pytest.UsageError(f"{option} has no value {value!r}: {hint(value, values)}.")
    for option, gates in _ABOUT.items():
        if _given(config, option) and not set(asked) & set(gates):
            either = f"{', '.join(gates[:-1])} or {gates[-1]}"
            raise pytest.UsageError(f"{option} is about a gate: add {either}, or leave it out.")
    if not asked:
        return None
    summary = config.getoption("fwbench_summary")
    if summary:
        try:
            # Now, not after hours of measuring.
            files.append(summary, "")
            if summary.is_file():
                # What a run leaves that is killed.
                unended = Outcome("what was asked for", "this run", (), notes=["the run has not come to its end"])
                outcome_file.write(summary, unended, pytest.ExitCode.INTERRUPTED)
        except OSError as error:
            raise pytest.UsageError(f"--fwbench-summary {summary} cannot be written ({error.strerror}).") from None
    refuse_idle(config, asked[0], "gate")
    module, name = _GATES[asked[0]]
    gate: Gate = getattr(importlib.import_module(f"fwbench.gates.{module}"), name)(config, selection, machine, project)
    return gate


def _given(config: pytest.Config, option: str) -> bool:
    """Whether somebody asked for it, be it by a variable that is empty: no gate must pass because none was chosen."""
    return config.getoption(option) not in (None, False, [], [DIFFERENT])
