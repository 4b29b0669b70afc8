"""A search for the parts of a difference, in sentences."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from fwbench import text
from fwbench.compare.programs import compare
from fwbench.ext.causes.explaining import Explanation
from fwbench.ext.causes.steps import Stretch
from fwbench.text import line


def change(stretch: Stretch) -> str:
    """Format a change and its interval, as in `+8.1% (+7.6% to +8.6%)`."""
    size, low, high = (text.change(math.exp(value)) for value in (stretch.change, stretch.low, stretch.high))
    return f"{size} ({low} to {high})" if stretch.pairs else size


def pairs(count: int) -> str:
    """Format how many pairs were played."""
    return f"{count} pair{'s' * (count != 1)}"


def parts(workload: str, titles: Sequence[str], not_restorable: Sequence[str]) -> list[str]:
    """List the parts that will be put back, and the differences that cannot be put back separately."""
    count = len(titles)
    lines = [f"{workload}: {count} part{'s' * (count != 1)} that may make a difference"]
    lines += [f"  {number}. {title}" for number, title in enumerate(titles, start=1)]
    return [*lines, *(f"  cannot be put back separately, only with the interpreter: {each}" for each in not_restorable)]


def progress(compared: Stretch) -> str:
    """The line of progress for a comparison."""
    put_back = _numbers(range(compared.first + 1, compared.last + 1))
    before = f", with {_numbers(range(1, compared.first + 1))} back already" if compared.first else ""
    return f"  putting back {put_back}{before}: {change(compared)}, {pairs(compared.pairs)}"


def sentences(explanation: Explanation, device: str) -> list[str]:
    """The answer, the most important first."""
    search = explanation.search
    skipped = _skipped(search.unmeasurable)
    if not search.compared:
        return [*skipped, *filter(None, [search.ended])]
    lines = [f"HEAD's {explanation.metric} differs from BASE's by {change(_turned(search.compared[0]))}."]
    for (first, last), says in explanation.different.items():
        those = "that" if last - first == 1 else "those"
        parts = " and ".join(explanation.parts[first:last])
        lines.append(f"HEAD computes something else with {parts} than with {those} as in BASE: {says}.")
    for step in sorted(search.steps, key=lambda step: -abs(step.change)):
        put_back = " and ".join(explanation.parts[step.first : step.last])
        why = _why(explanation, step, device)
        lines.append(f"{change(_turned(step))} comes from {put_back}: it is gone with that as in BASE{why}.")
    if not search.steps:
        lines.append("No part is confirmed to make a difference.")
    for rest in search.unexplained:
        numbers = _numbers(range(rest.first + 1, rest.last + 1))
        lines.append(f"{change(_turned(rest))} comes from {numbers}, but no single part is confirmed to make it.")
    if search.ended:
        lines.append(f"The search ended early, as {search.ended}.")
    return [*lines, *skipped]


def _skipped(reasons: Mapping[int, str]) -> list[str]:
    """A sentence on the parts that, once put back, made HEAD unmeasurable, with the reason for the first of them."""
    if not reasons:
        return []
    each = [_numbers(range(1, number + 1)) for number in sorted(reasons)]
    with_first = f"; with {each[0]}" if len(each) > 1 else ""
    why = line(reasons[min(reasons)])
    return [f"HEAD with {' or with '.join(each)} put back cannot be measured{with_first}: {why}"]


def _numbers(numbers: range) -> str:
    return f"part {numbers[0]}" if len(numbers) == 1 else f"parts {numbers[0]} to {numbers[-1]}"


def _turned(stretch: Stretch) -> Stretch:
    """The change from base to head; the search has it from head to base."""
    return dataclasses.replace(stretch, change=-stretch.change, low=-stretch.high, high=-stretch.low)


def _why(explanation: Explanation, step: Stretch, device: str) -> str:
    """A clause on the part's effect on the program; empty if a program is unknown."""
    base, head = (explanation.programs.get(number) for number in (step.last, step.first))
    if base is None or head is None:
        return ""
    remarks = [remark for remark in compare(base, head, device) if remark.kind != "untold"]
    if said := [remark.sentence for remark in remarks if remark.kind != "same"]:
        return f"; what it does to the program: {'; '.join(said)}"
    return "; the framework's program stays the same" if remarks else ""
