"""Every lane against the baseline: one ratio of throughputs for each workload and lane."""

from collections.abc import Callable, Sequence

from fwbench import units
from fwbench.compare.cases import Case, by_workload, grouped, in_words, title
from fwbench.compare.parity import WORDS
from fwbench.compare.ratios import FEWEST_ROUNDS, LEVEL, NEAR
from fwbench.compare.weighing import BY_CHANCE, Judged, Weighed, judge
from fwbench.report.columns import workload_columns
from fwbench.report.tables import Column, Table, tabulate


def ratios(cases: Sequence[Case], baseline: str | None) -> list[Judged]:
    """Each lane against the baseline, for each workload for which both have a throughput."""
    return [
        judge(case, beside)
        for lanes in by_workload(cases).values()
        if (beside := lanes.get(baseline or "")) and beside.value("throughput")
        for case in lanes.values()
        if case is not beside and case.value("throughput")
    ]


def sentences(rows: Sequence[Judged], baseline: str) -> list[str]:
    """A sentence for each mode on all lanes against the baseline; none if only one lane stands beside it."""
    if len({ratio.case.workload.lane for ratio in rows}) < 2:
        return []
    sentences = []
    for mode, of_mode in grouped(rows, lambda ratio: ratio.workload.mode).items():
        by_lane = grouped(of_mode, lambda ratio: ratio.case.workload.lane)
        tallies = "; ".join(f"{title(lane)} {_tally(of)}" for lane, of in by_lane.items())
        sentences.append(f"Throughput against {title(baseline)}, {in_words(mode)}: {tallies}.")
    return sentences


def _tally(rows: Sequence[Judged]) -> str:
    known = [ratio.weighed for ratio in rows if ratio.weighed]
    decided = [weighed for weighed in known if weighed.confidence in ("clear", "likely")]
    higher = sum(weighed.ratio > 1 for weighed in decided)
    near = {kind: sum(weighed.confidence == kind for weighed in known) for kind in ("equal", "near")}
    counts = {
        "higher": higher,
        "lower": len(decided) - higher,
        "equal": near["equal"],
        f"at most {100 * NEAR:.0f} % apart": near["near"],
        "undecided": len(known) - len(decided) - sum(near.values()),
        "not comparable": len(rows) - len(known),
    }
    return ", ".join(f"{word} in {count} of {len(rows)}" for word, count in counts.items() if count)


def table(rows: Sequence[Judged], baseline: str) -> Table:
    """The table of ratios: one row a workload and lane."""

    def number(name: str, of: Callable[[Weighed], float | None], show: Callable[[float], str]) -> Column[Judged]:
        return Column(name, lambda ratio: of(ratio.weighed) if ratio.weighed else None, "1", show)

    return tabulate(
        "ratios",
        f"Every lane against {title(baseline)}",
        f"Throughput over that of {title(baseline)} on the same workload: above 1x the lane is faster. "
        f"{FEWEST_ROUNDS} rounds of turns give an interval at {LEVEL:.0%}; two pairs of processes give one, too, which "
        f"six bring to 95 %. One process each has no interval: by chance it can be off by a factor of {BY_CHANCE:g}. A "
        f"ratio from one number to another was disturbed, and lies somewhere between them. Evidence: {WORDS}.",
        (
            *workload_columns(rows),
            Column("lane", lambda ratio: ratio.case.lane),
            Column("ratio", lambda ratio: ratio.shown, "1", units.ratio),
            number("from", lambda weighed: weighed.interval.low if weighed.interval else None, units.ratio),
            number("to", lambda weighed: weighed.interval.high if weighed.interval else None, units.ratio),
            number("at", lambda weighed: weighed.interval.level if weighed.interval else None, "{:.0%}".format),
            number("pairs", lambda weighed: len(weighed.pairs), "{:.0f}".format),
            Column("confidence", lambda ratio: ratio.confidence),
            Column("evidence", lambda ratio: ratio.evidence),
            Column("disturbed by", lambda ratio: ratio.weighed.disturbed if ratio.weighed else ""),
        ),
        rows,
    )
