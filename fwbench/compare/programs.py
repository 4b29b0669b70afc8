"""Compares two programs without a clock: their exact changes, the most important first."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from fwbench.record.fingerprint import Fingerprint
from fwbench.text import change

_Figure = TypeVar("_Figure")

_BARRIER = "optimization_barrier"
_NAMED = 8  # the most kinds of operators in a sentence; the records have the rest

# The compiler's figures for a program, with their names for readers.
_SIZES = {"flops": "FLOPs", "bytes_accessed": "bytes accessed", "memory": "the compiler's memory"}
_COUNTS = {"libraries": "calls of", "precisions": "products in"}


@dataclass(frozen=True)
class Remark:
    """One thing to say of two programs, with the figures: a difference, or that there is none.

    If it is `changed`, a gate over programs must fail until somebody has renewed the baseline.
    """

    kind: Literal[
        "untold", "form", "recompiles", "dtype", "donation", "barrier", "graph_breaks", "program", "compiler", "same"
    ]
    sentence: str
    changed: bool = True


def changes(remarks: Iterable[Remark]) -> str:
    """The changes, in one sentence; empty if there are none."""
    return "; ".join(remark.sentence for remark in remarks if remark.changed)


def facts(remarks: Iterable[Remark]) -> str:
    """The remarks on a program that did not change, in one sentence."""
    return "; ".join(remark.sentence for remark in remarks if remark.kind != "untold")


def compare(base: Fingerprint, head: Fingerprint, device: str) -> tuple[Remark, ...]:
    """All remarks on two programs, at least one. A change is not called better or worse if only a clock can show it.

    Args:
        base: of the baseline.
        head: of the same workload now.
        device: that compiles it. On a GPU compilers choose by measuring, so their figures for one program may change.
            A program for a GPU that is not here is compiled by the CPU, and nothing is measured.
    """
    if head.digest is None:
        return (Remark("untold", f"no program to compare: {head.absent['digest']}", changed=base.digest is not None),)
    if base.digest is None:
        return (Remark("untold", f"the baseline has no program: {base.absent['digest']}", changed=False),)
    if base.form != head.form:
        return (Remark("form", f"the baseline's program is described in {base.form}, this one in {head.form}"),)
    return (
        *_recompiles(base, head),
        *_dtypes(base.dtypes or {}, head.dtypes or {}),
        *_counts(base, head),
        _same(base, head, device) if base.digest == head.digest else _program(base, head),
    )


def _recompiles(base: Fingerprint, head: Fingerprint) -> Iterator[Remark]:
    # The number of calls that compile depends on the number of calls in a run, so it is compared with zero alone.
    if head.recompilations:
        if base.recompilations:
            yield Remark("recompiles", "still recompiles at steady state", changed=False)
        else:
            yield Remark(
                "recompiles",
                f"recompiles at steady state, {_count(head.recompilations, 'time')} after the warm-up: "
                "a shape, a type or a value that it is compiled for changes from call to call",
            )


def _dtypes(base: Mapping[str, Mapping[str, int]], head: Mapping[str, Mapping[str, int]]) -> Iterator[Remark]:
    for dtype in sorted(head.keys() - base.keys()):
        users = ", ".join(f"{count} {name}" for name, count in head[dtype].items())
        yield Remark("dtype", f"{dtype} is new: {users}")
    for dtype in sorted(base.keys() - head.keys()):
        yield Remark("dtype", f"{dtype} is gone")


def _counts(base: Fingerprint, head: Fingerprint) -> Iterator[Remark]:
    """Yield remarks on the numbers of donated buffers, fusion barriers and graph breaks."""
    for before, now in _known(base.aliased, head.aliased):
        fewer, why = "more", ""
        if before > now:
            fewer, why = "fewer", ": a donation was dropped, so what was written in place is now copied"
        what = f"{_count(abs(before - now), 'argument')} {fewer} whose buffer an output takes over"
        yield Remark("donation", f"{what} ({before} -> {now}){why}")
    lost = (base.operators or {}).get(_BARRIER, 0) - (head.operators or {}).get(_BARRIER, 0)
    if lost > 0:
        barriers = f"{_count(lost, 'fusion barrier')} lost ({_BARRIER})"
        yield Remark("barrier", f"{barriers}: the compiler may merge and move across it")
    elif lost < 0:
        yield Remark("barrier", f"{_count(-lost, 'new fusion barrier')} ({_BARRIER})")
    for before, now in _known(base.graph_breaks, head.graph_breaks):
        yield Remark("graph_breaks", f"{_count(now, 'graph break')}, where the baseline has {before}")


def _known(before: _Figure | None, now: _Figure | None) -> Iterator[tuple[_Figure, _Figure]]:
    """Yield a figure of both programs if it is known of both and differs."""
    if before is not None and now is not None and before != now:
        yield before, now


def _program(base: Fingerprint, head: Fingerprint) -> Remark:
    before, now = base.operators or {}, head.operators or {}
    changes = {name: now.get(name, 0) - before.get(name, 0) for name in {*before, *now} - {_BARRIER}}
    # The most changed first.
    ordered = sorted((name for name in changes if changes[name]), key=lambda name: (-abs(changes[name]), name))
    operators = [f"{abs(changes[name])} {'more' if changes[name] > 0 else 'fewer'} {name}" for name in ordered[:_NAMED]]
    if len(ordered) > _NAMED:
        operators.append(f"{_count(len(ordered) - _NAMED, 'other kind')} of operators changed in number")
    if not ordered:
        operators.append("as many operators of each kind, other in shape, layout, constants or order")
    by = _by(base, head)
    return Remark("program", ", ".join(operators + _facts(base, head)) + (f" (by {by})" if by else ""))


def _same(base: Fingerprint, head: Fingerprint, device: str) -> Remark:
    facts, by = ", ".join(_facts(base, head)), _by(base, head)
    changed = bool(facts) and device == "cpu"
    if base.processor != head.processor:
        other = f"same program, other processor ({base.processor} -> {head.processor})"
        return Remark("compiler", f"{other}: {facts}" if facts else other, changed=False)
    if by:
        other = f"same program, other compiler versions ({by}): {facts or 'made the same of it'}"
        return Remark("compiler", other, changed)
    if facts:
        why = "compare its settings" if device == "cpu" else "on a GPU the compiler chooses by measuring"
        return Remark("compiler", f"same program, same compiler versions, but {facts}: {why}", changed)
    return Remark("same", "same program, same compiler: a difference in time is the machine's", changed=False)


def _facts(base: Fingerprint, head: Fingerprint) -> list[str]:
    """The compiler's figures that changed."""
    facts = []
    for name, title in _SIZES.items():
        for before, now in _known(getattr(base, name), getattr(head, name)):
            facts.append(_change(title, before, now) + (_parts(base, head) if name == "memory" else ""))
    facts += [f"fusions {before} -> {now}" for before, now in _known(base.fusions, head.fusions)]
    for name, title in _COUNTS.items():
        for before, now in _known(getattr(base, name), getattr(head, name)):
            facts += [f"{title} {each} {old} -> {new}" for each, old, new in _different(before, now)]
    return facts


def _parts(base: Fingerprint, head: Fingerprint) -> str:
    """The parts of the compiler's memory that changed, in parentheses; empty if none are known to have."""
    different = _different(base.memory_parts or {}, head.memory_parts or {})
    parts = ", ".join(_change(name, before, now) for name, before, now in different)
    return f" ({parts})" if base.memory_parts and head.memory_parts and parts else ""


def _change(title: str, before: float, now: float) -> str:
    if not before:
        return f"{title} 0 -> {now:.0f}"
    return f"{title} {change(now / before, lambda share: f'{100 * share:+.3g} %')}"


def _different(base: Mapping[str, float], head: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Each name whose number changed, with both numbers; a missing number is 0."""
    both = ((name, base.get(name, 0), head.get(name, 0)) for name in sorted({*base, *head}))
    return [(name, before, now) for name, before, now in both if before != now]


def _by(base: Fingerprint, head: Fingerprint) -> str:
    """The compiler versions and flags that differ, in words."""
    before, now = base.compiler or {}, head.compiler or {}
    names = (name for name in dict.fromkeys((*before, *now)) if before.get(name, "") != now.get(name, ""))
    return ", ".join(f"{name} {before.get(name) or 'none'} -> {now.get(name) or 'none'}" for name in names)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
