"""The end of a run: its exit status, and its tables and findings on the terminal."""

import shlex
from collections.abc import Sequence
from typing import Any

import pytest

from fwbench.compare.cases import cases
from fwbench.compare.parity import differ
from fwbench.gates import Gate
from fwbench.gates.options import DIFFERENT, KINDS
from fwbench.plugin.session import RESUME, Resumed, Session, shortest, unkept
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.report import summary

_WELL = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def finish(run: pytest.Session, session: Session | None, gate: Gate, unwritten: list[str]) -> None:
    """Set the run's exit status, end its workers, and write the gate's summary, which states that status.

    Args:
        session: None: nothing was measured.
        unwritten: a sentence for each file that the run could not write; further ones are added.
    """
    measurements = session.measurements if session else []

    def own_up() -> None:
        """Turn a good exit status into a usage error if a file was not written or nothing could be measured."""
        if (unwritten or unmeasured(measurements)) and run.exitstatus in _WELL:
            run.exitstatus = pytest.ExitCode.USAGE_ERROR

    run.exitstatus = gate.status(int(run.exitstatus))
    strict = [kind for kind in KINDS if kind in run.config.getoption("fwbench_fail")]
    outcome = gate.outcome()
    told = outcome is not None and any(finding.kind in strict for finding in outcome.findings)
    lanes = DIFFERENT in strict and differ(cases(measurements))
    if run.exitstatus == pytest.ExitCode.OK and (told or lanes):
        run.exitstatus = pytest.ExitCode.TESTS_FAILED
    try:
        if session:
            session.close()
    except OSError as error:
        unwritten.append(unkept(error))
    own_up()
    try:
        gate.write(int(run.exitstatus))
    except OSError as error:
        unwritten.append(f"{error.filename} cannot be written ({error.strerror})")
        own_up()


def write(
    terminal: Any,
    session: Session | None,
    gate: Gate,
    resumed: Resumed | None,
    unwritten: Sequence[str],
    ended: bool,
) -> None:
    """Write the table, the gate's findings, and an error for each file not written or if nothing was measured.

    Args:
        ended: whether the run was ended before it was done.
    """
    measurements = session.measurements if session else []
    journal = session.journal.path if session else None
    if session and measurements and not gate.shows_numbers:
        _write_summary(terminal, session)
    for line in resumed.lines if resumed and measurements else ():
        terminal.write_line(f"resumed: {line}")
    for loss in session.journal.losses if session else ():
        terminal.write_line(f"note: {loss}")
    if gate.title:
        terminal.section(gate.title)
        for line in gate.lines(journal):
            terminal.write_line(line)
    if ended and journal:
        terminal.write_line(f"the run was ended: the same command with {RESUME} goes on from here")
    again = ""
    if journal and gate.kind != "duet":
        again = f"; {RESUME}={journal} then saves what it holds without measuring it again"
    for sentence in filter(None, (*(f"{sentence}{again}" for sentence in unwritten), unmeasured(measurements))):
        terminal.write_line(f"ERROR: {sentence}", red=True)


def unmeasured(measurements: Sequence[Measurement]) -> str:
    """The reason why no framework could be measured; empty if one was measured or none was asked for."""
    failures = [m.failure for m in measurements if not LANES[m.workload.lane].internal]
    first = next((failure for failure in failures if failure), None)
    return f"nothing could be measured: {first.message}" if first and all(failures) else ""


def _write_summary(terminal: Any, session: Session) -> None:
    measurements = session.measurements
    terminal.section(f"fwbench: {session.selection.protocol.profile} profile on {session.machine.title}")
    answered = summary.answered(measurements)
    # A run that compares no lanes, or a study, is made for its numbers, so they are shown.
    numbers = terminal.verbosity > 0 or not answered or session.selection.study is not None
    tables = (
        answered,
        summary.priced(measurements),
        summary.table(measurements) if numbers else [],
        *summary.of_extensions(measurements, session.selection.study, numbers),
    )
    for line in (line for table in tables if table for line in (*table, "")):
        terminal.write_line(line)
    for note in summary.notes(measurements):
        terminal.write_line(f"note: {note}")
    if session.journal.path:
        path = shortest(session.journal.path)
        more = "all of it:" if numbers else "each lane's latency, throughput and memory: -v, or"
        terminal.write_line(f"journal: {path}; {more} fwbench report {shlex.quote(path)}")
