"""The common part of `fwbench bisect` and `fwbench explain`: options, what to measure, last sentence, exit code."""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fwbench import units
from fwbench.commands.collecting import collected, collected_plain, has_framework
from fwbench.commands.measure import stated
from fwbench.compare.criteria import PAIRED
from fwbench.errors import Absent, UserError, hint
from fwbench.ext.causes.sentences import pairs
from fwbench.ext.causes.series import Asked, Subject, of_plain, of_workload
from fwbench.ext.causes.steps import ERROR, Search
from fwbench.machine import machine
from fwbench.meters.energy import counter
from fwbench.models import CATALOG
from fwbench.models.project import complete, unknown_network
from fwbench.record.lanes import LANES
from fwbench.record.workload import FIELDS, Workload
from fwbench.suite.selection import pythons
from fwbench.worker.turns.sides import own

# The exit code of a search that did not come to its end.
ENDED_EARLY = 1

# Two dots at the beginning of a path or behind a slash are part of the path, not of a range.
_RANGE = re.compile(r"(?P<base>(?P<name>[^\s=]+==)?\S*[^\s./])\.\.(?P<head>[^\s./]\S*)")


def ends(first: str, others: Sequence[str]) -> tuple[str, str, list[str]]:
    """BASE and HEAD, given as `BASE..HEAD` or as two words, and the words behind them.

    Releases are given as `NAME==A..B`, or as `NAME==A` and `NAME==B`.

    Raises:
        UserError: there is no HEAD.
    """
    if match := _RANGE.fullmatch(first):
        return match["base"], f"{match['name'] or ''}{match['head']}", [*others]
    if not others:
        raise UserError(f"{first!r} is one side alone: name both, as BASE HEAD or BASE..HEAD.")
    return first, others[0], [*others[1:]]


def declare(parser: argparse.ArgumentParser, behind: str) -> None:
    """Declare the options, and the workload's further fields, which stand behind the arguments `behind`."""
    parser.add_argument("--test", metavar="ID", help="a test with the fixture `benchmark`, as pytest names it; or:")
    parser.add_argument("--model", help="a model that a test names")
    parser.add_argument("--lane", help="its lane, which `fwbench list` names")
    parser.add_argument(
        "fields",
        nargs="*",
        metavar="FIELD=VALUE",
        help=f"more of the workload, behind {behind} or the options: "
        + ", ".join(name for name in FIELDS if name not in ("lane", "model", "target"))
        + "; axes as in axes=length:128,width:64",
    )
    parser.add_argument(
        "--metric", default="latency", help=f"what is compared; default: latency; choose from {', '.join(PAIRED)}"
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="N", help="how long the search may take; default: 10"
    )


def asked(options: argparse.Namespace) -> Asked:
    """The search that the options ask for.

    Raises:
        UserError: there is no such test or workload, it takes no turns, or nothing here can measure it.
    """
    end = time.monotonic() + 60 * options.minutes
    if not options.minutes > 0:
        raise UserError(f"--minutes {options.minutes:g} leaves no time: give a number above 0.")
    if options.metric not in PAIRED:
        raise UserError(f"--metric: unknown metric {options.metric!r}: {hint(options.metric, PAIRED)}.")
    if options.test and not (options.model or options.lane or options.fields):
        _refuse_uncounted(options.metric, "cpu")
        project, test, called = collected_plain(options.test)
        return Asked(test, project, {}, sys.executable, of_plain(called), end, options.metric)
    if options.test or not (options.model and options.lane):
        raise UserError("give either --test, or --model and --lane: one test or one workload is measured.")
    workload = stated([f"model={options.model}", f"lane={options.lane}", *options.fields], 1)
    lane = LANES[workload.lane]
    _refuse_uncounted(options.metric, workload.device)
    if lane.internal or not workload.takes_turns:
        raise UserError(
            f"{workload.id} takes no turns: give a lane of a framework, inference or train_step as its mode, and one "
            "device."
        )
    found = collected(collecting=workload.model not in CATALOG)
    project, others = found.project, pythons(found.pythons)
    known = [name for name, model in project.models.items() if complete(model).networks]
    if workload.model not in known:
        raise UserError(f"unknown model {workload.model!r}: {hint(workload.model, known)}.")
    if why := unknown_network([project.models[workload.model]], workload.lane):
        raise UserError(f"{why}.")
    if lane.framework not in others and not has_framework(lane.framework):
        raise UserError(f"{lane.framework}, which the lane {workload.lane} needs, is not installed here: install it.")
    python = others.get(lane.framework, sys.executable)
    playing = of_workload(workload, project.models, machine().in_turns())
    return Asked(workload, project, others, python, playing, end, options.metric)


def _refuse_uncounted(metric: str, device: str) -> None:
    if metric == "energy" and isinstance(absent := counter(device), Absent):
        raise UserError(f"--metric energy: {absent}.")


def refuse_own(subject: Subject, top: Path) -> None:
    """Refuse a model of fwbench's own if the repository does not hold fwbench, as none of its commits can change it.

    Raises:
        UserError: the subject is such a model.
    """
    if isinstance(subject, Workload) and subject.model in CATALOG and own(top) is None:
        raise UserError(
            f"{subject.model} is one of fwbench's own models, and no commit of {top} can change it, as fwbench is not "
            "part of that repository: name a model that a test names."
        )


def effort(search: Search, seconds: float, wrong: str) -> str:
    """The last sentence: the effort of the search, and the share of such searches that err.

    `wrong` is the noun for what they name then, such as `part`.
    """
    count, played = len(search.compared), sum(compared.pairs for compared in search.compared)
    return (
        f"{count} comparison{'s' * (count > 1)}, {pairs(played)}, {units.duration(seconds)}; at most {ERROR:.0%} of "
        f"such searches name a wrong {wrong}."
    )
