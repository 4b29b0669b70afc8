"""The answers as cards: of each workload who wins, by how much, how sure; to be read on a phone."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from fwbench.models import CATALOG
from fwbench.record.workload import Workload
from fwbench.report import units
from fwbench.report.answers import Answer, alike, said
from fwbench.report.cases import in_words, short


@dataclass(frozen=True)
class Card:
    """The answer for a model, over the batch sizes at which it is the same.

    Attributes:
        kind: `clear`, `likely`, `undecided`, `shared` (first place, by several) or `apart` (not comparable).
        sentence: who wins, by how much, or that nobody does.
        rests: what the confidence rests on.
        disturbed: by what; empty where nothing disturbed it.
        others: who is the best by other metrics.
    """

    workload: str
    kind: str
    sentence: str
    rests: str
    disturbed: str
    others: tuple[str, ...]


def cards(answers: Sequence[Answer]) -> dict[str, list[Card]]:
    """The cards of each workload but its batch size, by mode in words."""
    by_mode: dict[str, list[Card]] = {}
    by_model: dict[Workload, list[Answer]] = {}
    for answer in answers:
        workload = answer.workload
        by_model.setdefault(dataclasses.replace(workload, batch_size=workload.parts), []).append(answer)
    for workload, given in by_model.items():
        by_mode.setdefault(in_words(workload.mode), []).extend(_card(of, len(given)) for of in alike(given))
    return by_mode


def _card(given: Sequence[Answer], sizes: int) -> Card:
    """A card of answers that are alike, out of those of so many batch sizes."""
    answer, workload = given[0], given[0].workload
    batches = _batches(given)
    precision = "" if workload.precision == "fp32" else f", {workload.precision}"
    of_all = f", at {'both' if sizes == 2 else f'all {sizes}'} batch sizes" if len(given) == sizes > 1 else ""
    title = CATALOG[workload.model].title if workload.model in CATALOG else workload.model
    subject = workload.subject.replace(workload.model, title, 1)
    sentence = f"{in_words(workload.mode).capitalize()} of {subject}{'' if of_all else f' at {batches}'}: {said(given)}"
    shared = answer.ahead or answer.confidence == "equal"
    kind = "apart" if answer.ratio is None else "shared" if shared else answer.confidence
    if kind == "apart":
        return Card(f"{workload.subject}, {batches}{precision}", kind, f"{sentence}{of_all}.", "", "", ())
    best = {"least latency": "quickest", "least memory": "leanest", "least energy": "cheapest"}
    return Card(
        f"{workload.subject}, {batches}{precision}",
        kind,
        f"{sentence}{of_all}.",
        "; ".join(dict.fromkeys((*(each.reason for each in given), f"{answer.evidence} to compute the same"))),
        ", ".join(dict.fromkeys(each.weighed.disturbed for each in given if each.weighed and each.weighed.disturbed)),
        tuple(filter(None, (_best(what, question, given) for what, question in best.items()))),
    )


def _best(what: str, question: str, given: Sequence[Answer]) -> str:
    """Who is the best by another metric, and by how much; each batch size for itself where that is not one lane."""
    by_lane: dict[str, list[Answer]] = {}
    for each in given:
        if best := getattr(each, question):
            by_lane.setdefault(short(best[0], each.comparison.lanes), []).append(each)
    parts = []
    for lane, of in by_lane.items():
        multiples = units.span(end for each in of for end in _ends(getattr(each, question)[1]))
        parts.append(f"{lane}, {multiples}{f' at {_batches(of)}' if len(by_lane) > 1 else ''}")
    return f"{what}: {'; '.join(parts)}" if parts else ""


def _ends(multiple: float) -> tuple[float, ...]:
    return (multiple.low, multiple.high) if isinstance(multiple, units.Within) else (multiple,)


def _batches(given: Sequence[Answer]) -> str:
    *others, last = (str(each.comparison.workload.batch_size) for each in given)
    return f"batch {', '.join(others)} and {last}" if others else f"batch {last}"
