"""The answer for a workload: the fastest lane, its lead over the next one, and the confidence.

A replicate is a process. One process of each lane shows a difference; only several show how far processes of the same
code differ. A run that measured both lanes gives a ratio for each seed and process, and the signed-rank test gives the
exact interval over these (`fwbench.compare.statistics`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fwbench import units
from fwbench.compare.cases import Case, by_workload, grouped, in_words, short, title
from fwbench.compare.parity import WORDS, apart, comparable_lanes
from fwbench.compare.ratios import EQUAL
from fwbench.compare.weighing import BY_CHANCE, Interval, Judged, Weighed, weigh, weigh_turns
from fwbench.machine.disturbances import lengthening
from fwbench.report.columns import option_columns, workload_columns
from fwbench.report.precisions import Price, many
from fwbench.report.tables import Column, Table, tabulate
from fwbench.text import listed


@dataclass(frozen=True)
class Question:
    """A question besides the highest throughput: the lane with the least of a quantity.

    Attributes:
        quantity: the quantity, as `Case.value` names it.
        name: its name in tables, on cards, and in rounds of turns, which decide if every lane has some.
        headline: the start of a sentence that answers the question for many workloads.
        timed: whether it differs between processes and changes if its measurement is disturbed.
    """

    quantity: str
    name: str
    headline: str
    timed: bool


QUESTIONS = (
    Question("latency_p50", "latency", "Lowest latency (p50)", timed=True),
    Question("peak_memory", "memory", "Least memory", timed=False),
    Question("energy_per_sample", "energy", "Least energy", timed=True),
)


@dataclass(frozen=True)
class Answer(Judged):
    """The answer for one workload: the fastest lane by throughput, `case`, against its nearest rival, `beside`.

    Attributes:
        lanes: all lanes that have numbers for the workload.
        reason: what the confidence rests on, and which lanes are left out.
        least: by a question's name, the lane that surely has the least, and the next lane's multiple of its value.
        shared: the lanes that may be the fastest, the two best first; empty if only one may.
        ahead: the confidence that lanes outside `shared` are slower; empty if no lane is outside or `shared` is empty.
    """

    lanes: tuple[str, ...]
    reason: str
    least: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    ahead: str = ""

    @property
    def fastest(self) -> str:
        """The fastest lane."""
        return self.case.workload.lane

    @property
    def second(self) -> str:
        """Its nearest rival."""
        return self.beside.workload.lane

    @property
    def price(self) -> float | None:
        """The fastest lane's error against float64 over the second's, if the weights of one are quantised."""
        price = Price(self.case, self.beside, self.weighed)
        return price.more(self.case.error) if self.evidence == "quantised" else None


def answers(cases: Sequence[Case]) -> list[Answer]:
    """An answer for each workload with throughputs of at least two lanes, over the comparable lanes."""
    rows = []
    for lanes in by_workload(cases).values():
        timed = {lane: case for lane, case in lanes.items() if case.value("throughput")}
        if len(timed) < 2:
            continue
        comparable, names = comparable_lanes(timed), tuple(lanes)
        left_out = [lane for lane in timed if lane not in comparable]
        if len(comparable) < 2:
            first, second = _by_throughput(timed)[:2]
            why = apart(timed[first], timed[second])
            rows.append(Answer(timed[first], timed[second], None, why, names, "no comparison"))
            continue
        first, second, rivals = _first_two(comparable)
        reason = rivals[second].reason
        marked = [title(lane) for lane, case in comparable.items() if any(case.fallbacks)]
        if marked:
            reason = f"{reason}; {' and '.join(marked)} with fallback flags, as it crashed without"
        if left_out:
            without = timed[left_out[0]]
            why = next(filter(None, (apart(without, comparable[lane]) for lane in (first, *comparable))), "")
            reason = f"{reason}; without {', '.join(map(title, left_out))} ({why})"
        least = {each.name: best for each in QUESTIONS if (best := _least(comparable, each))}
        shared, ahead = _shared(first, second, rivals)
        if ahead:
            reason = f"{reason}; every other lane is {'likely ' if ahead == 'likely' else ''}slower"
        judged = comparable[first], comparable[second], rivals[second], ""
        rows.append(Answer(*judged, names, reason, least, shared, ahead))
    return rows


def headline(given: Sequence[Answer]) -> list[str]:
    """The answers in sentences: for each mode, which lanes are faster, then a sentence for each other question."""
    if not given:
        return ["No workload was measured in two lanes, so there is nothing to compare."]
    lines = []
    answerable = (answer for answer in given if answer.weighed)
    for mode, answered in grouped(answerable, lambda answer: answer.workload.mode).items():
        # The surest sentences come first, then those on more workloads.
        groups = sorted(alike_groups(answered), key=lambda of: (_BY_CERTAINTY.index(of[0].confidence), -len(of)))
        what = in_words(mode).capitalize()
        lines += [
            f"{what}: {verdict_on(of)}, in {len(of)} of {len(answered)} workloads ({_named(of)})." for of in groups
        ]
        lines += filter(None, (_best(question, mode, answered) for question in QUESTIONS))
    if uncompared := [answer for answer in given if not answer.weighed]:
        lines.append(
            f"{len(uncompared)} of {len(given)} workloads cannot be answered ({_named(uncompared)}): their lanes may "
            "not be compared, as the notes say."
        )
    return lines


# Confidences that call no lane faster, and all confidences, the surest first.
_NOT_APART = ("equal", "near", "undecided")
_BY_CERTAINTY = ("clear", "likely", *_NOT_APART)


def alike_groups(given: Iterable[Answer]) -> list[list[Answer]]:
    """Group the answers that one sentence can state together: those with one confidence and the same lanes."""

    def key(answer: Answer) -> tuple[object, ...]:
        lanes = answer.shared or (answer.fastest, answer.second)
        # Lanes that are not known to differ can come in any order, so their names are sorted.
        named = lanes if answer.confidence in ("clear", "likely") else tuple(sorted(lanes))
        return answer.confidence, answer.ahead, named

    return list(grouped(given, key).values())


def verdict_on(given: Sequence[Answer]) -> str:
    """Format the common verdict of answers that are alike, without a full stop.

    Several workloads have no common interval. Their ratio is the range that lies in all of their intervals; if there is
    none, it is the least and the greatest ratio, each with its workload.
    """
    answer = given[0]
    lanes = [short(lane, answer.lanes) for lane in answer.shared or (answer.fastest, answer.second)]
    names = listed(lanes)
    if not answer.weighed:
        return f"{names} cannot be compared: {answer.confidence}"
    ahead = f"{'likely ' if answer.ahead == 'likely' else ''}ahead of all others" if answer.ahead else ""
    if answer.confidence == "equal":
        return f"{names} are equal within {100 * EQUAL:.0f} %{f', and {ahead}' if ahead else ''}"
    if answer.confidence == "near":
        most = max(each.weighed.reach.farthest for each in given if each.weighed)
        return f"{names} are at most {math.ceil(100 * most)} % apart{f', and {ahead}' if ahead else ''}"
    # Workloads that rest on different grounds have no common basis; the table has each one's.
    bases = {each.weighed.basis for each in given if each.weighed}
    basis = bases.pop() if len(bases) == 1 else ""
    reach = answer.weighed.reach
    times = units.times((reach.low, reach.high))
    if answer.confidence == "undecided":
        why = ""
        if len(given) == 1 and len(lanes) == 2:
            known = f" ({lanes[0]} is {times} times as fast)"
            why = known if times else ", as what disturbed them can explain the difference"
        open_ = f"nothing is decided{basis and ' '}{basis}{why}"
        return f"{names} are {ahead}; between them {open_}" if ahead else f"between {names} {open_}"
    likely, rests = {"clear": ("", ""), "likely": ("likely ", f"{basis and ', '}{basis}")}[answer.confidence]
    if len(given) == 1:
        return f"{lanes[0]} is {likely}{times} times as fast as {lanes[1]}{_priced(given)}{rests}"
    return f"{lanes[0]} is {likely}faster than {lanes[1]}, by {_factor(given)}{_priced(given)}{rests}"


def _priced(given: Iterable[Answer]) -> str:
    """`, with 38 to 45 times the error`, over all of the answers; empty if none has a price."""
    known = sorted(answer.price for answer in given if answer.price)
    bounds = dict.fromkeys(many(each) for each in (known[0], known[-1])) if known else ()
    return f", with {' to '.join(bounds)} times the error" if bounds else ""


def _factor(given: Sequence[Answer]) -> str:
    weighed = [(each.weighed, f"{each.workload.subject} b{each.workload.batch_size}") for each in given if each.weighed]
    low, high = max(each.reach.low for each, _ in weighed), min(each.reach.high for each, _ in weighed)
    if low <= high:
        return f"a common factor of {units.times((low, high))}"
    # The ratio of a disturbed workload lies between two bounds.
    low, least = min((units.bounds(each.shown)[0], name) for each, name in weighed)
    high, most = max((units.bounds(each.shown)[1], name) for each, name in weighed)
    return f"a factor of {low:.2f} ({least}) {f'to {high:.2f} ({most})' if high < math.inf else 'or more'}"


def least(question: Question, answered: Iterable[Answer]) -> dict[str, list[Answer]]:
    """The answers that say which lane has the least of a quantity, by that lane's short name."""
    known = (answer for answer in answered if question.name in answer.least)
    return grouped(known, lambda answer: short(answer.least[question.name][0], answer.lanes))


