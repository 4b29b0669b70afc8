"""Evidence that two lanes compute the same function, and reasons why some lanes must not be compared."""

import itertools
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fwbench.compare.agreement import Agreement, agreement
from fwbench.compare.cases import Case, by_workload, grouped, in_words
from fwbench.extensions import addition
from fwbench.record.lanes import network
from fwbench.record.measurement import Measurement

Word = Literal["proved", "checked", "different", "quantised", "unchecked"]

# The meaning of the five words, for the text beside a table.
WORDS = (
    "proved (in float64, with these versions, in the mode that was timed, every choice tried), checked (the outputs or "
    "losses of the timed programs agree in this run), different (they do not, so there is no speed-up), quantised (the "
    "weights of one are, so its error takes the place of agreement) or unchecked (nothing shows it)"
)

# Texts that replace the ratio of two lanes if their records say that the two were not measured alike.
OTHER_WEIGHTS = "other weights"
OTHER_ARITHMETIC = "other arithmetic"
OTHER_SETTINGS = "other settings"
MIXED = "mixed flags"

_WRONG = {
    OTHER_WEIGHTS: "began with different weights",
    OTHER_ARITHMETIC: "computed in another arithmetic than the one asked for, as the precision probe found,",
    OTHER_SETTINGS: "ran on other numbers of CPUs, under other variables of the environment or with other settings",
    MIXED: "did not each run with the same fallback flags in all processes",
}

# States of a proof that holds: it was made against the reference, or the lane is the reference itself.
_HOLDS = ("proved", "reference")
# The state of a lane whose program no proof runs, and of one whose framework is the model's only one.
_DERIVED, _ALONE = "derived", "alone"


@dataclass(frozen=True)
class Evidence:
    """Evidence for or against two lanes computing the same function, in one of the words that `WORDS` explains.

    Attributes:
        detail: half a sentence: what agrees or differs and by how much, or why the run's check says nothing.
        stale: why no proof holds for what was measured; empty if one does.
    """

    word: Word
    detail: str
    stale: str = ""


def evidence(one: Case, other: Case) -> Evidence:
    """The evidence for two lanes of one workload.

    The run's own check can refute a proof. A proof of other versions takes nothing away from a check. A lane whose
    weights are quantised must state its error against float64.
    """
    check = _check(one, other)
    if check.agrees is False:
        return Evidence("different", str(check))
    doubt, refuted = _doubt(one, other)
    if refuted:
        return Evidence("different", doubt)
    if quantised := [case for case in (one, other) if case.quantised]:
        unknown = [f"{case.workload.lane} states no error" for case in quantised if case.value(case.error) is None]
        return Evidence("unchecked" if unknown else "quantised", str(check), " and ".join(unknown))
    if not doubt:
        return Evidence("proved", str(check))
    return Evidence("checked" if check.agrees else "unchecked", str(check), doubt)


def _check(one: Case, other: Case) -> Agreement:
    """The agreement of two lanes' sketches. One pair of processes that differs outweighs all others."""
    pairs = [
        agreement(first, second)
        for first, second in itertools.product(one.measurements, other.measurements)
        if _start(first) == _start(second) and first.workload.batch_size == second.workload.batch_size
    ]
    nothing = Agreement(None, reason="no two processes of theirs began alike")
    refuted = next((pair for pair in pairs if pair.agrees is False), None)
    return refuted or next((pair for pair in pairs if pair.agrees), pairs[0] if pairs else nothing)


def _start(measurement: Measurement) -> tuple[int, str]:
    return measurement.workload.seed, measurement.workload.weights


