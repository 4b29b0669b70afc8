"""The turns of lanes: the time that they have, and the rounds that they play in it."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

from fwbench.errors import UserError
from fwbench.models.project import Project
from fwbench.plugin.deciding import Contest, contests, decide
from fwbench.plugin.items import is_later
from fwbench.plugin.plan import Plan
from fwbench.plugin.progress import Progress
from fwbench.plugin.session import Session
from fwbench.record.rounds import PlayedRound
from fwbench.record.workload import Workload
from fwbench.suite.profiles import TURNS
from fwbench.suite.selection import Selection
from fwbench.worker.client.server import Server
from fwbench.worker.client.starting import FORKS, PACKAGE
from fwbench.worker.turns.lanes import Lanes
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side


def may_follow(selection: Selection, workloads: Iterable[Workload]) -> bool:
    """True if lanes take turns after these are measured: the run has minutes, and a workload has several lanes."""
    timed = {workload for workload in workloads if workload.mode != "fit"}
    rivals = len({workload.of_all for workload in timed}) < len(timed)
    return selection.minutes > 0 and not selection.protocol.programs and rivals


def seconds_left(begun: float, minutes: float, measuring: float = 0.0) -> float:
    """The seconds until lanes end their turns at the latest.

    Turns get their share of the minutes however long measuring took: without turns most comparisons stay undecided.

    Args:
        begun: when the run began, as a moment of `time.monotonic`.
        measuring: seconds until all is measured.
    """
    return max(begun + 60 * minutes - time.monotonic(), measuring + TURNS * 60 * minutes)


class Turning:
    """Lets the lanes of each workload take turns, and keeps each round as soon as it is played.

    Once a workload's last lane is measured, the processes that have measured it, if all of them stay, play the first
    round, which costs no start and no compilation. On a GPU, measured workloads play the rounds that they
    lack for an answer as soon as another one's measurement would leave no time for these. After all measurements fresh
    processes play until the run's minutes are over.

    Args:
        begun: when the run began, as a moment of `time.monotonic`.
        asked: the workloads that the run measures, by the test's id.
        plan: the time that measuring still takes.
    """

    def __init__(
        self,
        session: Session,
        project: Project,
        progress: Progress,
        begun: float,
        asked: Mapping[str, Workload],
        plan: Plan | None = None,
    ) -> None:
        self._session, self._progress, self._begun = session, progress, begun
        self._selection = session.selection
        self._plan = plan
        # Seconds of turns so far; workloads whose measurement has begun, and those of which a lane cannot take turns.
        self._spent = 0.0
        self._entered: set[Workload] = set()
        self._failed: set[Workload] = set()
        # By workload, its own lane empty: its tests, the lanes that are not measured yet, and those that take turns.
        self._tests: dict[Workload, list[str]] = defaultdict(list)
        self._left: dict[Workload, set[str]] = defaultdict(set)
        for test, workload in asked.items():
            self._tests[workload.of_all].append(test)
            self._left[workload.of_all].add(workload.lane)
        self._rivals = {workload for workload, lanes in self._left.items() if len(lanes) > 1}
        self._names: dict[Workload, tuple[str, ...]] = {}
        self._busy: set[Workload] = set()
        self._servers = Servers(swapped=False)
        assert session.caches
        pythons = self._selection.pythons
        here = Side("here", "this run", PACKAGE, session.caches.path, project.root, project.path, pythons=pythons)
        asked_for = session.machine, self._selection.device, self._selection.protocol.deadline
        self._lanes = Lanes(here, self._names, project.models, *asked_for, self._servers, self._busy)

    def stays(self, workload: Workload) -> bool:
        """True if a workload's process stays: if other lanes have the same workload, and time for a round.

        On a GPU it stays if this machine has records of all lanes, as these then load their programs.
        """
        rivals = workload.of_all in self._rivals and workload.mode != "fit" and workload.devices == 1
        return rivals and FORKS and self._until_end > 0 and (workload.device == "cpu" or self._is_recorded(workload))

    def _is_recorded(self, workload: Workload) -> bool:
        estimates = map(self._plan.pending.get, self._tests[workload.of_all]) if self._plan else ()
        return self._plan is not None and all(estimate is None or estimate.recorded for estimate in estimates)

    @property
    def _until_end(self) -> float:
        """Seconds until the run's minutes are over."""
        return self._begun + 60 * self._selection.minutes - time.monotonic()

    @property
    def _share(self) -> float:
        """The seconds that turns have at least."""
        return TURNS * 60 * self._selection.minutes

    def before(self, workload: Workload) -> None:
        """On a GPU, play what measured workloads lack for an answer, if measuring this one leaves no time for it.

        They have their share of the minutes at least, and once more before the first workload that `is_later`.

        Raises:
            pytest.Session.Interrupted: nothing more can be measured, or the journal cannot be written.
        """
        of_all = workload.of_all
        if self._selection.device != "gpu" or of_all in self._entered:
            return
        first_of_later = is_later(workload) and not any(map(is_later, self._entered))
        self._entered.add(of_all)
        lacking = [contest for contest in self._contests() if contest.lacks]
        measuring = self._plan.of(self._tests[of_all]) if self._plan else 0.0
        needed = measuring + sum(contest.missing * contest.seconds for contest in lacking)
        if first_of_later or 0 < self._until_end < needed:
            share = self._share if first_of_later else self._share - self._spent
            self._decide(lacking, max(self._until_end, share), further=False)

    def measured(self, workload: Workload) -> None:
        """Note that a test has measured a workload; its lanes take turns if it was the last one of them.

        Raises:
            pytest.Session.Interrupted: the journal cannot be written.
        """
        of_all = workload.of_all
        self._left[of_all].discard(workload.lane)
        staying = {} if self._left[of_all] else self._session.staying(of_all)
        if len(staying) > 1:
            self._progress.aside(", takes turns")
            self._play_first(of_all, staying)
            self._progress.aside("")
        for server in staying.values():
            server.settle()

    def _play_first(self, workload: Workload, staying: Mapping[str, Server]) -> None:
        """Let a workload's lanes take turns in the processes that stay, if all do and there is time."""
        for contest in self._contests(workload):
            if staying.keys() >= {*contest.lanes} and contest.seconds < self._until_end:
                self._note(contest)
                if played := contest.add(self._lanes.play_measured(contest.workload, staying)):
                    self._keep(played)

    def _note(self, contest: Contest) -> None:
        self._names[contest.workload] = contest.lanes
        if contest.busy:
            self._busy.add(contest.workload)

    def _contests(self, workload: Workload | None = None) -> list[Contest]:
        made = [m for m in self._session.measurements if not m.failure]
        own = [m for m in made if workload is None or m.workload.of_all == workload]
        open_ = contests(own, len(self._session.machine.cpus))
        return [contest for contest in open_ if contest.workload not in self._failed]

    def _keep(self, played: PlayedRound) -> None:
        try:
            self._session.keep(played)
        except UserError as error:
            raise pytest.Session.Interrupted(str(error)) from None

    def take(self) -> None:
        """Let fresh processes take turns until the run's minutes are over, and for their share of them at least.

        Raises:
            pytest.Session.Interrupted: nothing more can be measured, or the journal cannot be written.
        """
        if self._spent:
            # The share is spent, but not by workloads that were measured since.
            lacking = [contest for contest in self._contests() if contest.lacks]
            self._decide(lacking, max(self._until_end, self._share), further=False)
        self._decide(self._contests(), max(self._until_end, self._share - self._spent))

    def _decide(self, open_: list[Contest], seconds: float, further: bool = True) -> None:
        """Let fresh processes play rounds for so many seconds; `further` is that of `decide`."""
        if not open_ or seconds <= 0:
            return
        for contest in open_:
            self._note(contest)
        begun = time.monotonic()
        try:
            with self._servers:
                decide(
                    open_,
                    self._lanes.play,
                    lambda: begun + seconds - time.monotonic(),
                    self._keep,
                    self._progress.line,
                    further,
                )
        except UserError as error:
            raise pytest.Session.Interrupted(str(error)) from None
        self._spent += time.monotonic() - begun
        self._failed |= {contest.workload for contest in open_ if contest.fault}