def _best(question: Question, mode: str, answered: Sequence[Answer]) -> str:
    """A sentence that names the lanes with the least of a quantity; empty if no answer names one."""
    parts = []
    for lane, of in sorted(least(question, answered).items(), key=lambda item: -len(item[1])):
        surely = max(units.bounds(answer.least[question.name][1])[0] for answer in of)
        parts.append(f"{lane} in {len(of)} of {len(answered)}, in one by {units.ratio(surely)} or more")
    return f"{question.headline}, {in_words(mode)}: {'; '.join(parts)}." if parts else ""


def _named(given: Sequence[Answer]) -> str:
    """Models at their axes' values and on their devices, with batch sizes; a bare name would be taken for all sizes."""
    return ", ".join(
        " ".join((subject, *dict.fromkeys(f"b{answer.workload.batch_size}" for answer in of)))
        for subject, of in grouped(given, lambda answer: answer.workload.subject).items()
    )


_CAPTION = (
    "First is the fastest lane by throughput, second its nearest rival, and ratio the throughput of the first over "
    "that of the second. It lies between low and high, at a confidence level where these are an interval. Lanes "
    "under others may be the fastest, too. Error is that of the first over that of the second, where one of them has "
    "quantised weights. Rounds in which lanes took turns (--fwbench-minutes) decide "
    "where there are some: clear, or equal within 5 %, or near (at most 10 % apart), or undecided. Several runs, "
    "seeds or processes give an interval over pairs of processes: clear when one of at least 95 % excludes "
    "equality (6 pairs can), likely when one of at least 75 % does (3 pairs can). One process each cannot show "
    f"how far processes differ: low and high are the ratio over {BY_CHANCE:g} and times {BY_CHANCE:g}, as by "
    "chance few such ratios are off by more; likely when both lie above 1, else undecided. What disturbed a lane, "
    "as other load, makes low and high wider; the ratio is then shown from one number to another, and CSV files "
    "have what was measured. Each row stands by itself. Least latency (p50) and memory "
    "have an interval where lanes took turns. Where they took none, a lane has the least latency or energy only "
    f"if the others need more than {BY_CHANCE:g} times as much, and more than what disturbed them can explain. "
    "No lane has the least memory where one's is only known to be at most so much (<=). A lane can have "
    "the higher throughput and the longer call, where it runs calls side by side. Evidence that the two compute "
    f"the same: {WORDS}. A lane without evidence is left out."
)


