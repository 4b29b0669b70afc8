"""Finds which differences between two sides make a workload or a plain test slower or faster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fwbench.errors import UserError
from fwbench.ext.causes.operators import Profile, of_lines
from fwbench.ext.causes.series import Asked, Series
from fwbench.ext.causes.steps import OverError, Search, Stretch, UnmeasurableError
from fwbench.ext.causes.suspects import Between, Stated
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.spans import Span
from fwbench.text import line
from fwbench.worker.client.scratch import Scratch


@dataclass(frozen=True)
class Explanation:
    """The parts in which two sides differ, and the search over them.

    State 0 is head; state n is head with its first n parts put back to what they are in base. A pair also calls its
    two processes `base` and `head`: the lower state runs as `base`, so in the first pair the user's head does.

    Attributes:
        parts: their titles, in the order in which they were put back.
        search: over the states; its changes are from head towards base.
        programs: the fingerprint of each measured state, by its number.
        recorded: the spans of base, and those of head; a plain test's profiles; or the reason why there are none.
        latency: head's latency in seconds, from the first pair; None: unknown.
        different: by two measured states without one between them, the difference in what they compute.
        metric: the metric that was searched by.
    """

    parts: Sequence[str]
    search: Search
    programs: Mapping[int, Fingerprint] = field(default_factory=dict)
    recorded: tuple[Sequence[Span] | Profile | str, Sequence[Span] | Profile | str] = ("", "")
    latency: float | None = None
    different: Mapping[tuple[int, int], str] = field(default_factory=dict)
    metric: str = "latency"


def explain(
    asked: Asked,
    stated: tuple[Stated, Stated],
    top: Path,
    on_parts: Callable[[Sequence[str], Sequence[str]], None] = lambda *_: None,
    on_comparison: Callable[[Stretch], None] = lambda _: None,
    *,
    profiled: bool = False,
) -> Explanation:
    """Put parts of head back to what they are in base, and search for those that change a metric.

    Args:
        stated: base and head.
        top: the root of the user's repository; without a repository, the project's root folder.
        on_parts: called with the parts' titles, and with the differences that cannot be put back.
        on_comparison: called with each comparison when it is done.
        profiled: whether the answer says where the time goes.

    Raises:
        UserError: a side cannot be measured, or nothing that the workload uses differs.
    """
    with Scratch() as made, asked.playing as players:
        between = Between(stated, top, asked.project, asked.python, made.path)
        ends = Series(between.side, between.title, asked, players, profiled)
        first = _play_first(ends, between.checkouts.left_out if between.checkouts else [])
        not_restorable = between.find([ends.described[number].get("sources", {}) for number in (0, 1)])
        titles = [suspect.title for suspect in between.suspects]
        on_parts(titles, not_restorable)
        if not titles:
            raise UserError(f"BASE and HEAD differ in nothing that {asked.subject.id} uses: name other sides.")
        series = Series(between.side, between.title, asked, players)
        series.described = {0: ends.described[0], len(titles): ends.described[1]}
        search = Search(len(titles) + 1, series.play, on_comparison, [first], **series.rule)
        search.run()
    programs = {
        number: Fingerprint.from_json(described["program"])
        for number, described in series.described.items()
        if described.get("program")
    }
    recorded = (_recorded(ends.described[1]), _recorded(ends.described[0]))
    latency, differing = ends.described[0]["latency"], series.differing()
    return Explanation(titles, search, programs, recorded, latency, differing, asked.metric)


def _recorded(described: Mapping[str, Any]) -> Sequence[Span] | Profile | str:
    if profile := described.get("profile"):
        return of_lines(profile)
    spans = described.get("spans", "nothing was profiled")
    return spans if isinstance(spans, str) else [Span(*each) for each in spans]


def _play_first(ends: Series, left_out: list[str]) -> float:
    """Play the first pair of HEAD and BASE, whose processes report the modules they have loaded; return its difference.

    The untracked files that the sides do not have are `left_out`, which is filled when a side is made. A UserError says
    if one of the sides cannot be measured.
    """
    try:
        return ends.play(0, 1)
    except UnmeasurableError as error:
        # State 0 is HEAD, and state 1 is BASE.
        side = "BASE" if error.state else "HEAD"
        untracked = f", or `git add` what it needs of {line(', '.join(left_out), 80)}" if left_out else ""
        raise UserError(f"{side} cannot be measured ({line(error.reason)}): name another{untracked}.") from None
    except OverError as error:
        raise UserError(f"{error}.") from None
