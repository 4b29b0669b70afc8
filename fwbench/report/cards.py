"""The answers as cards: of each workload who wins, by how much, how sure; to be read on a phone."""

from collections.abc import Sequence
from dataclasses import dataclass

from fwbench.report import units
from fwbench.report.answers import Answer
from fwbench.report.cases import in_words, title


@dataclass(frozen=True)
class Card:
    """One workload's answer in a few words.

    Attributes:
        kind: `clear`, `likely`, `undecided`, `shared` (first place, by several) or `apart` (not comparable).
        verdict: the winner, or that there is none.
        ratio: by how much, and before whom.
        rests: what the confidence rests on.
        disturbed: by what; empty where nothing disturbed it.
        others: who is the best by other metrics.
    """

    workload: str
    kind: str
    verdict: str
    ratio: str
    rests: str
    disturbed: str
    others: tuple[str, ...]


def cards(answers: Sequence[Answer]) -> dict[str, list[Card]]:
    """A card for each workload, by mode in words."""
    found: dict[str, list[Card]] = {}
    for answer in answers:
        found.setdefault(in_words(answer.comparison.workload.mode), []).append(_card(answer))
    return found


def _card(answer: Answer) -> Card:
    workload, second = answer.comparison.workload, title(answer.second)
    precision = "" if workload.precision == "fp32" else f", {workload.precision}"
    name = f"{workload.subject}, batch {workload.batch_size}{precision}"
    if answer.ratio is None or answer.weighed is None:
        why = f"{title(answer.fastest)} and {second}: {answer.confidence}"
        return Card(name, "apart", "Not comparable", why, "", "", ())
    by = units.ratio(answer.weighed.shown)
    kind, verdict, ratio = answer.confidence, answer.winner, f"{by} before {second}"
    if kind == "equal":
        kind, verdict, ratio = "shared", f"{answer.winner} equal", f"the two best are {by} apart"
    elif answer.shared:
        kind, verdict, ratio = "shared", f"Shared by {answer.winner}", f"the two best are {by} apart"
    elif kind == "undecided":
        verdict, ratio = "Undecided", f"{answer.winner} {ratio}"
    best = {"least latency": answer.quickest, "least memory": answer.leanest, "least energy": answer.cheapest}
    others = tuple(f"{what}: {title(least[0])}, {units.ratio(least[1])}" for what, least in best.items() if least)
    rests = f"{answer.reason}; {answer.evidence} to compute the same"
    return Card(name, kind, verdict, ratio, rests, answer.weighed.disturbed, others)