def table(rows: Sequence[Answer]) -> Table:
    """The table of answers: one row a workload."""
    costed = any("energy" in answer.least for answer in rows)
    asked = [question for question in QUESTIONS if costed or question.name != "energy"]
    shared = any(len(answer.shared) > 2 for answer in rows)
    priced = any(answer.price for answer in rows)

    def end(of: Callable[[Interval], float]) -> Callable[[Answer], float | None]:
        """A function that returns a bound of the ratio, or its level; None where it is unknown."""
        return lambda answer: known if answer.weighed and 0 < (known := of(answer.weighed.reach)) < math.inf else None

    def columns_of(name: str) -> tuple[Column[Answer], Column[Answer]]:
        def part(at: int) -> Callable[[Answer], float | str | None]:
            return lambda answer: answer.least[name][at] if name in answer.least else None

        return Column(f"least {name}", part(0)), Column(f"by, of {name}", part(1), "1", units.ratio)

    return tabulate(
        "answers",
        "Which framework, by how much, with which confidence",
        _CAPTION,
        (
            *workload_columns(rows),
            *option_columns(rows),
            Column("first", lambda answer: answer.fastest),
            Column("second", lambda answer: answer.second),
            Column("ratio", lambda answer: answer.weighed.shown if answer.weighed else None, "1", units.ratio),
            Column("low", end(lambda reach: reach.low), "1", units.ratio),
            Column("high", end(lambda reach: reach.high), "1", units.ratio),
            Column("level", end(lambda reach: reach.level), "1", "{:.0%}".format),
            Column("answer", lambda answer: answer.confidence if answer.weighed else None),
            *([Column[Answer]("others", lambda answer: ", ".join(answer.shared[2:]) or None)] if shared else []),
            *([Column[Answer]("error", lambda answer: answer.price, "1", units.ratio)] if priced else []),
            Column("evidence", lambda answer: answer.evidence),
            Column("which rests on", lambda answer: answer.reason),
            *(column for question in asked for column in columns_of(question.name)),
        ),
        rows,
        [] if costed else ["least energy: no two lanes have any"],
    )