def _doubt(one: Case, other: Case) -> tuple[str, bool]:
    """The reason why no proof holds for two lanes, empty if one does; and true if a proof found that they differ."""
    proofs = _proof(one), _proof(other)
    if _alike(one, other):
        return "a proof compares two frameworks, and these lanes are of one", False
    # A proof that fails only in training holds for inference.
    held = "training_alone" if one.workload.mode == "inference" else ""
    # The only framework's network is the reference of the program that a compiler makes of it.
    holds = (*_HOLDS, _ALONE) if _one_framework(one, other) else _HOLDS
    unproved = [proof for proof in proofs if proof.get("state") not in holds and not proof.get(held)]
    # A proof that failed in float64 comes first: the other lane's state does not outweigh it.
    for proof in sorted(unproved, key=lambda proof: proof.get("state") != "failed"):
        return proof.get("reason") or "it has never been proved", proof.get("state") == "failed"
    for proof, beside in zip(proofs, (other, one), strict=True):
        # Each lane may have an interpreter of its own, so a proof's versions are looked for on both records.
        proved = proof.get("versions", {})
        for name, version in ((name, version) for m in beside.measurements for name, version in m.versions.items()):
            if proved.get(name, version) != version:
                return f"{name} was {proved[name]} and is {version}", False
    return _untried(one, other), False


def _untried(one: Case, other: Case) -> str:
    """The sides of choices that the proofs of two lanes have not tried, in words; empty if there are none."""
    proofs = [proof for proof in (_proof(one), _proof(other)) if proof.get("state") in _HOLDS]
    return "; ".join(dict.fromkeys(side for proof in proofs for side in proof.get("untried", ())))


def _one_framework(one: Case, other: Case) -> bool:
    return len({_proof(case).get("framework", case.workload.lane) for case in (one, other)}) == 1


def _alike(one: Case, other: Case) -> bool:
    """True if no proof tells two lanes apart: of one framework, but for a network and its compiled program."""
    if not _one_framework(one, other):
        return False
    programs = {_proof(case).get("program", "") for case in (one, other)}
    return len(programs) == 1 or len({network(case.workload.lane) for case in (one, other)}) > 1


def _proof(case: Case) -> Mapping[str, Any]:
    """The proof of this lane's network by the records; the worst if they differ."""
    stamps = [m.parity.get("proof") or {} for m in case.measurements]
    return min(stamps, key=lambda stamp: stamp.get("state") in _HOLDS, default={})


def apart(one: Case, other: Case, *, threads: bool = True) -> str:
    """The text that replaces the ratio of two lanes that must not be compared; empty if they may be.

    Both must have had the same numbers of threads and CPUs if `threads`.
    """
    digests: list[dict[tuple[int, str], object]] = [
        {_start(m): m.parity.get("weights") for m in case.measurements} for case in (one, other)
    ]
    if any(digests[0][start] != digests[1][start] for start in digests[0].keys() & digests[1].keys()):
        return OTHER_WEIGHTS
    if not (one.as_asked and other.as_asked):
        return OTHER_ARITHMETIC
    if one.surroundings(threads=threads) != other.surroundings(threads=threads):
        return OTHER_SETTINGS
    if len(one.fallbacks) > 1 or len(other.fallbacks) > 1:
        return MIXED
    if one.workload.lane == other.workload.lane:
        return ""
    word = evidence(one, other).word
    return "" if word in ("proved", "checked", "quantised") else word


def comparable_lanes(lanes: Mapping[str, Case]) -> dict[str, Case]:
    """The largest set of lanes that may all be compared with each other; the first if several are as large."""
    refused = {pair for pair in itertools.combinations(lanes, 2) if apart(*(lanes[lane] for lane in pair))}
    sets = (chosen for size in range(len(lanes), 0, -1) for chosen in itertools.combinations(lanes, size))
    chosen = next((each for each in sets if refused.isdisjoint(itertools.combinations(each, 2))), ())
    return {lane: lanes[lane] for lane in chosen}


