"""`fwbench bisect`: the commits with which a workload has become slower or faster."""

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fwbench.commands.measure import stated
from fwbench.commands.prove import collected, is_installed
from fwbench.compare.duet import Fault
from fwbench.compare.steps import ERROR, OverError, Search, Stretch, UnmeasurableError
from fwbench.errors import UserError, hint
from fwbench.git import text as git
from fwbench.machine import Machine, machine
from fwbench.models import CATALOG, Model
from fwbench.models.project import Project, complete
from fwbench.record.lanes import LANES
from fwbench.record.workload import FIELDS, Workload
from fwbench.report import units
from fwbench.suite.profiles import PROFILES
from fwbench.suite.selection import pythons
from fwbench.text import line
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import Side, own, revisions

_ENDED_EARLY = 1


@dataclass(frozen=True)
class Commit:
    """A commit of the range.

    Attributes:
        revision: its hash in full.
        subject: the first line of its message.
    """

    revision: str
    subject: str

    def __str__(self) -> str:
        return line(f"{self.revision[:12]} ({self.subject})")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Searches the commits of a range for those with which a workload has become slower or faster. Two commits are "
        "compared by pairs of fresh processes that take turns; at most 5 % of searches name a wrong commit. Ends with "
        "0 where the search came to its end, 1 where it ended early and says what it knows, and 4 where something must "
        "be corrected."
    )
    parser.add_argument(
        "range",
        metavar="BASE..HEAD",
        help="commits of git, such as main~60..main: the line of first parents from HEAD back to BASE, both included",
    )
    parser.add_argument("--model", required=True, help="a model that a test names")
    parser.add_argument("--lane", required=True, help="a lane, which `fwbench list` names")
    parser.add_argument(
        "fields",
        nargs="*",
        metavar="FIELD=VALUE",
        help="more of the workload, directly behind the range: "
        + ", ".join(name for name in FIELDS if name not in ("lane", "model", "target")),
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="N", help="how long the search may take; default: 10"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    workload = _workload([f"model={options.model}", f"lane={options.lane}", *options.fields])
    if not options.minutes > 0:
        raise UserError(f"--minutes {options.minutes:g} leaves no time: give a number above 0.")
    project, _, settings = collected(collecting=workload.model not in CATALOG)
    others = pythons(settings)
    top, commits = _commits(options.range, project.root)
    _check(workload, project, others, top)
    here = machine().in_turns()
    begun = time.monotonic()
    print(f"{workload.id} in {len(commits)} commits, from {commits[0]} to {commits[-1]}", flush=True)
    with revisions(top, project, others) as side:
        duets = Duets(commits, side, workload, project.models, here, begun + 60 * options.minutes)
        search = Search(len(commits), duets.play, lambda compared: print(_progress(commits, compared), flush=True))
        search.run()
    print("\n".join(_answer(commits, search, duets.reasons, time.monotonic() - begun)))
    if not search.compared:
        raise UserError(f"no two commits of {options.range} could be compared: the reasons are above.")
    return _ENDED_EARLY if search.ended else 0


def _workload(texts: Sequence[str]) -> Workload:
    workload = stated(texts, 1)
    if workload.mode == "fit" or LANES[workload.lane].internal or workload.devices > 1:
        raise UserError(
            f"{workload.id} takes no turns: give a lane of a framework, inference or train_step as its mode, and one "
            "device."
        )
    return workload


def _check(workload: Workload, project: Project, others: Mapping[str, str], top: Path) -> None:
    """Refuse a workload that no commit can measure, or that no commit can change.

    Raises:
        UserError: it is that.
    """
    known = [name for name, model in project.models.items() if complete(model).networks]
    if workload.model not in known:
        raise UserError(f"unknown model {workload.model!r}: {hint(workload.model, known)}.")
    if workload.model in CATALOG and own(top) is None:
        raise UserError(
            f"{workload.model} is one of fwbench's own models, and no commit of {top} can change it, as fwbench is not "
            "part of that repository: name a model that a test names."
        )
    framework = LANES[workload.lane].framework
    if framework not in others and not is_installed(framework):
        raise UserError(f"{framework}, which the lane {workload.lane} needs, is not installed here: install it.")


def _commits(asked: str, folder: Path) -> tuple[Path, list[Commit]]:
    """The top of the repository, and the commits of a range, the oldest first.

    Raises:
        UserError: it is no range of at least two commits in a line.
    """
    base, dots, head = asked.partition("..")
    if not (base and dots and head) or head.startswith("."):
        raise UserError(f"{asked!r} is no range of commits: name two, such as main~60..main.")
    top = git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise UserError(f"{folder} is in no git repository, so it has no commits: start in a folder of one.")
    for name in (base, head):
        if git(folder, "rev-parse", "--verify", f"{name}^{{commit}}") is None:
            raise UserError(f"{asked!r}: {top} has no revision {name!r}: name another, or fetch it.")
    listing = ("--no-show-signature", "--first-parent", "--reverse", "-z", "--format=%H %P%n%s")
    later = git(folder, "log", *listing, f"{base}..{head}") or ""
    earliest = git(folder, "log", *listing, "--max-count=1", base) or ""
    commits, parent = [], None
    for entry in filter(None, f"{earliest}\0{later}".split("\0")):
        hashes, _, subject = entry.partition("\n")
        revision, *parents = hashes.split()
        if parent not in (None, *parents[:1]):
            raise UserError(f"{asked!r}: {base} is not on {head}'s line of first parents: name a commit of that line.")
        commits.append(Commit(revision, subject))
        parent = revision
    if len(commits) < 2:
        raise UserError(f"{asked!r} holds no second commit: name the older one first, as in main~60..main.")
    return Path(top), commits


class Duets:
    """Plays pairs of two commits, until the time is over.

    Args:
        side: makes a side from its name and revision.
        models: by name.
        end: by `time.monotonic`.

    Attributes:
        reasons: why commits cannot be measured, by their numbers.
    """

    def __init__(
        self,
        commits: Sequence[Commit],
        side: Callable[[str, str], Side],
        workload: Workload,
        models: Mapping[str, Model],
        here: Machine,
        end: float,
    ) -> None:
        self.reasons: dict[int, str] = {}
        self._commits = commits
        self._side = side
        self._workload = workload
        self._models = models
        self._machine = here
        self._end = end
        self._measured: set[int] = set()
        # The current two commits, what plays their pairs, and the last pair's seconds.
        self._between = (-1, -1)
        self._pairs: Pairs
        self._seconds = 0.0

    def play(self, first: int, last: int) -> float:
        """Play a fresh pair.

        Returns:
            The logarithm of the last one's latency over the first one's.

        Raises:
            UnmeasurableError: one of them cannot be measured.
            OverError: the time is over, or one cannot be measured any more.
        """
        if time.monotonic() + self._seconds > self._end:
            raise OverError("the time was over: give more --minutes, or a smaller range")
        if self._between != (first, last):
            sides = self._side("base", self._commits[first].revision), self._side("head", self._commits[last].revision)
            device = self._workload.device
            deadline = PROFILES["ci"].on(device).deadline
            self._pairs = Pairs(*sides, self._models, self._machine, device, deadline)
            self._between = (first, last)
        played = self._pairs.play([self._workload])[self._workload]
        if isinstance(played, Fault):
            number, reason = first if played.side == "base" else last, played.failure.message
            if number in self._measured:
                raise OverError(f"{self._commits[number]} could be measured before, and now cannot: {line(reason)}")
            self.reasons[number] = reason
            raise UnmeasurableError(number)
        self._measured |= {first, last}
        self._seconds = played.seconds
        return played.differences["latency"]


def _progress(commits: Sequence[Commit], compared: Stretch) -> str:
    first, last = (commits[number].revision[:12] for number in (compared.first, compared.last))
    count = compared.last - compared.first
    between = "neighbours" if count == 1 else f"{count} commits"
    return f"  {first}..{last}, {between}: {_change(compared)}, {compared.pairs} pairs"


def _answer(commits: Sequence[Commit], search: Search, reasons: Mapping[int, str], seconds: float) -> list[str]:
    """The answer in sentences."""
    lines = [f"{commits[number]} is stepped over: {line(reasons[number])}" for number in sorted(search.unmeasurable)]
    if not search.compared:
        return [*lines, *filter(None, [search.ended])]
    lines += [_step(commits, step) for step in sorted(search.steps, key=lambda step: step.first)]
    if not search.steps:
        lines.append("No commit is confirmed to have made it slower or faster.")
    lines += [
        f"From {commits[rest.first]} to {commits[rest.last]} a change of {_change(rest)} is left that no single "
        "commit is confirmed to have made."
        for rest in search.unexplained
    ]
    if search.ended:
        lines.append(f"The search ended early, as {search.ended}.")
        lines += [
            f"Not searched to the end: {commits[stretch.first]} to {commits[stretch.last]}, {_what(stretch)}."
            for stretch in search.unsearched
        ]
    elif (unseen := math.ceil((len(commits) - 1 - len(search.unmeasurable)) / 2**search.halvings)) > 1:
        lines.append(f"Changes that cancel each other out within {unseen} commits are not looked for.")
    count, pairs = len(search.compared), sum(compared.pairs for compared in search.compared)
    lines.append(
        f"{count} comparison{'s' * (count > 1)}, {pairs} pairs, {units.duration(seconds)}; at most {ERROR:.0%} of such "
        "searches name a wrong commit."
    )
    return lines


def _step(commits: Sequence[Commit], step: Stretch) -> str:
    slower = "slower" if step.change > 0 else "faster"
    before = commits[step.first]
    skipped = step.last - step.first > 1
    where = f"between {before} and {commits[step.last]}" if skipped else f"with {commits[step.last]}"
    return f"It became {slower} {where}: {_change(step)} of latency, confirmed by {step.pairs} pairs."


def _change(stretch: Stretch) -> str:
    """+8.1 % (+7.6 % to +8.6 %)."""
    change, low, high = (f"{math.expm1(value):+.1%}" for value in (stretch.change, stretch.low, stretch.high))
    return f"{change} ({low} to {high})" if stretch.pairs else change


def _what(stretch: Stretch) -> str:
    return f"whose ends differ by {_change(stretch)}" if stretch.differs else "for changes that cancel each other out"
