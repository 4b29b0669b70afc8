"""Reads the options of gates and the markers of tests; one that cannot be used is a pytest.UsageError, one sentence."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, Literal

import pytest
from pytest_benchmark.storage.file import FileStorage
from pytest_benchmark.utils import get_machine_id

from fwbench.compare import criteria
from fwbench.compare.criteria import CRITERIA, Threshold, parse
from fwbench.compare.findings import Outcome
from fwbench.errors import UserError, hint
from fwbench.extensions import needed, resolve
from fwbench.gates.contract import Gate
from fwbench.machine import Machine, targets
from fwbench.models.project import Project
from fwbench.record import files
from fwbench.record.reading import read
from fwbench.record.storage import Record
from fwbench.report import outcome_file
from fwbench.suite.selection import Selection

FAIL = "--fwbench-fail"
NOT_PARALLEL = "cannot work with -n/--dist: benchmarks do not run in parallel; leave out -n."
ALLOW_MISMATCH = "allow-mismatch"
# Values of `FAIL` that are kinds of findings and not thresholds; the first one needs no gate.
DIFFERENT, INCONCLUSIVE = KINDS = ("different", "inconclusive")
MARKER = "fwbench_fail"

# The class of each gate, imported only if asked for: statistics load SciPy, which would delay every other run. The last
# one is an extension's.
_GATES = {
    "--fwbench-against": "fwbench.gates.duet:DuetGate",
    "--fwbench-gate": "fwbench.gates.saved:SavedGate",
    "--fwbench-programs-only": "",
}

# The values of the options that may have one.
_VALUES = {"--fwbench-gate": (ALLOW_MISMATCH,), "--fwbench-programs-only": targets.NAMES}

# Options that mean nothing to a run without one of these gates.
_ABOUT = {"--fwbench-fail": ("--fwbench-against", "--fwbench-gate"), "--fwbench-summary": tuple(_GATES)}

# Options of pytest-benchmark that need rounds.
_ROUNDS = tuple(f"--benchmark-{name}" for name in ("json", "save", "autosave", "compare-fail", "histogram"))

# An option, those that cannot be given with it, and why.
_APART: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("--fwbench-against", ("--fwbench-gate", "--fwbench-programs-only"), "they are different gates"),
    ("--fwbench-gate", ("--fwbench-programs-only",), "they are different gates"),
    ("--fwbench-programs-only", _ROUNDS, "it times nothing"),
    ("--fwbench-minutes", ("--fwbench-programs-only", "--fwbench-workers"), "with that no lanes take turns"),
    ("--fwbench-devices", ("--fwbench-against", "--fwbench-programs-only"), "that looks at one device alone"),
    ("--fwbench-workers", ("--fwbench-against",), "in a duet two processes take turns on one machine"),
    ("--fwbench-workers", ("--fwbench-devices",), "each benchmark has one accelerator of the pool"),
)
# Options that a run must measure for, one benchmark after another.
_MEASURING = (*_GATES, "--fwbench-workers", "--fwbench-resume")


def refuse(config: pytest.Config) -> None:
    """Refuse options that cannot work together, or in a run that measures nothing or measures in parallel.

    The summary that a gate was to write gets the reason.
    """
    try:
        _refuse(config)
    except pytest.UsageError as error:
        summary = config.getoption("fwbench_summary")
        if summary and any(_given(config, option) for option in _GATES):
            with contextlib.suppress(OSError):
                files.append(summary, "")
                _write_unended(summary, str(error), pytest.ExitCode.USAGE_ERROR)
        raise


def _refuse(config: pytest.Config) -> None:
    for option, _, value in (str(word).partition("=") for word in config.invocation_params.args):
        # A path to tests is none of these options' values (`fwbench.plugin.options`).
        if value and option in ("--fwbench-resume", *_VALUES) and config.getoption(option) is True:
            raise pytest.UsageError(f"{option}={value} names tests: name something else, or leave out the =.")
    for one, others, why in _APART:
        for other in others if _given(config, one) else ():
            if _given(config, other):
                raise pytest.UsageError(f"{one} cannot work with {other}: {why}. Leave one of them out.")
    asked = [option for option in _MEASURING if _given(config, option)]
    # A project's settings may switch benchmarks off, which pytest-benchmark's other option overrides.
    for name, other in (("disable", "enable"), ("skip", "only")):
        if asked and config.getoption(f"--benchmark-{name}") and not config.getoption(f"--benchmark-{other}"):
            raise pytest.UsageError(f"--benchmark-{name} measures nothing for {asked[0]}: leave one of them out.")
    if config.getoption("dist", "no") != "no" and (asked or needs_rounds(config)):
        # pytest-benchmark switches itself off under xdist, saves and compares nothing, and exits with 0.
        raise pytest.UsageError(f"{[*asked, needs_rounds(config)][0]} {NOT_PARALLEL}")


def choose(config: pytest.Config, selection: Selection, machine: Machine, project: Project) -> Gate:
    """The gate that the options ask for; one that judges nothing if they ask for none."""
    asked = [option for option in _GATES if _given(config, option)]
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
            # A run that is killed leaves this summary.
            _write_unended(summary, "the run has not come to its end", pytest.ExitCode.INTERRUPTED)
        except OSError as error:
            raise pytest.UsageError(f"--fwbench-summary {summary} cannot be written ({error.strerror}).") from None
    try:
        path = _GATES[asked[0]]
        make = resolve(path) if path else needed("programs", asked[0])
        gate: Gate = make(config, selection, machine, project)
    except (pytest.UsageError, UserError) as error:
        if summary:
            _write_unended(summary, str(error), pytest.ExitCode.USAGE_ERROR)
        raise
    return gate


def _write_unended(summary: Path, why: str, status: int) -> None:
    """Write the summary of a run that has compared nothing, if it goes to a file."""
    if summary.is_file():
        outcome_file.write(summary, Outcome("what was asked for", "this run", (), notes=[why]), status)


def _given(config: pytest.Config, option: str) -> bool:
    """True if the option was given, even by an empty variable: a gate that somebody asked for must not be skipped."""
    value = config.getoption(option, None)
    if option == "--fwbench-devices" and value and {number.strip() for number in value.split(",")} == {"1"}:
        return False
    return value not in (None, False, [], [DIFFERENT])


def needs_rounds(config: pytest.Config) -> str:
    """The first given option of pytest-benchmark that needs rounds or a record; empty if there is none."""
    return next((option for option in (*_ROUNDS, "--benchmark-compare") if config.getoption(option, None)), "")


def baseline(config: pytest.Config) -> Record | None:
    """The record that --benchmark-compare names, reduced to fwbench's benchmarks; None if nobody has named one."""
    path = _named(config)
    if path is None:
        return None
    if path.is_dir():
        raise pytest.UsageError(f"--benchmark-compare={path} is a folder: name one record in it.")
    try:
        record = read(path)
    except UserError as error:
        raise pytest.UsageError(f"--benchmark-compare: {error}.") from None
    if path.suffix == ".jsonl" or record.damaged:
        # pytest-benchmark cannot read a journal, and would stumble over a damaged benchmark.
        config.option.benchmark_compare = None
    if record.plain and not record.measurements and not record.damaged:
        raise pytest.UsageError(
            f"--benchmark-compare={path} holds no benchmark of fwbench's, and others are not for its gates: "
            "--benchmark-compare-fail judges them, or `fwbench compare` two files."
        )
    # pytest-benchmark itself compares the benchmarks that fwbench did not measure.
    return dataclasses.replace(record, plain={}, damaged=tuple(each for each in record.damaged if not each.plain))


