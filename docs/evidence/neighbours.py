"""How far pairs of plain tests miss the truth, by what their turns are made into.

    python docs/evidence/neighbours.py WORK       adds the pairs of the suites that plain.py has run in WORK
    python docs/evidence/neighbours.py --page     writes neighbours.md

A pair has blocks of four turns: base, head, head, base, or the other way round. Of each turn its fastest call is kept.
"""

import json
import math
import random
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import plain
from lines import stored, table

from fwbench.compare.pair import Pair
from fwbench.ext.causes.speeds import remarks
from fwbench.machine import machine

HERE = Path(__file__).resolve().parent
DATA, PAGE = HERE / "neighbours.jsonl", HERE / "neighbours.md"
# Turns of a side; its calls of two speeds are no matter of an estimator's.
TURNS, LEFT_OUT = 12, ("by_process", "by_call")
# Made-up functions: their number, their pairs, and the logarithms by which their calls grow within a process.
SAMPLES, COUNTS, GROWN = 1000, (3, 8, 16), (0.0, 0.1, 0.3)

Turns = Sequence[float]


def blocks(base: Turns, head: Turns) -> float:
    means = [(head[at] + head[at + 1] - base[at] - base[at + 1]) / 2 for at in range(0, len(base), 2)]
    return statistics.median(means)


def neighbours(base: Turns, head: Turns) -> float:
    return statistics.median(theirs - own for own, theirs in zip(base, head, strict=True))


def medians(base: Turns, head: Turns) -> float:
    return statistics.median(head) - statistics.median(base)


def fastest(base: Turns, head: Turns) -> float:
    return statistics.fmean(sorted(head)[:3]) - statistics.fmean(sorted(base)[:3])


RULES: dict[str, Callable[[Turns, Turns], float]] = {
    "median over neighbours": neighbours,
    "median over blocks": blocks,
    "each side's median": medians,
    "each side's three fastest": fastest,
}


def pairs(work: Path) -> Iterator[dict]:
    """The pairs in the journals of a folder's suites: logarithms of each side's turns over the fastest of all."""
    for journal in sorted(work.glob("suite-*/.benchmarks/journal/*.jsonl")):
        number = int(re.findall(r"suite-(\d+)", str(journal))[-1])
        chosen = plain.functions(number)
        for text in journal.read_text().splitlines():
            record = json.loads(text)
            if "pair" not in record:
                continue
            name, rounds = record["test"].partition("[")[2].removesuffix("]"), record["pair"]["rounds"]
            if name in LEFT_OUT or len(rounds["base"]) % TURNS or len(rounds["base"]) != len(rounds["head"]):
                continue
            of_turn = len(rounds["base"]) // TURNS
            least = min(map(min, rounds.values()))
            turns = {
                side: [
                    round(math.log(min(calls[at : at + of_turn]) / least), 4) for at in range(0, len(calls), of_turn)
                ]
                for side, calls in rounds.items()
            }
            planted = chosen[name][1] > chosen[name][0]
            yield {"cpu": machine().cpu, "loaded": number % 2 == 1, "planted": planted, **turns}


def named(lines: Sequence[dict], count: int, grown: float) -> float:
    """The share of made-up functions that are named as growing.

    Each has so many of these pairs, drawn by lot, and its calls grow by a logarithm of `grown` within a process.
    """
    drawn, found = random.Random(count), 0
    for _ in range(SAMPLES):
        pairs = []
        for line in drawn.choices(lines, k=count):
            sides = ("base", "head")
            calls = {
                side: [math.exp(turn + grown * at / TURNS) for at, turn in enumerate(line[side])] for side in sides
            }
            pairs.append(Pair({}, calls, {side: {} for side in sides}, {}, drift=0.0, seconds=1.0))
        found += plain.ODD["grows"][2] in "".join(remarks(pairs))
    return found / SAMPLES


def page(lines: list[dict]) -> str:
    growing = [
        (
            condition,
            count,
            *(f"{named([line for line in lines if line['loaded'] == loaded], count, grown):.1%}" for grown in GROWN),
        )
        for loaded, condition in plain.CONDITIONS.items()
        for count in COUNTS
    ]
    rows = []
    for loaded, condition in plain.CONDITIONS.items():
        of = [line for line in lines if line["loaded"] == loaded]
        for turns in (TURNS // 2, TURNS):
            for rule, estimate in RULES.items():
                off = [
                    estimate(line["base"][:turns], line["head"][:turns]) - math.log1p(plain.SHARE) * line["planted"]
                    for line in of
                ]
                half, most = (statistics.quantiles(map(abs, off), n=10)[decile] for decile in (4, 8))
                spread = (statistics.fmean(off), statistics.stdev(off), half, most)
                rows.append((condition, turns, rule, len(of), *(f"{100 * number:.2f} %" for number in spread)))
    cpus = " and ".join(sorted({line["cpu"] for line in lines}))
    return f"""# What a pair's turns are made into

Made by `python docs/evidence/neighbours.py` from the pairs of [suites of plain tests](plain.md) on {cpus}, two cores, a
machine that is slow in spells. By how much a pair misses the truth: 0, or {plain.SHARE:.0%} where that is planted.

{table(("suites", "turns", "rule", "pairs", "mean", "sd", "half within", "90 % within"), rows)}

## Functions named as growing

{SAMPLES} made-up functions of so many of these pairs, drawn by lot, whose calls grow within a process by what the
column says. Some of the pairs are of functions that do grow.

{table(("suites", "pairs", *(f"{math.expm1(grown):.0%}" for grown in GROWN)), growing)}
"""


def main() -> None:
    if sys.argv[1] == "--page":
        PAGE.write_text(page(stored(DATA)))
    else:
        plain.keep(DATA, pairs(Path(sys.argv[1]).resolve()))


if __name__ == "__main__":
    main()