def doubts(given: Iterable[Case]) -> list[str]:
    """A sentence on each fault or gap in the evidence, and what to do about it."""
    wrong: dict[str, None] = {}
    unchecked: dict[str, str] = {}
    unproved: dict[str, str] = {}
    partly: dict[str, str] = {}
    provable: dict[str, None] = {}
    for one, other in _pairs(given):
        lanes, model = f"{one.workload.lane} and {other.workload.lane}", one.workload.model
        why, shown = apart(one, other), evidence(one, other)
        # `fwbench prove` compares lanes that each have a framework or a program of their own, and a network with its
        # own weights.
        states = {_proof(case).get("state") for case in (one, other)}
        can_prove = not _alike(one, other) and states.isdisjoint((_DERIVED, _ALONE))
        can_prove = can_prove and not (one.quantised or other.quantised)
        to_prove = [model] if can_prove else []
        if why in _WRONG:
            lists = _advice("; ", to_prove, given, "lists them") if why == OTHER_WEIGHTS else ""
            wrong[f"error: {lanes} {_WRONG[why]} in {model}, so their numbers cannot be compared{lists}"] = None
        elif why == "different":
            wrong[
                f"error: {lanes} do not compute the same in {in_words(one.workload.mode)} of {model}: {shown.detail}. "
                f"They have no speed-up{_advice('; ', to_prove, given, 'tells more')}"
            ] = None
        elif why == "unchecked":
            unchecked[model] = "; ".join(filter(None, (shown.detail, shown.stale)))
            provable |= dict.fromkeys(to_prove)
        elif shown.word == "checked" and shown.stale == _untried(one, other):
            partly[model] = shown.stale
        elif shown.word == "checked" and can_prove:
            unproved[model] = shown.stale
    sentences = list(wrong)
    if unchecked:
        named = ", ".join(f"{model} ({reason})" for model, reason in unchecked.items())
        proves = _advice(". ", provable, given, "proves it, or says what differs")
        sentences.append(f"no speed-up where nothing shows that the lanes compute the same: {named}{proves}")
    if unproved:
        by_reason = grouped(unproved, lambda model: unproved[model])
        named = "; ".join(f"{', '.join(models)} ({reason})" for reason, models in by_reason.items())
        proves = _advice(". ", unproved, given, "proves them in float64")
        sentences.append(f"checked in this run, and not proved for these versions: {named}{proves}")
    if partly:
        named = "; ".join(f"{model} ({untried})" for model, untried in partly.items())
        sentences.append(
            f"checked in this run, and proved but for choices that were not tried: {named}. Inputs or a checkpoint= "
            "that take them prove them"
        )
    return sentences


def tally(given: Iterable[Case]) -> dict[str, str]:
    """By model, the number of pairs of lanes for each word, with details: `checked 2 (outputs agree ...)`."""
    every = [(one.workload.model, evidence(one, other)) for one, other in _pairs(given)]
    told = {}
    for model, of_model in grouped(every, lambda pair: pair[0]).items():
        details = {name: [shown.detail for _, shown in of_model if shown.word == name] for name in get_args(Word)}
        counts = (f"{name} {len(of)} ({', '.join(dict.fromkeys(of))})" for name, of in details.items() if of)
        told[model] = "; ".join(counts)
    return told


def differ(given: Iterable[Case]) -> bool:
    """True if any two lanes do not compute the same, or do not even begin with the same weights."""
    return any(
        evidence(one, other).word == "different" or apart(one, other) == OTHER_WEIGHTS for one, other in _pairs(given)
    )


def _pairs(given: Iterable[Case]) -> Iterator[tuple[Case, Case]]:
    for lanes in by_workload(given).values():
        yield from itertools.combinations(lanes.values(), 2)


def _advice(mark: str, models: Collection[str], given: Iterable[Case], what: str) -> str:
    """The end of a sentence, after a mark: the command that proves models, and what it does.

    The command names the interpreters that `--fwbench-python` named when the models were measured, and the lanes if
    one has no proof of its own program. Empty if there are no models, or if the extension with the command is not here.
    """
    if not models or not addition("prove"):
        return ""
    proofs = [(case.workload.lane, _proof(case)) for case in given if case.workload.model in models]
    pythons = dict.fromkeys(f"{proof['framework']}={proof['python']}" for _, proof in proofs if proof.get("python"))
    options = [*itertools.chain.from_iterable(("--python", python) for python in pythons)]
    to_prove = {lane: proof for lane, proof in proofs if proof.get("state") not in (*_HOLDS, _ALONE, _DERIVED)}
    # Without this option the command proves no lane's own program.
    if any(proof.get("program") for proof in to_prove.values()):
        lanes = (proof.get("program") or lane for lane, proof in to_prove.items())
        options += ["--lanes", ",".join(dict.fromkeys(lane for lane in lanes if not network(lane)))]
    return f"{mark}`{shlex.join(['fwbench', 'prove', *models, *options])}` {what}"
