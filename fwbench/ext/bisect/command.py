"""`fwbench bisect`: the commits or releases with which a workload or a plain test has become slower or faster."""

import argparse
import math
import re
import time
from collections.abc import Mapping

from fwbench.errors import UserError
from fwbench.ext.bisect.ranges import Commits, Range, resolve
from fwbench.ext.causes import searching
from fwbench.ext.causes.sentences import change, pairs
from fwbench.ext.causes.series import Series
from fwbench.ext.causes.steps import Search, Stretch
from fwbench.text import columns, line

# Characters of the longest bar of the series, and of a reason.
_BAR, _REASON = 40, 200

_FIELD = re.compile(r"\w+=(?!=)")


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Searches commits, or a distribution's releases, for those with which a workload or a test has become slower "
        "or faster. Each comparison plays pairs of fresh processes that take turns; at most 5 % of searches name a "
        "wrong commit or release. Exit code: 0 if the search came to its end, 1 if it ended early and says what it "
        "knows, 4 if you must correct something."
    )
    parser.add_argument(
        "range",
        metavar="BASE..HEAD",
        help="commits of git, such as main~60..main: the line of first parents from HEAD back to BASE, both included; "
        "or releases, such as jax==0.10.0..0.12.0, which uv installs in environments of their own. BASE HEAD is "
        "the same in two words",
    )
    searching.declare(parser, "the range")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    # A word FIELD=VALUE is a field of the workload, and never HEAD.
    ends = 0 if options.fields and _FIELD.match(options.fields[0]) else 1
    base, head, rest = searching.ends(options.range, options.fields[:ends])
    options.fields = [*rest, *options.fields[ends:]]
    asked = searching.asked(options)
    project = asked.project
    states = resolve(base, head, project.root, asked.python)
    if isinstance(states, Commits):
        searching.refuse_own(asked.subject, states.top)
    begun = time.monotonic()
    count = len(states.titles)
    print(f"{asked.subject.id} in {count} {states.noun}s, from {states.titles[0]} to {states.titles[-1]}", flush=True)
    with states.sides(project, asked.others) as side, asked.playing as players:
        series = Series(side, states.titles.__getitem__, asked, players)
        search = Search(count, series.play, lambda one: print(_progress(states, one), flush=True), **series.rule)
        search.run()
    different = [_different(states, between, says) for between, says in series.differing().items()]
    print("\n".join([*different, *_answer(states, search, asked.metric, time.monotonic() - begun)]))
    if not search.compared:
        raise UserError(f"no two {states.noun}s from {base} to {head} could be compared: the reasons are above.")
    return searching.ENDED_EARLY if search.ended else 0


def _progress(states: Range, compared: Stretch) -> str:
    first, last = (states.names[number] for number in (compared.first, compared.last))
    count = compared.last - compared.first
    between = "neighbours" if count == 1 else f"{count} {states.noun}s"
    return f"  {first}..{last}, {between}: {change(compared)}, {pairs(compared.pairs)}"


def _answer(states: Range, search: Search, metric: str, seconds: float) -> list[str]:
    titles, noun = states.titles, states.noun
    lines = _skipped(states, search.unmeasurable)
    if not search.compared:
        return [*lines, *filter(None, [search.ended])]
    lines += [_step(states, step, metric) for step in sorted(search.steps, key=lambda step: step.first)]
    if not search.steps:
        lines.append(f"No {noun} is confirmed to have made it {' or '.join(_words(metric))}.")
    lines += [
        f"From {titles[rest.first]} to {titles[rest.last]} the {metric} changed by a further {change(rest)}, but no "
        f"single {noun} is confirmed as its cause."
        for rest in search.unexplained
    ]
    if search.ended:
        lines.append(f"The search ended early, as {search.ended}.")
        for rest in search.unsearched:
            equal = "are equal, but changes in it may cancel each other out"
            ends = f"differ by {change(rest)}" if rest.differs else equal
            lines.append(f"Not searched to the end: {titles[rest.first]} to {titles[rest.last]}. Its ends {ends}.")
    elif (unseen := math.ceil((len(titles) - 1 - len(search.unmeasurable)) / 2**search.halvings)) > 1:
        lines.append(f"Changes that cancel each other out within {unseen} {noun}s are not looked for.")
    return [*lines, *_series(states, search, metric), searching.effort(search, seconds, noun)]


def _skipped(states: Range, reasons: Mapping[int, str]) -> list[str]:
    """A sentence for each reason why states could not be measured; reasons that differ in versions alone are one."""
    alike: dict[str, list[int]] = {}
    for number, why in sorted(reasons.items()):
        alike.setdefault(re.sub(r"[0-9a-f]{7,}|[\d.]+", "", line(why)), []).append(number)
    return [
        f"{states.titles[first]} was skipped, as it could not be measured: {line(reasons[first], _REASON)}"
        + (f"; and for the same reason {', '.join(states.names[each] for each in more)}" if more else "")
        for first, *more in alike.values()
    ]


def _series(states: Range, search: Search, metric: str) -> list[str]:
    """The metric of each measured state against the first one's, drawn as bars."""
    levels = {search.compared[0].first: 0.0}
    for compared in search.compared:
        # Each stretch begins at the first or last state of an earlier comparison.
        levels.setdefault(compared.last, levels[compared.first] + compared.change)
    shares = {number: math.exp(level) for number, level in sorted(levels.items())}
    longest = max(shares.values())
    rows = [
        (f"  {states.names[number]}", f"{share:.3f}", "#" * round(_BAR * share / longest))
        for number, share in shares.items()
    ]
    return [f"{metric.capitalize()}, that of {states.names[min(shares)]} being 1:", *columns(rows)]


def _words(metric: str) -> tuple[str, str]:
    """The words for a workload whose metric rose, and for one whose metric fell."""
    return ("slower", "faster") if metric == "latency" else ("worse", "better")


def _step(states: Range, step: Stretch, metric: str) -> str:
    became = _words(metric)[step.change <= 0]
    before = states.titles[step.first]
    skipped = step.last - step.first > 1
    where = f"between {before} and {states.titles[step.last]}" if skipped else f"with {states.titles[step.last]}"
    return (
        f"It became {became} {where}: {change(step)} of {metric}, confirmed by {pairs(step.pairs)}.{states.about(step)}"
    )


def _different(states: Range, between: tuple[int, int], says: str) -> str:
    """A sentence on two measured states between which the workload begins to compute something else."""
    before, after = (states.titles[number] for number in between)
    where = f"With {after}" if between[1] - between[0] == 1 else f"Between {before} and {after}"
    return f"{where} it begins to compute something else: {says}."