def cell(answer: Answer) -> str:
    """An answer in the words of a table's cell: `jax 1.24 (1.21 to 1.27) times as fast`."""
    if answer.weighed is None:
        return answer.evidence
    times = answer.weighed.words
    price = _priced([answer])
    of_first = f": {answer.fastest} {times}{price}" if times else ""
    # If more than two lanes may be the fastest, the cell names them, as the columns name only two.
    several = f" ({', '.join(answer.shared)})" if len(answer.shared) > 2 else ""
    if answer.confidence == "equal":
        return f"equal within {100 * EQUAL:.0f} %{several}{of_first}"
    if answer.confidence == "near":
        return f"at most {math.ceil(100 * answer.weighed.reach.farthest)} % apart{several}{of_first}"
    if answer.confidence == "undecided":
        return f"open{several}{of_first}"
    likely = "likely " if answer.confidence == "likely" else ""
    return f"{answer.fastest} {likely}{times} times as fast{price}"


def _in_short(name: str, answer: Answer) -> str | None:
    lane, multiple = answer.least.get(name, (None, 0.0))
    return lane and f"{lane}, {units.ratio(multiple)}"


def in_short(rows: Sequence[Answer]) -> Table:
    """The answers in short, for the end of a run: one row a workload."""
    answered = [question.name for question in QUESTIONS if any(question.name in answer.least for answer in rows)]
    return tabulate(
        "brief-answers",
        "Which lane is faster",
        "",
        (
            *workload_columns(rows),
            *option_columns(rows),
            Column("answer", cell),
            Column("against", lambda answer: answer.second if answer.weighed else None),
            *(Column[Answer](f"least {name}", partial(_in_short, name)) for name in answered),
            Column("evidence", lambda answer: answer.evidence),
        ),
        rows,
    )


