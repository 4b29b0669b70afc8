"""A comparison for readers: the terminal's table, and a short summary in Markdown for a pull request."""

import math
from collections.abc import Iterable, Iterator, Sequence
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
    findings = _sorted(outcome)
    of_metrics = [finding for finding in findings if finding.metric]
    shown = [finding for finding in of_metrics if len(of_metrics) <= _MANY or finding.kind != "unchanged"]
    rows = [_HEADER, *([text.line(cell, _WIDEST) for cell in _row(finding)] for finding in shown)]
    left_out = len(of_metrics) - len(shown)
    more = f"{left_out} unchanged rows are not shown: --fwbench-summary=FILE.json holds them"
    return [
        text.line(f"{outcome.head}, against {outcome.base}"),
        *map(text.line, _told(findings, beside=True)),
        *(text.columns(rows) if len(rows) > 1 else ()),
        *map(text.line, [*_told(findings), *outcome.notes]),
        *([more] if left_out else ()),
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
    rows = [_bar(_row(finding)) for finding in shown if finding.metric]
    parts = [
        f"**fwbench: {headline(outcome)}**",
        _list(_told(shown, beside=True)),
        "\n".join([_bar(_HEADER), f"|{' --- |' * len(_HEADER)}", *rows]) if rows else "",
        _list([*_told(shown), *_alike(outcome), *outcome.notes]),
        f"{text.markdown(outcome.head, _LONGEST)}, against {text.markdown(outcome.base, _LONGEST)}.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def badge(outcome: Outcome | None) -> dict[str, Any]:
    """A badge as JSON for shields.io's endpoint: an outcome's gravest difference; None: nothing was compared."""
    counts = outcome.counts if outcome else {}
    kind = next((kind for kind in _TOLD_BY_BADGE if kind in counts), None)
    message = f"{counts[kind]} {_SAYS.get(kind, kind)}" if kind else "nothing compared"
    colour = "red" if kind in FAILING else "brightgreen" if kind in ("improved", "unchanged") else "lightgrey"
    return {"schemaVersion": 1, "label": "benchmarks", "message": message, "color": colour}


def _alike(outcome: Outcome) -> list[str]:
    """A line that counts rows without a difference, and names the inconclusive ones with the largest changes."""
    rows = {kind: [f for f in outcome.findings if f.metric and f.kind == kind] for kind in _ALIKE}
    counted = [f"{len(of)} {kind}" for kind, of in rows.items() if of]
    ratios = [(finding.verdict.ratio, finding.benchmark) for finding in rows["inconclusive"] if finding.verdict]
    # By the factor between base and head, whichever is the larger one.
    farthest = sorted(ratios, key=lambda named: -max(named[0], 1 / named[0]) if named[0] > 0 else -math.inf)
    changes = [f"{name} {text.change(ratio)}" for ratio, name in farthest]
    named = f" ({text.shortened(changes, _NAMED)})" if changes else ""
    return [f"rows without a difference, not shown here: {', '.join(counted)}{named}"] if counted else []


def _sorted(outcome: Outcome) -> list[Finding]:
    return sorted(outcome.findings, key=lambda finding: ORDER.index(finding.kind))


def _told(findings: Sequence[Finding], beside: bool = False) -> Iterator[str]:
    """Yield a line for each note of kinds in `BESIDE`, or of all others: the benchmarks that share it, and metrics."""
    names: dict[tuple[str, str], dict[str, list[str]]] = {}
    for finding in findings:
        if (finding.note or not finding.metric) and (finding.kind in BESIDE) == beside:
            alike = names.setdefault((_SAYS.get(finding.kind, finding.kind), finding.note), {})
            alike.setdefault(finding.benchmark, []).extend(filter(None, [finding.metric]))
    for (says, note), metrics in names.items():
        named = [f"{name} ({', '.join(of)})" if of else name for name, of in metrics.items()]
        yield f"{text.shortened(named, _NAMED)}: {says}{f': {note}' if note else ''}"


def _row(finding: Finding) -> tuple[str, ...]:
    criterion = CRITERIA[finding.metric]
    show = units.SHOW[criterion.unit]
    base, head = ("" if value is None else show(value) for value in (finding.base, finding.head))
    change = interval = ""
    if verdict := finding.verdict:
        change, interval = text.change(verdict.ratio), _interval(verdict.interval, verdict.confidence)
    said = _SAYS.get(finding.kind, finding.kind)
    return finding.benchmark, finding.metric, base, head, change, interval, finding.replicates, said


def _interval(ends: tuple[float, float], confidence: float) -> str:
    # One pair shows no scatter: the confidence of its interval is 0.
    if not confidence or not all(map(math.isfinite, ends)):
        return "unknown"
    if confidence == 1:
        return "exact"
    return f"{text.change(ends[0])} to {text.change(ends[1])} ({confidence:.0%})"


def _bar(cells: Sequence[str]) -> str:
    return text.row(text.markdown(cell, _LONGEST) for cell in cells)


def _list(notes: Iterable[str]) -> str:
    return "\n".join(f"- {text.markdown(note, _LONGEST)}" for note in notes)
