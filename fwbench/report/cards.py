"""The answers as cards, to be read on a phone: each workload's fastest lane, its lead, and the confidence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fwbench import units
from fwbench.compare.cases import grouped, in_words
from fwbench.models import CATALOG
from fwbench.report.answers import QUESTIONS, Answer, Question, alike_groups, least, verdict_on
from fwbench.text import listed


@dataclass(frozen=True)
class Card:
    """An answer for a model, over the batch sizes that share it.

    Attributes:
        kind: `clear`, `likely`, `undecided`, `shared` (first place, by several) or `apart` (not comparable).
        sentence: the fastest lane and its lead, or that none is known to be the fastest.
        rests: what the confidence rests on.
        disturbed: what disturbed the lanes; empty if nothing did.
        others: for each other question that is answered, a phrase on the lanes with the least.
    """

    workload: str
    kind: str
    sentence: str
    rests: str
    disturbed: str
    others: tuple[str, ...]


def cards(answers: Sequence[Answer]) -> dict[str, list[Card]]:
    """The cards by mode (in words); cards of workloads that differ in batch size alone stand together."""
    by_mode = grouped(answers, lambda answer: in_words(answer.workload.mode))
    return {
        mode: [
            _card(of, len(given))
            for given in grouped(of_mode, lambda each: replace(each.workload, batch_size=each.workload.parts)).values()
            for of in alike_groups(given)
        ]
        for mode, of_mode in by_mode.items()
    }


def _card(given: Sequence[Answer], sizes: int) -> Card:
    """A card of answers that are alike; the workload was answered at `sizes` batch sizes in all."""
    answer, workload = given[0], given[0].workload
    batches = _batches(given)
    precision = "" if workload.precision == "fp32" else f", {workload.precision}"
    of_all = f", at {'both' if sizes == 2 else f'all {sizes}'} batch sizes" if len(given) == sizes > 1 else ""
    title = CATALOG[workload.model].title if workload.model in CATALOG else workload.model
    subject = workload.subject.replace(workload.model, title, 1)
    sentence = (
        f"{in_words(workload.mode).capitalize()} of {subject}{'' if of_all else f' at {batches}'}: {verdict_on(given)}"
    )
    shared = answer.ahead or answer.confidence in ("equal", "near")
    kind = "apart" if not answer.weighed else "shared" if shared else answer.confidence
    shown = "with quantised weights" if answer.evidence == "quantised" else f"{answer.evidence} to compute the same"
    rests = dict.fromkeys((*(each.reason for each in given), shown))
    disturbed = dict.fromkeys(each.weighed.disturbed for each in given if each.weighed and each.weighed.disturbed)
    others = tuple(filter(None, (_best(question, given) for question in QUESTIONS)))
    rests_on, name = "; ".join(rests) if answer.weighed else "", f"{workload.subject}, {batches}{precision}"
    return Card(name, kind, f"{sentence}{of_all}.", rests_on, ", ".join(disturbed), others)


def _best(question: Question, given: Sequence[Answer]) -> str:
    """A phrase on the lanes with the least, and by how much, each batch size for itself; empty if none is known."""
    parts = []
    for lane, of in least(question, given).items():
        multiples = [
            f"{units.ratio(each.least[question.name][1])}{f' at {_batches([each])}' if len(given) > 1 else ''}"
            for each in of
        ]
        parts.append(f"{lane}, {', '.join(multiples)}")
    return f"least {question.name}: {'; '.join(parts)}" if parts else ""


def _batches(given: Sequence[Answer]) -> str:
    return f"batch {listed(str(each.workload.batch_size) for each in given)}"
