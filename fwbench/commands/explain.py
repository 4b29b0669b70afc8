"""`fwbench explain`: which of the parts in which two sides differ make a workload slower or faster."""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fwbench import git
from fwbench.commands import searching
from fwbench.commands.searching import change
from fwbench.compare.programs import compare
from fwbench.compare.steps import OverError, Search, Stretch, UnmeasurableError
from fwbench.errors import UserError
from fwbench.machine import machine
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import LANES
from fwbench.text import line
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.turns.series import Series
from fwbench.worker.turns.sides import own
from fwbench.worker.turns.suspects import Between, Suspect, both


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Finds the parts that make HEAD slower or faster than BASE: changed lines, other files, environment variables, "
        "installed distributions, the interpreter. It puts parts of HEAD back to what they are in BASE and measures "
        "both by pairs of fresh processes that take turns; at most 5 % of searches name a wrong part. Ends with 0 "
        "where the search came to its end, 1 where it ended early and says what it knows, and 4 where something must "
        "be corrected."
    )
    words = (
        "a revision of git or `.` for the working tree, an interpreter's path, NAME=VALUE for environment variables; "
        "several in quotes, as in 'main XLA_FLAGS=--xla_cpu_enable_fast_math=true'"
    )
    parser.add_argument("base", metavar="BASE", help=words)
    parser.add_argument("head", metavar="HEAD", help="as BASE; what one of them does not name, both have")
    searching.add(parser, "HEAD")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    asked = searching.asked(options)
    workload, project = asked.workload, asked.project
    told = git.text(project.root, "rev-parse", "--show-toplevel")
    top = Path(told) if told else None
    stated = both(options.base, options.head, top)
    top = top or project.root.resolve()
    if stated[0].revision != stated[1].revision:
        searching.refuse_own(workload, top, own(top))
    here, begun = machine().in_turns(), time.monotonic()
    with Scratch(top if stated[0].revision else None) as made:
        python = asked.python(LANES[workload.lane].framework)
        between = Between(stated, top, project, python, made.path)
        ends = Series(between.ends, between.title, workload, project.models, here, asked.end)
        _describe(ends)
        head, base = ends.described[0], ends.described[1]
        untold = between.find([head.get("sources", {}), base.get("sources", {})])
        print("\n".join(_suspects(workload.id, between.suspects, untold)), flush=True)
        if not between.suspects:
            raise UserError("nothing that this workload uses differs between them: name other sides.")
        series = Series(between.side, between.title, workload, project.models, here, asked.end)
        search = Search(len(between.suspects) + 1, series.play, lambda compared: print(_progress(compared), flush=True))
        search.run()
        print("\n".join(_answer(between, search, series, workload.device, time.monotonic() - begun)))
    if not search.compared:
        raise UserError(f"{options.base} and {options.head} could not be compared: the reasons are above.")
    return searching.code(search)


def _describe(ends: Series) -> None:
    """Play a pair of both ends, whose processes tell what they have loaded.

    Raises:
        UserError: one of them cannot be measured.
    """
    try:
        ends.play(0, 1)
    except UnmeasurableError as error:
        side = "BASE" if error.revision else "HEAD"
        raise UserError(f"{side} cannot be measured ({line(ends.reasons[error.revision])}): name another.") from None
    except OverError as error:
        raise UserError(f"{error}.") from None


def _suspects(workload: str, suspects: Sequence[Suspect], untold: Sequence[str]) -> list[str]:
    count = len(suspects)
    lines = [f"{workload}: {count} part{'s' * (count != 1)} that may make a difference"]
    lines += [f"  {number}. {suspect.title}" for number, suspect in enumerate(suspects, start=1)]
    return [*lines, *(f"  cannot be put back by itself: {each}" for each in untold)]


def _progress(compared: Stretch) -> str:
    parts = _numbers(range(compared.first + 1, compared.last + 1))
    before = f" after {_numbers(range(1, compared.first + 1))}" if compared.first else ""
    return f"  {parts} as in base{before}: {change(compared)}, {compared.pairs} pairs"


def _numbers(numbers: range) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _answer(between: Between, search: Search, series: Series, device: str, seconds: float) -> list[str]:
    """The answer in sentences, the most important first."""
    skipped = [
        f"Not measurable with parts 1 to {number} as in base: {line(series.reasons[number])}"
        for number in sorted(search.unmeasurable)
    ]
    if not search.compared:
        return [*skipped, *filter(None, [search.ended])]
    whole = _turned(search.compared[0])
    lines = [f"HEAD's latency differs from BASE's by {change(whole)}."]
    for step in sorted(search.steps, key=lambda step: -abs(step.change)):
        parts = " and ".join(each.title for each in between.suspects[step.first : step.last])
        lines.append(f"{change(_turned(step))} of it is gone with {parts} as in BASE{_why(series, step, device)}.")
    if not search.steps:
        lines.append("No part is confirmed to make a difference.")
    for rest in search.unexplained:
        parts = _numbers(range(rest.first + 1, rest.last + 1))
        lines.append(f"{change(_turned(rest))} is left that no part of {parts} is confirmed to make.")
    if search.ended:
        lines.append(f"The search ended early, as {search.ended}.")
    return [*lines, *skipped, searching.effort(search, seconds, "part")]


def _turned(stretch: Stretch) -> Stretch:
    """The change from base to head, where the search has that from head to base."""
    return Stretch(stretch.first, stretch.last, -stretch.change, -stretch.high, -stretch.low, stretch.pairs)


def _why(series: Series, step: Stretch, device: str) -> str:
    """What the part does to the program."""
    programs = [
        Fingerprint.from_json(described["program"])
        for number in (step.last, step.first)
        if (described := series.described[number]).get("program")
    ]
    if len(programs) < 2:
        return ""
    base, head = programs
    remarks: Iterable[str] = (remark.sentence for remark in compare(base, head, device) if remark.kind != "untold")
    return f"; what it does to the program: {'; '.join(remarks)}"