def _by_throughput(lanes: Mapping[str, Case]) -> list[str]:
    """The lanes, the one with the highest throughput first."""
    return sorted(lanes, key=lambda lane: -(lanes[lane].value("throughput") or 0.0))


def _first_two(lanes: Mapping[str, Case]) -> tuple[str, str, dict[str, Weighed]]:
    """The fastest lane, its nearest rival (preferably a lane that may be as fast), and all rivals."""
    order = _by_throughput(lanes)
    weighed = {lane: {other: weigh(lanes[lane], lanes[other]) for other in order if other != lane} for lane in order}
    fastest = min(order, key=lambda lane: _losses(weighed[lane]))
    rivals = weighed[fastest]
    # Clearly and likely slower lanes count alike here: among them the least ratio decides.
    doubts = {
        lane: max(_BY_CERTAINTY.index("likely"), _BY_CERTAINTY.index(pair.confidence)) for lane, pair in rivals.items()
    }
    rival = max(rivals, key=lambda lane: (doubts[lane], -rivals[lane].ratio))
    return fastest, rival, rivals


def _losses(rivals: Mapping[str, Weighed]) -> tuple[bool, bool]:
    """Two flags of a lane: a rival is known to be faster; a rival seems to be faster."""
    ahead = [pair for pair in rivals.values() if pair.ratio < 1]
    return any(pair.confidence not in _NOT_APART for pair in ahead), bool(ahead)


def _shared(fastest: str, second: str, rivals: Mapping[str, Weighed]) -> tuple[tuple[str, ...], str]:
    """The lanes that may be the fastest, and the confidence that all others are slower; both empty if only one may."""
    beside = sorted((lane for lane in rivals if rivals[lane].confidence in _NOT_APART), key=lambda lane: lane != second)
    slower = [pair.confidence for pair in rivals.values() if pair.confidence not in _NOT_APART]
    return ((fastest, *beside), max(slower, key=_BY_CERTAINTY.index, default="")) if beside else ((), "")


def _least(lanes: Mapping[str, Case], question: Question) -> tuple[str, float] | None:
    """The lane with the least, and the next lane's multiple of its value; None if no lane surely has the least."""
    values = {lane: value for lane, case in lanes.items() if (value := case.value(question.quantity))}
    # A value of which only an upper bound is known could be anywhere in the order.
    if len(values) < 2 or any(isinstance(value, units.AtMost) for value in values.values()):
        return None
    weighed = {
        lane: [weigh_turns(lanes[lane], lanes[other], question.name) for other in values if other != lane]
        for lane in values
    }
    if all(None not in rivals for rivals in weighed.values()):
        return next(((lane, least) for lane, rivals in weighed.items() if (least := _nearest(rivals))), None)
    first, *others = sorted(values, key=lambda lane: values[lane])
    factors = {lane: lengthening(lanes[lane].measurements) if question.timed else 1.0 for lane in values}
    least_apart = values[first] * (BY_CHANCE if question.timed else 1.0)
    if any(values[lane] / factors[lane] <= least_apart for lane in others):
        return None
    multiple = values[others[0]] / values[first]
    return first, units.Within(multiple, multiple / factors[others[0]], multiple * factors[first])


def _nearest(rivals: Iterable[Weighed | None]) -> units.Within | None:
    """The nearest rival's multiple if all rivals take more; None if one may take less."""
    nearest = min(filter(None, rivals), key=lambda weighed: weighed.reach.low)
    return units.Within(nearest.ratio, nearest.reach.low, nearest.reach.high) if nearest.reach.low > 1 else None
