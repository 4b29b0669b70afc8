"""What a run writes at the end of the terminal's output."""

import shlex
from collections.abc import Sequence
from typing import Any

from fwbench.gates import Gate
from fwbench.plugin.resuming import OPTION, Resumed, shortest
from fwbench.plugin.session import Session
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.report import summary


def write(
    terminal: Any,
    session: Session | None,
    gate: Gate | None,
    resumed: Resumed | None,
    unwritten: Sequence[str],
    ended: bool,
) -> None:
    """Write the table, the gate's findings, and what could not be written or measured.

    Args:
        session: None: nothing was measured.
        gate: the gate that has judged the run; None: no gate has judged it.
        unwritten: for each file that the run could not write, a sentence that says so.
        ended: whether the run was ended before it was done.
    """
    measurements = session.measurements if session else []
    journal = session.journal.path if session else None
    if session and measurements and not (gate and gate.shows_numbers):
        _write_summary(terminal, session)
    for line in resumed.lines() if resumed and measurements else ():
        terminal.write_line(f"resumed: {line}")
    for loss in session.journal.losses if session else ():
        terminal.write_line(f"note: {loss}")
    if gate:
        terminal.section(gate.title)
        for line in gate.lines(journal):
            terminal.write_line(line)
    if ended and journal:
        terminal.write_line(f"the run was ended: the same command with {OPTION} goes on from here")
    again = ""
    if journal and not (gate and gate.kind == "duet"):
        again = f"; {OPTION}={journal} then saves what it holds without measuring it again"
    for sentence in filter(None, (*(f"{sentence}{again}" for sentence in unwritten), unmeasured(measurements))):
        terminal.write_line(f"ERROR: {sentence}", red=True)


def unmeasured(measurements: Sequence[Measurement]) -> str:
    """Why no framework could be measured; empty if one was measured or none was asked for."""
    failures = [m.failure for m in measurements if not LANES[m.workload.lane].internal]
    first = next((failure for failure in failures if failure), None)
    return f"nothing could be measured: {first.message}" if first and all(failures) else ""


def _write_summary(terminal: Any, session: Session) -> None:
    here, measurements = session.machine, session.measurements
    where = here.accelerator if here.device == "gpu" else f"{here.cpu}, {here.threads} threads"
    terminal.section(f"fwbench: {session.selection.protocol.profile} profile on {where}")
    answered = summary.answered(measurements)
    # Where no lanes are compared, and in a study, the numbers are what was asked for.
    numbers = terminal.verbosity > 0 or not answered or session.selection.study is not None
    tables = (
        answered,
        summary.table(measurements) if numbers else [],
        summary.epochs(measurements, session.selection.study),
        summary.devices(measurements) if numbers else [],
    )
    for line in (line for table in tables if table for line in (*table, "")):
        terminal.write_line(line)
    for note in summary.notes(measurements):
        terminal.write_line(f"note: {note}")
    if session.journal.path:
        path = shortest(session.journal.path)
        more = "all of it:" if numbers else "each lane's latency, throughput and memory: -v, or"
        terminal.write_line(f"journal: {path}; {more} fwbench report {shlex.quote(path)}")
