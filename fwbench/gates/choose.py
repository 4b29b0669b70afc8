"""Chooses the gate that the options ask for."""

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

# Module and class of each gate, imported only if asked for: statistics load SciPy, which would delay every other run.
_GATES = {
    "--fwbench-against": ("duet", "DuetGate"),
    "--fwbench-gate": ("saved", "SavedGate"),
    "--fwbench-programs-only": ("programs", "ProgramsOnly"),
}

# The values of the options that may have one.
_VALUES = {"--fwbench-gate": (ALLOW_MISMATCH,), "--fwbench-programs-only": targets.NAMES}

# Options that mean nothing to a run without one of these gates.
_ABOUT = {"--fwbench-fail": ("--fwbench-against", "--fwbench-gate"), "--fwbench-summary": tuple(_GATES)}


def choose(config: pytest.Config, selection: Selection, machine: Machine, project: Project) -> Gate:
    """The gate that the options ask for; one that judges nothing if they ask for none.

    Raises:
        pytest.UsageError: the side to compare with cannot be used, or options contradict each other.
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
        return Gate(config)
    summary = config.getoption("fwbench_summary")
    if summary:
        try:
            # An error shows now, not after hours of measuring.
            files.append(summary, "")
            if summary.is_file():
                # A run that is killed leaves this summary.
                unended = Outcome("what was asked for", "this run", (), notes=["the run has not come to its end"])
                outcome_file.write(summary, unended, pytest.ExitCode.INTERRUPTED)
        except OSError as error:
            raise pytest.UsageError(f"--fwbench-summary {summary} cannot be written ({error.strerror}).") from None
    refuse_idle(config, asked[0], "gate")
    module, name = _GATES[asked[0]]
    gate: Gate = getattr(importlib.import_module(f"fwbench.gates.{module}"), name)(config, selection, machine, project)
    return gate


def _given(config: pytest.Config, option: str) -> bool:
    """True if the option was given, even by an empty variable: a gate that somebody asked for must not be skipped."""
    return config.getoption(option) not in (None, False, [], [DIFFERENT])
