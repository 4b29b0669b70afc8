"""Results that arrive after a test has passed: a second measurement of a disturbed workload, and rounds of turns."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fwbench.errors import UserError
from fwbench.gates import Gate
from fwbench.machine.disturbances import disturbances, lengthening
from fwbench.models.project import Project
from fwbench.plugin.deciding import Contest, contests, decide
from fwbench.plugin.progress import Progress
from fwbench.plugin.replaying import fill
from fwbench.plugin.session import Session
from fwbench.record.lanes import LANES
from fwbench.record.measurement import WAITING, Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import TURNS, Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns.lanes import Lanes
from fwbench.worker.turns.sides import Side


@dataclass
class MeasuredTest:
    """The measurement of a test that has passed.

    Attributes:
        protocol: how much of it was measured.
        benchmark: pytest-benchmark's fixture, whose statistics are stored when the run ends.
    """

    item: pytest.Item
    protocol: Protocol
    benchmark: Any
    measurement: Measurement

    @property
    def disturbed(self) -> bool:
        """Whether something disturbed it that may have ended, and it was not measured again yet."""
        passing = [each for each in disturbances([self.measurement]) if not each.cause.lasts]
        return bool(passing) and not self.measurement.attempts

    def renew(self, session: Session, measurement: Measurement) -> None:
        """Put this measurement in place of the first one in the journal and in pytest-benchmark.

        Raises:
            pytest.Session.Interrupted: the journal cannot be written.
        """
        session.replace(self.measurement, measurement)
        self.measurement = measurement
        fill(self.benchmark, measurement)
        if session.unkept:
            raise pytest.Session.Interrupted(session.unkept)


def go_on(
    made: Sequence[MeasuredTest],
    session: Session,
    gate: Gate | None,
    project: Project,
    progress: Progress,
    begun: float,
) -> None:
    """Measure disturbed workloads again and let lanes take turns, after every test has its measurement.

    Args:
        begun: when the run began, as a moment of `time.monotonic`.
    """
    if session.caches is None:
        measure_again(made, session, gate, progress, math.inf)
        return
    last, end = turning_time(begun, session.selection.minutes)
    measure_again(made, session, gate, progress, last)
    take_turns(made, session, project, progress, end)


def may_follow(selection: Selection, workloads: Iterable[Workload]) -> bool:
    """Whether lanes take turns after these are measured: the run has minutes, and a workload has several lanes."""
    timed = {workload for workload in workloads if workload.mode != "fit"}
    rivals = len({dataclasses.replace(workload, lane="") for workload in timed}) < len(timed)
    return selection.minutes > 0 and not selection.protocol.programs and rivals


def turning_time(begun: float, minutes: float) -> tuple[float, float]:
    """When lanes begin to take turns at the latest, and when they end, as moments of `time.monotonic`.

    Turns get their share of the minutes however long measuring took: without turns most comparisons stay undecided.

    Args:
        begun: when the run began.
        minutes: of the run.
    """
    end = time.monotonic() + seconds_left(begun, minutes, 0.0)
    return end - TURNS * 60 * minutes, end


def seconds_left(begun: float, minutes: float, measuring: float) -> float:
    """The seconds until lanes end their turns at the latest.

    Args:
        begun, minutes: as `turning_time` has them.
        measuring: seconds until all is measured.
    """
    return max(begun + 60 * minutes - time.monotonic(), measuring + TURNS * 60 * minutes)


def measure_again(
    made: Sequence[MeasuredTest], session: Session, gate: Gate | None, progress: Progress, end: float
) -> None:
    """Measure disturbed workloads a second time after all others, once the machine is quiet.

    Args:
        end: a moment of `time.monotonic` after which nothing more is begun.

    Raises:
        pytest.Session.Interrupted: nothing more can be measured, or the journal cannot be written.
    """
    wanted = [each for each in made if each.disturbed and _is_made_again(each.measurement.workload)]
    if not session.patient or time.monotonic() >= end:
        return
    session.expect_again([(each.measurement.asked, each.protocol) for each in wanted])
    for each in wanted:
        # Each wait uses up patience, and may leave none.
        if not session.patient or time.monotonic() >= end:
            return
        first = each.measurement
        progress.begin_again(first.workload.id)
        progress.stage(WAITING)
        if not session.become_quiet():
            progress.not_again()
            continue
        with _interrupting():
            second = session.measure_again(first.asked, each.protocol, progress.stage)
        progress.end(second)
        each.renew(session, better(first, second))
        if gate:
            gate.judge(each.measurement, each.item.nodeid)


def _is_made_again(workload: Workload) -> bool:
    """Whether it may be measured again: not a fit, which may take hours, nor of a lane that only prices the harness."""
    return workload.mode != "fit" and not LANES[workload.lane].internal


def better(first: Measurement, second: Measurement) -> Measurement:
    """The less disturbed of two measurements, with the other one attached."""
    worse = second.failure or lengthening([second]) > lengthening([first])
    return first.beside(second) if worse else second.beside(first)


def take_turns(
    made: Sequence[MeasuredTest], session: Session, project: Project, progress: Progress, end: float
) -> None:
    """Let lanes take turns until a moment of `time.monotonic`; rounds that were played are stored, however this ends.

    Raises:
        pytest.Session.Interrupted: nothing more can be measured, or the journal cannot be written.
    """
    open_ = contests([each.measurement for each in made], len(session.machine.cpus))
    if not open_:
        return
    try:
        with _interrupting():
            decide(open_, _lanes(open_, session, project).play, lambda: end - time.monotonic(), progress.line)
    finally:
        for contest in open_:
            _keep_turns(contest, made, session)


def _lanes(open_: Sequence[Contest], session: Session, project: Project) -> Lanes:
    asked = session.selection
    assert session.caches
    here = Side("here", "this run", PACKAGE, session.caches.path, project.root, project.path, pythons=asked.pythons)
    names = {contest.workload: contest.lanes for contest in open_}
    return Lanes(here, names, project.models, session.machine, asked.device, asked.protocol.deadline)


def _keep_turns(contest: Contest, made: Sequence[MeasuredTest], session: Session) -> None:
    usual = {"usual": contest.usual} if contest.usual else {}
    for each in made:
        first = each.measurement
        known = {turns["begun"] for turns in first.turns}
        new = [turns for turns in contest.turns.get(first.workload.lane, ()) if turns["begun"] not in known]
        expected = dataclasses.asdict(contest.expected)
        stored = tuple({**turns, "expected": expected, **usual} for turns in (*first.turns, *new))
        # A resumed run may expect another scatter than the part of the run whose rounds it has.
        if dataclasses.replace(first.workload, lane="") == contest.workload and stored != first.turns:
            each.renew(session, dataclasses.replace(first, turns=stored))


@contextlib.contextmanager
def _interrupting() -> Iterator[None]:
    """End the run in order if nothing more can be measured."""
    try:
        yield
    except UserError as error:
        raise pytest.Session.Interrupted(str(error)) from None
