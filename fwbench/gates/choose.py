"""Which gate the options ask for."""

import pytest

from fwbench.gates.contract import Gate
from fwbench.gates.duet import DuetGate
from fwbench.gates.programs import ProgramsOnly
from fwbench.gates.saved import SavedGate
from fwbench.machine import Machine
from fwbench.selection import Selection

_GATES = {"--fwbench-against": DuetGate, "--fwbench-gate": SavedGate, "--fwbench-programs-only": ProgramsOnly}


def choose(config: pytest.Config, selection: Selection, machine: Machine) -> Gate | None:
    """The gate, if any.

    Raises:
        pytest.UsageError: what it is asked to compare with cannot be used, or options contradict each other.
    """
    asked = [option for option in _GATES if config.getoption(option[2:].replace("-", "_"))]
    if len(asked) > 1:
        raise pytest.UsageError(f"{' and '.join(asked)} are different gates: leave one of them out.")
    summary = config.getoption("fwbench_summary")
    if not asked:
        if summary:
            raise pytest.UsageError("--fwbench-summary is about a gate: add --fwbench-against or --fwbench-gate.")
        return None
    if summary and not summary.absolute().parent.is_dir():
        raise pytest.UsageError(f"--fwbench-summary {summary}: there is no folder {summary.parent}; make it first.")
    for option in ("disable", "skip"):
        if config.getoption(f"benchmark_{option}"):
            raise pytest.UsageError(f"--benchmark-{option} measures nothing that {asked[0]} could gate: leave it out.")
    if config.getoption("dist", "no") != "no":
        raise pytest.UsageError(f"{asked[0]} cannot work with -n/--dist: benchmarks do not run in parallel.")
    return _GATES[asked[0]](config, selection, machine)
