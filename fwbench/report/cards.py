"""The answers as cards: of each workload who wins, by how much, how sure; to be read on a phone."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from fwbench import units
from fwbench.compare.cases import grouped, in_words
from fwbench.models import CATALOG
from fwbench.record.workload import Workload
from fwbench.report.answers import QUESTIONS, Answer, Question, alike_groups, least, verdict_on


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
    by_mode = grouped(answers, lambda answer: in_words(answer.workload.mode))
    return {
        mode: [_card(of, len(given)) for given in grouped(of_mode, _any_batch).values() for of in alike_groups(given)]
        for mode, of_mode in by_mode.items()
    }


def _any_batch(answer: Answer) -> Workload:
    return dataclasses.replace(answer.workload, batch_size=answer.workload.parts)


def _card(given: Sequence[Answer], sizes: int) -> Card:
    """A card of answers that are alike, out of those of so many batch sizes."""
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
    rests = dict.fromkeys((*(each.reason for each in given), f"{answer.evidence} to compute the same"))
    disturbed = dict.fromkeys(each.weighed.disturbed for each in given if each.weighed and each.weighed.disturbed)
    return Card(
        f"{workload.subject}, {batches}{precision}",
        kind,
        f"{sentence}{of_all}.",
        "; ".join(rests) if answer.weighed else "",
        ", ".join(disturbed),
        tuple(filter(None, (_best(question, given) for question in QUESTIONS))),
    )


def _best(question: Question, given: Sequence[Answer]) -> str:
    """Who has the least, and by how much, each batch size for itself."""
    parts = []
    for lane, of in least(question, given).items():
        multiples = [
            f"{units.ratio(each.least[question.name][1])}{f' at {_batches([each])}' if len(given) > 1 else ''}"
            for each in of
        ]
        parts.append(f"{lane}, {', '.join(multiples)}")
    return f"least {question.name}: {'; '.join(parts)}" if parts else ""


def _batches(given: Sequence[Answer]) -> str:
    *others, last = (str(each.comparison.workload.batch_size) for each in given)
    return f"batch {', '.join(others)} and {last}" if others else f"batch {last}"
