"""`fwbench bisect`: the commits with which a workload has become slower or faster."""

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fwbench.commands import searching
from fwbench.compare.steps import Search, Stretch
from fwbench.errors import UserError
from fwbench.git import text as git
from fwbench.machine import machine
from fwbench.report.causes import change
from fwbench.text import line
from fwbench.worker.turns.series import Series
from fwbench.worker.turns.sides import own, revisions


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
    searching.declare(parser, "the range")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    asked = searching.asked(options)
    workload, project = asked.workload, asked.project
    top, commits = _commits(options.range, project.root)
    searching.refuse_own(workload, top, own(top))
    begun = time.monotonic()
    print(f"{workload.id} in {len(commits)} commits, from {commits[0]} to {commits[-1]}", flush=True)
    with revisions(top, project, asked.others) as side:
        series = Series(
            lambda name, number: side(name, commits[number].revision),
            lambda number: str(commits[number]),
            workload,
            project.models,
            machine().in_turns(),
            asked.end,
        )
        search = Search(len(commits), series.play, lambda compared: print(_progress(commits, compared), flush=True))
        search.run()
    print("\n".join(_answer(commits, search, series.reasons, time.monotonic() - begun)))
    if not search.compared:
        raise UserError(f"no two commits of {options.range} could be compared: the reasons are above.")
    return searching.code(search)


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


def _progress(commits: Sequence[Commit], compared: Stretch) -> str:
    first, last = (commits[number].revision[:12] for number in (compared.first, compared.last))
    count = compared.last - compared.first
    between = "neighbours" if count == 1 else f"{count} commits"
    return f"  {first}..{last}, {between}: {change(compared)}, {compared.pairs} pairs"


def _answer(commits: Sequence[Commit], search: Search, reasons: Mapping[int, str], seconds: float) -> list[str]:
    """The answer in sentences."""
    lines = [f"{commits[number]} is stepped over: {line(reasons[number])}" for number in sorted(search.unmeasurable)]
    if not search.compared:
        return [*lines, *filter(None, [search.ended])]
    lines += [_step(commits, step) for step in sorted(search.steps, key=lambda step: step.first)]
    if not search.steps:
        lines.append("No commit is confirmed to have made it slower or faster.")
    lines += [
        f"From {commits[rest.first]} to {commits[rest.last]} a change of {change(rest)} is left that no single "
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
    lines.append(searching.effort(search, seconds, "commit"))
    return lines


def _step(commits: Sequence[Commit], step: Stretch) -> str:
    slower = "slower" if step.change > 0 else "faster"
    before = commits[step.first]
    skipped = step.last - step.first > 1
    where = f"between {before} and {commits[step.last]}" if skipped else f"with {commits[step.last]}"
    return f"It became {slower} {where}: {change(step)} of latency, confirmed by {step.pairs} pairs."


def _what(stretch: Stretch) -> str:
    return f"whose ends differ by {change(stretch)}" if stretch.differs else "for changes that cancel each other out"
