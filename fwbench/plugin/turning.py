"""The turns of lanes after all measurements: the time that they have, and the rounds that they play in it."""

import dataclasses
import time
from collections.abc import Iterable

import pytest

from fwbench.errors import UserError
from fwbench.models.project import Project
from fwbench.plugin.deciding import contests, decide
from fwbench.plugin.progress import Progress
from fwbench.plugin.session import Session
from fwbench.record.workload import Workload
from fwbench.suite.profiles import TURNS
from fwbench.suite.selection import Selection
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns.lanes import Lanes
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side


def may_follow(selection: Selection, workloads: Iterable[Workload]) -> bool:
    """True if lanes take turns after these are measured: the run has minutes, and a workload has several lanes."""
    timed = {workload for workload in workloads if workload.mode != "fit"}
    rivals = len({dataclasses.replace(workload, lane="") for workload in timed}) < len(timed)
    return selection.minutes > 0 and not selection.protocol.programs and rivals


def seconds_left(begun: float, minutes: float, measuring: float = 0.0) -> float:
    """The seconds until lanes end their turns at the latest.

    Turns get their share of the minutes however long measuring took: without turns most comparisons stay undecided.

    Args:
        begun: when the run began, as a moment of `time.monotonic`.
        measuring: seconds until all is measured.
    """
    return max(begun + 60 * minutes - time.monotonic(), measuring + TURNS * 60 * minutes)


def take_turns(session: Session, project: Project, progress: Progress, begun: float) -> None:
    """Let lanes take turns until the run's minutes are over; each round is kept as soon as it is played.

    Args:
        begun: when the run began, as a moment of `time.monotonic`.

    Raises:
        pytest.Session.Interrupted: nothing more can be measured, or the journal cannot be written.
    """
    asked = session.selection
    made = [m for m in session.measurements if not m.failure]
    open_ = contests(made, len(session.machine.cpus)) if session.caches else []
    if not open_:
        return
    assert session.caches
    here = Side("here", "this run", PACKAGE, session.caches.path, project.root, project.path, pythons=asked.pythons)
    names = {contest.workload: contest.lanes for contest in open_}
    servers = Servers(swapped=False)
    lanes = Lanes(here, names, project.models, session.machine, asked.device, asked.protocol.deadline, servers)
    end = time.monotonic() + seconds_left(begun, asked.minutes)
    try:
        with servers:
            decide(open_, lanes.play, lambda: end - time.monotonic(), session.keep, progress.line)
    except UserError as error:
        raise pytest.Session.Interrupted(str(error)) from None
