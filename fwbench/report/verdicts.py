"""A comparison for readers: the terminal's table, and a short summary in Markdown for a pull request."""

import math
from collections.abc import Sequence

from fwbench import text
from fwbench.compare.criteria import CRITERIA
from fwbench.compare.findings import ALL, ORDER, Finding, Outcome
from fwbench.report import units

_HEADER = ("benchmark", "metric", "base", "head", "change", "interval", "from", "verdict")
# Characters of a name or a note that are shown.
_LONGEST = 500
# Characters of a cell on the terminal.
_WIDEST = 120
# Rows on the terminal from which on those that say nothing happened are left out.
_MANY = 60
# Benchmarks named in a note that many share.
_NAMED = 6
# The kinds of findings that stand in other words than their own.
_SAYS = {
    "incomparable": "not comparable",
    "different": "HEAD computes something else",
    "program": "with a changed program",
}
# The kinds that stand beside what became of a benchmark's times.
_BESIDE = ("different", "program")


def lines(outcome: Outcome) -> list[str]:
    """For the terminal: changed programs, which are exact; a row a metric, the gravest first; then the notes."""
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
    """One sentence: how many benchmarks are what."""
    gravest: dict[str, int] = {}
    beside = {
        says: {finding.benchmark for finding in outcome.findings if finding.kind == kind}
        for kind, says in (("different", "computing something else"), ("program", _SAYS["program"]))
    }
    for finding in outcome.findings:
        if finding.kind not in _BESIDE and finding.benchmark != ALL:
            rank = ORDER.index(finding.kind)
            gravest[finding.benchmark] = min(rank, gravest.get(finding.benchmark, rank))
    if not gravest:
        return "nothing was compared"
    counts = [(kind, sum(rank == at for rank in gravest.values())) for at, kind in enumerate(ORDER)]
    number = "1 benchmark" if len(gravest) == 1 else f"{len(gravest)} benchmarks"
    sentences = [f"{number}: {', '.join(f'{count} {_SAYS.get(kind, kind)}' for kind, count in counts if count)}"]
    sentences += [f"{len(names)} {says}" for says, names in beside.items() if names]
    if outcome.seconds is not None:
        sentences.append(f"{outcome.seconds / len(gravest):.1f} s a benchmark")
    return "; ".join(sentences)


def markdown(outcome: Outcome) -> str:
    """For a pull request: the headline, changed programs, a table of whatever else is not unchanged, and the notes."""
    findings = [finding for finding in _sorted(outcome) if finding.metric and finding.kind != "unchanged"]
    table = (
        [_bar(_HEADER), f"|{' --- |' * len(_HEADER)}", *(_bar(_row(finding)) for finding in findings)]
        if findings
        else []
    )
    parts = [
        f"**fwbench: {headline(outcome)}**",
        _list(_programs(outcome)),
        "\n".join(table),
        _list(_notes(outcome)),
        f"{text.markdown(outcome.head, _LONGEST)}, against {text.markdown(outcome.base, _LONGEST)}.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _sorted(outcome: Outcome) -> list[Finding]:
    return sorted(outcome.findings, key=lambda finding: ORDER.index(finding.kind))


def _programs(outcome: Outcome) -> list[str]:
    return _told([finding for finding in _sorted(outcome) if finding.kind in _BESIDE])


def _notes(outcome: Outcome) -> list[str]:
    return [*_told([finding for finding in _sorted(outcome) if finding.kind not in _BESIDE]), *outcome.notes]


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
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        notes.append(f"{', '.join(named[:_NAMED])}{more}: {says}{f': {note}' if note else ''}")
    return notes


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
