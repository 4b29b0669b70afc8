"""A comparison for readers: the terminal's table, and a short summary in Markdown for a pull request."""

import math
from collections.abc import Sequence
from typing import Any

from fwbench import text, units
from fwbench.compare.criteria import CRITERIA
from fwbench.compare.findings import BESIDE, FAILING, ORDER, Finding, Kind, Outcome

_HEADER = ("benchmark", "metric", "base", "head", "change", "interval", "from", "verdict")
# Characters of a name or a note that are shown.
_LONGEST = 500
# Characters of a cell on the terminal.
_WIDEST = 120
# If there are more rows than this, the terminal leaves out the unchanged ones.
_MANY = 60
# Benchmarks named in a note that many share.
_NAMED = 6
# The kinds of findings that readers see under other words.
_SAYS = {
    "incomparable": "not comparable",
    "different": "HEAD computes something else",
    "program": "with a changed program",
}
# The kinds of rows that a pull request's summary counts and does not show.
_ALIKE: tuple[Kind, ...] = ("unchanged", "inconclusive")
# The kinds in the order of a badge, which shows the first one that occurs.
_TOLD_BY_BADGE: tuple[Kind, ...] = (*FAILING, "incomparable", "improved", "unchanged", "inconclusive", "new")


def lines(outcome: Outcome) -> list[str]:
    """Lines for the terminal: changed programs, which are exact; a row a metric, the gravest first; then the notes."""
    findings = [finding for finding in _sorted(outcome) if finding.metric]
    shown = [finding for finding in findings if len(findings) <= _MANY or finding.kind != "unchanged"]
    cells = [_row(finding) for finding in shown]
    left_out = len(findings) - len(shown)
    more = f"{left_out} unchanged rows are not shown: --fwbench-summary=FILE.json holds them" if left_out else ""
    rows = [_HEADER, *([text.line(cell, _WIDEST) for cell in row] for row in cells)]
    return [
        text.line(f"{outcome.head}, against {outcome.base}"),
        *map(text.line, _programs(outcome)),
        *(text.columns(rows) if len(rows) > 1 else ()),
        *map(text.line, _notes(outcome)),
        *filter(None, [more]),
        headline(outcome),
    ]


def headline(outcome: Outcome) -> str:
    """One sentence: the number of benchmarks by kind of finding."""
    counts, compared = outcome.counts, sum(outcome.counts.values())
    if not counts:
        return "nothing was compared"
    number = "1 benchmark" if compared == 1 else f"{compared} benchmarks"
    sentences = [f"{number}: {', '.join(f'{count} {_SAYS.get(kind, kind)}' for kind, count in counts.items())}"]
    beside = {
        says: {finding.benchmark for finding in outcome.findings if finding.kind == kind}
        for kind, says in (("different", "computing something else"), ("program", _SAYS["program"]))
    }
    sentences += [f"{len(names)} {says}" for says, names in beside.items() if names]
    if outcome.seconds is not None:
        sentences.append(f"{outcome.seconds / compared:.1f} s a benchmark")
    return "; ".join(sentences)


def markdown(outcome: Outcome) -> str:
    """Markdown for a pull request: headline, changed programs, a table of differences, notes, what is left out."""
    shown = [finding for finding in _sorted(outcome) if not finding.metric or finding.kind not in _ALIKE]
    findings = [finding for finding in shown if finding.metric]
    table = (
        [_bar(_HEADER), f"|{' --- |' * len(_HEADER)}", *(_bar(_row(finding)) for finding in findings)]
        if findings
        else []
    )
    parts = [
        f"**fwbench: {headline(outcome)}**",
        _list(_programs(outcome)),
        "\n".join(table),
        _list([*_told([finding for finding in shown if finding.kind not in BESIDE]), *_alike(outcome), *outcome.notes]),
        f"{text.markdown(outcome.head, _LONGEST)}, against {text.markdown(outcome.base, _LONGEST)}.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def badge(outcome: Outcome | None) -> dict[str, Any]:
    """A badge for shields.io: the gravest difference, as the JSON that its endpoint badge reads.

    Args:
        outcome: the comparison's; None: nothing was compared.
    """
    counts = outcome.counts if outcome else {}
    kind = next((kind for kind in _TOLD_BY_BADGE if kind in counts), None)
    message = f"{counts[kind]} {_SAYS.get(kind, kind)}" if kind else "nothing compared"
    colour = "red" if kind in FAILING else "brightgreen" if kind in ("improved", "unchanged") else "lightgrey"
    return {"schemaVersion": 1, "label": "benchmarks", "message": message, "color": colour}


def _alike(outcome: Outcome) -> list[str]:
    """A line that counts rows without a difference, and names the inconclusive ones with the largest changes."""
    rows = {kind: [f for f in outcome.findings if f.metric and f.kind == kind] for kind in _ALIKE}
    counted = [f"{len(of)} {kind}" for kind, of in rows.items() if of]
    ratios = [(finding.benchmark, finding.verdict.ratio) for finding in rows["inconclusive"] if finding.verdict]
    farthest = sorted(ratios, key=lambda named: -_apart(named[1]))
    named = f" ({_named([f'{name} {text.change(ratio)}' for name, ratio in farthest])})" if farthest else ""
    return [f"rows without a difference, not shown here: {', '.join(counted)}{named}"] if counted else []


def _apart(ratio: float) -> float:
    """The factor between base and head, whichever is the larger one."""
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf


def _sorted(outcome: Outcome) -> list[Finding]:
    return sorted(outcome.findings, key=lambda finding: ORDER.index(finding.kind))


def _programs(outcome: Outcome) -> list[str]:
    return _told([finding for finding in _sorted(outcome) if finding.kind in BESIDE])


def _notes(outcome: Outcome) -> list[str]:
    return [*_told([finding for finding in _sorted(outcome) if finding.kind not in BESIDE]), *outcome.notes]


def _told(findings: Sequence[Finding]) -> list[str]:
    """A line for each note, with all benchmarks that share it, and the metrics that it is about."""
    names: dict[tuple[str, str], dict[str, list[str]]] = {}
    for finding in findings:
        if finding.note or not finding.metric:
            alike = names.setdefault((_SAYS.get(finding.kind, finding.kind), finding.note), {})
            alike.setdefault(finding.benchmark, []).extend(filter(None, [finding.metric]))
    notes = []
    for (says, note), metrics in names.items():
        named = [f"{name} ({', '.join(of)})" if of else name for name, of in metrics.items()]
        notes.append(f"{_named(named)}: {says}{f': {note}' if note else ''}")
    return notes


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _row(finding: Finding) -> tuple[str, ...]:
    criterion = CRITERIA[finding.metric]
    show = units.SHOW[criterion.unit]
    verdict = finding.verdict
    return (
        finding.benchmark,
        finding.metric,
        "" if finding.base is None else show(finding.base),
        "" if finding.head is None else show(finding.head),
        "" if verdict is None else text.change(verdict.ratio),
        "" if verdict is None else _interval(verdict.interval, verdict.confidence),
        finding.replicates,
        _SAYS.get(finding.kind, finding.kind),
    )


def _interval(ends: tuple[float, float], confidence: float) -> str:
    if not all(map(math.isfinite, ends)):
        return "unknown"
    if confidence == 1:
        return "exact"
    return f"{text.change(ends[0])} to {text.change(ends[1])} ({confidence:.0%})"


def _bar(cells: Sequence[str]) -> str:
    return text.row(text.markdown(cell, _LONGEST) for cell in cells)


def _list(notes: Sequence[str]) -> str:
    return "\n".join(f"- {text.markdown(note, _LONGEST)}" for note in notes)
