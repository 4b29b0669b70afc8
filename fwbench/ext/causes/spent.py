"""The difference of two sides, operator by operator: a table for readers, and traces that Perfetto opens."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from fwbench import units
from fwbench.ext.causes.explaining import Explanation
from fwbench.ext.causes.operators import Change, Profile, changes, profile
from fwbench.record.spans import Span
from fwbench.text import columns, line

# At most so many operators have a row of their own, and names and shapes are cut to this width.
_ROWS = 8
_WIDTH = 60


def table(explanation: Explanation) -> list[str]:
    """The table's lines with a title; none if the sides are not shown to differ."""
    whole = explanation.search.compared[0]
    if not (whole.low > 0 or whole.high < 0):
        return []
    base, head = (each if isinstance(each, str | Profile) else profile(each) for each in explanation.recorded)
    if isinstance(base, str) or isinstance(head, str):
        reason = base if isinstance(base, str) else str(head)
        return [f"Where the time went is not known: {line(reason)}."]
    functions = Profile in map(type, explanation.recorded)
    operators = changes(base, head)
    kind = "function" if functions else "operator"
    rows = [
        (
            each.base.seconds,
            each.head.seconds,
            "" if functions else _runs(each),
            _described(each, "" if functions else each.shapes),
        )
        for each in operators[:_ROWS]
    ]
    if others := operators[_ROWS:]:
        together = (sum(each.base.seconds for each in others), sum(each.head.seconds for each in others))
        rows.append((*together, "", f"{len(others)} other {kind}s"))
    if not functions:
        at_once = " (below 0, as operators ran in parallel)" if min(base.outside, head.outside) < 0 else ""
        rows.append((base.outside, head.outside, "", f"outside of operators{at_once}"))
    rows.append((base.seconds, head.seconds, "", "a call under the profiler"))
    cells = [(_time(before), _time(after), _signed(after - before), runs) for before, after, runs, _ in rows]
    numbers = columns([("base", "head", "difference", "" if functions else "runs"), *cells], left=0)
    words = [kind, *(words for *_, words in rows)]
    lines = [f"  {each:{len(numbers[1])}}  {text}" for each, text in zip(numbers, words, strict=True)]
    by = "samples of the line that runs" if functions else "the framework's profiler"
    return [f"Where the time of a call goes, by {by}:", *lines, *_accounted(explanation, operators, kind)]


def write(explanation: Explanation, folder: Path) -> list[str]:
    """Write each side's trace into a folder, in Chrome's format; return the line to print."""
    files = []
    for side, spans in zip(("base", "head"), explanation.recorded, strict=True):
        if not isinstance(spans, str | Profile):
            file = folder / f"{side}.json"
            file.write_text(json.dumps(_trace(side, spans)), encoding="utf-8")
            files.append(str(file))
    return [f"Traces for https://ui.perfetto.dev: {' and '.join(files) or 'none'}."]


def _trace(title: str, spans: Sequence[Span]) -> dict[str, object]:
    threads = {name: number for number, name in enumerate(dict.fromkeys(span.thread for span in spans), start=1)}
    begun = min((span.start for span in spans), default=0.0)
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": name}}
        for name, number in threads.items()
    ]
    events += [
        {
            "ph": "X",
            "pid": 1,
            "tid": threads[span.thread],
            "name": span.name,
            "cat": span.kind,
            "ts": (span.start - begun) * 1e6,
            "dur": span.seconds * 1e6,
            "args": {"shapes": span.shapes, "place": span.place},
        }
        for span in spans
    ]
    return {"traceEvents": events, "otherData": {"side": title}}


def _accounted(explanation: Explanation, operators: Sequence[Change], kind: str) -> list[str]:
    """The share of the measured difference that operators, or functions, account for."""
    if explanation.latency is None:
        return []
    measured = explanation.latency * (1 - math.exp(explanation.search.compared[0].change))
    by_operators = sum(change.seconds for change in operators)
    return [
        f"Without the profiler, pairs measured a difference of {_signed(measured)}; {kind}s account for "
        f"{_signed(by_operators)} ({by_operators / measured:.0%})."
    ]


def _time(seconds: float) -> str:
    return units.seconds(seconds) if seconds else "-"


def _runs(change: Change) -> str:
    base, head = (f"{spent.runs:g}" for spent in (change.base, change.head))
    return base if base == head else f"{base} to {head}"


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{units.seconds(abs(seconds))}"


def _described(change: Change, shapes: str) -> str:
    """The operator's name, shapes and place, as in `mul 8x64x384, 8x64x384 (mine/ops.py:9)`."""
    place = (change.head.place or change.base.place).rpartition("-packages/")[2]
    return " ".join(filter(None, (line(change.name, _WIDTH), line(shapes, _WIDTH), place and f"({line(place)})")))