def _named(config: pytest.Config) -> Path | None:
    """The path that --benchmark-compare names, or whose number in pytest-benchmark's storage it names; or None."""
    given: Any = config.getoption("benchmark_compare")
    if given == []:  # pytest-benchmark's value if nobody has given the option
        return None
    if given in (True, ""):
        raise pytest.UsageError(
            "--benchmark-compare names no baseline, and the newest run may be the one that regressed: add a path, or a "
            "number in the storage as in --benchmark-compare=0001."
        )
    if Path(given).exists():
        return Path(given)
    folder = storage(config)
    records: list[Path] = []
    # A path of several folders is no name in the storage.
    if folder and len(Path(given).parts) <= 2:
        # pytest-benchmark has no type annotations.
        open_storage: Any = FileStorage
        machine: Any = get_machine_id
        records = open_storage(str(folder), logger=None, default_machine_id=machine()).query(given)
    if not records:
        where = config.getoption("benchmark_storage").removeprefix("file://")
        raise pytest.UsageError(f"--benchmark-compare={given} is no file, and no record in {where} is named so.")
    return records[-1]


def storage(config: pytest.Config) -> Path | None:
    """pytest-benchmark's storage; None if it is a database, which holds no files, or is not there yet."""
    path = config.getoption("benchmark_storage").removeprefix("file://")
    return Path(path) if "://" not in path and Path(path).is_dir() else None


def thresholds(config: pytest.Config, kind: Literal["duet", "saved"]) -> dict[str, Threshold]:
    """The thresholds of a gate's kind (`duet` or `saved`) by metric, with those that the options ask for."""
    limits = criteria.thresholds(kind)
    asked = _parsed([text for text in config.getoption("fwbench_fail") if text not in KINDS], FAIL)
    for name in asked:
        if not _judged(name, kind):
            other = "--fwbench-gate" if kind == "duet" else "--fwbench-against"
            raise pytest.UsageError(f"{name} in {FAIL} is not measured by this gate: {other} does.")
    return limits | asked


def of_test(item: pytest.Item, kind: str) -> dict[str, Threshold]:
    """The thresholds from a test's own markers, of which the closest wins; they may name metrics of either gate."""
    where = f"the marker {MARKER} of {item.nodeid}"
    markers = list(item.iter_markers(MARKER))
    for marker in markers:
        if marker.kwargs or not marker.args or not all(isinstance(text, str) for text in marker.args):
            raise pytest.UsageError(f'{where} takes its thresholds as text: {MARKER}("latency:5%").')
    asked = _parsed([text for marker in reversed(markers) for text in marker.args], where)
    return {name: limit for name, limit in asked.items() if _judged(name, kind)}


def _judged(metric: str, kind: str) -> bool:
    """True if a kind of gate judges this metric when asked to."""
    criterion = CRITERIA[metric]
    return (criterion.paired if kind == "duet" else criterion.saved) is not None


def _parsed(texts: list[str], where: str) -> dict[str, Threshold]:
    try:
        return parse(texts, where)
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
