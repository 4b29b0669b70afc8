"""How well `fwbench history` finds changes, and how often where there are none: the tables in ../history.md.

    python docs/evidence/history.py --otava PYTHON        # writes all tables, in four minutes on one core
    python docs/evidence/history.py gate frogs            # or some of them; these need no Otava
    python docs/evidence/history.py --storage STORAGE     # draws the page's real trend, of the runs in STORAGE

PYTHON is an interpreter of an environment of its own with apache-otava and otava-test-data (`pip install
apache-otava==0.8.0 otava-test-data==0.1.9`), which need an older NumPy. It makes the published test patterns and runs
Otava on the same series as ours. Everything is drawn with fixed seeds.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "history.md"
FIGURE, REAL = ROOT / "docs" / "history.svg", ROOT / "docs" / "history-real.svg"
# Of which workload.
CRAFTED_OF, REAL_OF = "torch", "jax-mlp-inference-b8"
SUITES = ROOT / "docs" / "evidence" / "duet.jsonl"

# Of the published patterns: their own lengths and noise (in percent of the level), and what their truth calls a change
# of the level; the rest of it are single runs, variances and phases.
LENGTHS, NOISE, SEEDS = [50, 500], [0.0, 2.0, 5.0, 10.0], range(10)
LEVELS = {"step", "regression_start", "regression_end"}
# A point this near to a true one is found: the patterns' own rule.
NEAR = 5

# Suites without a change, and of slower and slower runs.
GATED, FROGS = 300, 60

FLOOR, LEAST = 0.01, math.log1p(0.02)

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]
Method = Callable[[Sequence[Sequence[float]]], list[list[int]]]


def patterns() -> list[dict[str, Any]]:
    """The published patterns with their truth, made where they are installed."""
    from otava_test_data.generators.combiner import CombinationGenerator

    return [
        {
            "values": [float(value) for value in one.data],
            "truth": [(point.index, point.change_type) for point in one.change_points],
        }
        for seed in SEEDS
        for one in CombinationGenerator(lengths=LENGTHS, seed=seed).generate_all_test_cases(noise_levels=NOISE)
    ]


def otava(series: Sequence[Sequence[float]], **options: Any) -> list[list[int]]:
    """What Otava finds, where it is installed."""
    from otava.analysis import compute_change_points

    return [[int(point.index) for point in compute_change_points(list(one), **options)[0]] for one in series]


def ours(series: Sequence[Sequence[float]]) -> list[list[int]]:
    """What `fwbench history` finds: of a drift the run at which it has come to its end."""
    from fwbench.ext.history.changes import find

    found = [find(np.log(np.maximum(np.asarray(one), 1e-9)), FLOOR, LEAST) for one in series]
    return [[change.after for change in one.changes] for one in found]


def candidates(series: Sequence[Sequence[float]]) -> list[list[int]]:
    """What ruptures finds alone, with the usual penalty of the Bayesian information criterion."""
    import ruptures

    found = []
    for one in series:
        values = np.log(np.maximum(np.asarray(one), 1e-9)).reshape(-1, 1)
        noise = max(FLOOR, float(np.median(np.abs(np.diff(values[:, 0])))) / 0.6745 / math.sqrt(2))
        search = ruptures.KernelCPD(kernel="linear", min_size=3).fit(values)
        found.append([int(end) for end in search.predict(pen=3 * noise**2 * math.log(len(values)))[:-1]])
    return found


class There:
    """Otava in its own environment.

    Args:
        python: its interpreter.
    """

    def __init__(self, python: str) -> None:
        self._python = python

    def patterns(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask({"patterns": True})
        return found

    def find(self, series: Sequence[Sequence[float]], **options: Any) -> list[list[int]]:
        found: list[list[int]] = self._ask({"series": [list(map(float, one)) for one in series], "options": options})
        return found

    def _ask(self, question: Mapping[str, Any]) -> Any:
        command = [self._python, str(HERE), "--answer"]
        said = subprocess.run(command, input=json.dumps(question), capture_output=True, text=True, check=True)
        return json.loads(said.stdout.splitlines()[-1])


def answer() -> None:
    """The other side of `There`."""
    question = json.load(sys.stdin)
    print(json.dumps(patterns() if "patterns" in question else otava(question["series"], **question["options"])))


# The patterns


def score(truths: Sequence[Sequence[int]], found: Sequence[Sequence[int]]) -> tuple[float, float, float]:
    """Precision, recall and F1 over all series."""
    hits = 0
    for truth, points in zip(truths, found, strict=True):
        left = list(truth)
        for point in sorted(points):
            near = [one for one in left if abs(one - point) <= NEAR]
            if near:
                hits += 1
                left.remove(min(near, key=lambda one: abs(one - point)))
    told, true = sum(map(len, found)), sum(map(len, truths))
    return hits / told, hits / true, 2 * hits / (told + true)


def scores(methods: Mapping[str, Method], given: Sequence[Mapping[str, Any]]) -> list[str]:
    series = [one["values"] for one in given]
    every = [[place for place, _ in one["truth"]] for one in given]
    levels = [[place for place, kind in one["truth"] if kind in LEVELS] for one in given]
    rows = [
        "| method | precision | recall | F1, changes of the level | F1, all that the patterns mark |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, find in methods.items():
        found = find(series)
        precision, recall, f1 = score(levels, found)
        rows.append(f"| {name} | {precision:.3f} | {recall:.3f} | {f1:.3f} | {score(every, found)[2]:.3f} |")
    changes = sum(map(len, levels))
    return [*rows, "", f"{len(series)} series, {changes} changes of the level, {sum(map(len, every))} marks in all."]


# Unchanged series


def resembling(share: float) -> Draw:
    """Each run resembles the run before."""

    def draw(rng: np.random.Generator, count: int) -> Values:
        found = np.zeros(count)
        moved = rng.normal(0, 0.03)
        for place in range(count):
            moved = share * moved + math.sqrt(1 - share**2) * rng.normal(0, 0.03)
            found[place] = moved
        return found

    return draw


UNCHANGED: Mapping[str, Draw] = {
    "normal, 3 %": lambda rng, count: rng.normal(0, 0.03, count),
    "normal, 10 %": lambda rng, count: rng.normal(0, 0.1, count),
    "heavy tails (t, 3 degrees)": lambda rng, count: 0.03 * rng.standard_t(3, count),
    "heavier tails (t, 1.5 degrees)": lambda rng, count: 0.03 * rng.standard_t(1.5, count),
    "only ever longer (exponential, 5 %)": lambda rng, count: rng.exponential(0.05, count),
    "load now and then, which nobody noticed": lambda rng, count: (
        rng.normal(0, 0.02, count) + (rng.random(count) < 0.08) * rng.exponential(0.4, count)
    ),
    "two layouts, 5 % apart": lambda rng, count: rng.choice([0, 0.05], count) + rng.normal(0, 0.01, count),
    "each run resembles the run before (0.3)": resembling(0.3),
    "each run resembles the run before (0.6)": resembling(0.6),
}
# Series of so many runs, and how many of them.
UNCHANGED_LENGTHS = {10: 600, 20: 300, 60: 100, 200: 30}


def false_points(methods: Mapping[str, Method]) -> list[str]:
    rows = [f"| noise | {' | '.join(methods)} |", f"| --- |{' ---: |' * len(methods)}"]
    totals = dict.fromkeys(methods, 0)
    for name, draw in UNCHANGED.items():
        rng = np.random.default_rng(7)
        series = [list(np.exp(draw(rng, count))) for count, of in UNCHANGED_LENGTHS.items() for _ in range(of)]
        runs = sum(map(len, series))
        found = {method: sum(map(len, find(series))) for method, find in methods.items()}
        for method, points in found.items():
            totals[method] += points
        rows.append(f"| {name} | {' | '.join(f'{1000 * points / runs:.2f}' for points in found.values())} |")
    runs = len(UNCHANGED) * sum(count * of for count, of in UNCHANGED_LENGTHS.items())
    rows.append(f"| all | {' | '.join(f'{1000 * points / runs:.2f}' for points in totals.values())} |")
    lengths = ", ".join(f"{of} of {count}" for count, of in UNCHANGED_LENGTHS.items())
    return [*rows, "", f"False points per 1,000 runs; {runs:,} runs, of each noise in series ({lengths})."]


# Changes of known size


def found_share(make: Callable[[np.random.Generator], tuple[Values, Sequence[int]]], count: int = 200) -> float:
    """Share of the true places that have a point near them; of a drift the run at which it ends."""
    rng = np.random.default_rng(11)
    drawn = [make(rng) for _ in range(count)]
    found = ours([list(np.exp(values)) for values, _ in drawn])
    hits = [
        any(abs(point - place) <= 2 for point in points)
        for (_, places), points in zip(drawn, found, strict=True)
        for place in places
    ]
    return sum(hits) / len(hits)


def step(runs: int, after: int, size: float, noise: float) -> float:
    """How often a step is found of which so many runs have followed."""

    def make(rng: np.random.Generator) -> tuple[Values, Sequence[int]]:
        place = runs - after
        return math.log1p(size) * (np.arange(runs) >= place) + rng.normal(0, noise, runs), [place]

    return found_share(make)


def power() -> list[str]:
    sizes = (0.03, 0.05, 0.10, 0.20)
    rows = [
        f"| runs before and after | noise | {' | '.join(f'+{size:.0%}' for size in sizes)} |",
        f"| --- | ---: |{' ---: |' * len(sizes)}",
    ]
    for before, after in ((7, 3), (10, 10), (27, 3), (30, 30)):
        for noise in (0.01, 0.03):
            shares = [step(before + after, after, size, noise) for size in sizes]
            cells = " | ".join(f"{share:.0%}" for share in shares)
            rows.append(f"| {before} and {after} | {noise:.0%} | {cells} |")
    return rows


def frogs() -> list[str]:
    """How often ten runs, each 3 % slower, are found as one drift."""
    from fwbench.ext.history.changes import find

    rows = ["| runs before them | noise | found | as one drift |", "| ---: | ---: | ---: | ---: |"]
    for before in (0, 10):
        for noise in (0.01, 0.02, 0.03):
            rng = np.random.default_rng(13)
            found = []
            for _ in range(200):
                rise = math.log(1.03) * np.concatenate([np.zeros(before), np.arange(10)])
                found.append(find(rise + rng.normal(0, noise, len(rise)), FLOOR, LEAST).changes)
            some = sum(bool(changes) for changes in found) / len(found)
            drifts = sum(len(changes) == 1 and changes[0].drift for changes in found) / len(found)
            rows.append(f"| {before} | {noise:.0%} | {some:.0%} | {drifts:.0%} |")
    return rows


# The gate


def gate() -> list[str]:
    """How often suites without a change fail: with their series, and against the baseline alone."""
    from fwbench.compare import saved
    from tests.unit.test_best import gaussian, heavy_tails, persistent, unchanged

    rows = [
        "| runs differ by | processes a side | suites that fail | against the baseline alone |",
        "| --- | ---: | ---: | ---: |",
    ]
    kinds = {"normally": gaussian, "with heavy tails": heavy_tails, "each like the run before (0.7)": persistent}
    for scale in (0.03, 0.05):
        for name, states in kinds.items():
            for processes in (1, 5):
                rng = np.random.default_rng(5)
                suites = [unchanged(rng, states, scale, processes) for _ in range(GATED)]
                cells = (
                    sum(any(one.kind == "regressed" for one in saved._judged(cases)) for cases in of) / GATED
                    for of in zip(*suites, strict=True)
                )
                rows.append(f"| {scale:.0%}, {name} | {processes} | {' | '.join(f'{share:.1%}' for share in cells)} |")
    return [*rows, "", f"{GATED} suites of 20 benchmarks a cell, after 20 runs each."]


def gate_frogs() -> list[str]:
    """How often the gate finds the tenth of ten runs, each 3 % slower than the one before."""
    from fwbench.compare.criteria import CRITERIA
    from fwbench.compare.saved import compare
    from fwbench.record.storage import Record
    from tests.unit.recorded import measured
    from tests.unit.test_best import record

    def suite(rng: np.random.Generator, number: int, noise: float, processes: int) -> Record:
        levels = math.log(1.03) * number + rng.normal(0, noise, 6)
        scattered = [np.exp(level + rng.normal(0, 0.01, processes)) for level in levels]
        of_processes = [tuple({"latency": float(value)} for value in values) for values in scattered]
        return record(number, *(measured(model=f"m{n}", processes=of) for n, of in enumerate(of_processes)))

    limits = {"latency": CRITERIA["latency"].saved}
    rows = ["| runs differ by | processes a side | suites that fail | against the run before alone |"]
    rows.append("| ---: | ---: | ---: | ---: |")
    for noise in (0.01, 0.02, 0.03):
        for processes in (1, 5):
            rng, found = np.random.default_rng(1), [0, 0]
            for _ in range(FROGS):
                runs = [suite(rng, number, noise, processes) for number in range(10)]
                for place, earlier in enumerate((runs[:-1], [])):
                    outcome = compare(runs[-2], runs[-1], limits, earlier=earlier)
                    found[place] += any(finding.kind == "regressed" for finding in outcome.findings)
            rows.append(f"| {noise:.0%} | {processes} | {found[0] / FROGS:.0%} | {found[1] / FROGS:.0%} |")
    return [*rows, "", f"{FROGS} suites of six benchmarks a cell."]


# Runs that were really made


def real() -> list[str]:
    """The self-test's suites in the order of their making, each side a run; nothing changes but the machine."""
    from fwbench.compare import evidence
    from fwbench.ext.history.trends import histories
    from tests.unit.test_best import loaded_suites

    runs = [side for sides in loaded_suites() for side in sides]
    quiet = sum(side.measurements[0].value("other_load") <= 0.05 for side in runs if side.measurements)
    (history,) = histories(runs)
    latencies = [one for one in history.series if one.metric == "latency"]
    points = sum(len(one.points) - len(one.unsure) for one in latencies)
    found = sum(len(one.shifts) for one in latencies)
    machine = evidence.read(SUITES).header["machine"]["cpu"]
    return [
        f"{len(latencies)} series of {len(runs)} runs on a shared {machine}, {quiet} of them beside less than 5 % of "
        f"other load: {points} points that count, {found} change points ({1000 * found / points:.2f} in 1,000)."
    ]


def figure() -> None:
    """The trend of the page's example: sixty crafted runs, of which some are missing, loaded or alone."""
    from tempfile import TemporaryDirectory

    from tests.ext.history.test_history import run, sixty, timed
    from tests.unit.recorded import write

    with TemporaryDirectory() as folder:
        for number, seconds in enumerate(sixty()):
            load = 0.3 if number in (5, 30) else 0.0
            slower = 3 if load else 2 if number == 20 else 1
            version = "2.14.0" if number < 34 else "2.15.0"
            m = timed(float(seconds * slower), load, versions={"torch": version})
            lanes = [timed(0.1, lane="jax")] if number in (17, 18) else [m]
            write(Path(folder) / f"{number:04d}.json", run(number, *lanes))
        trend(Path(folder), CRAFTED_OF, FIGURE)


def trend(storage: Path, of: str, path: Path) -> None:
    """Draw the trend of the first workload in a storage folder whose name begins so."""
    from fwbench.ext.history.page import drawings
    from fwbench.ext.history.trends import histories
    from fwbench.record.reading import series
    from fwbench.report.figures import save

    (history,) = histories(series(storage)[0])
    save(next(drawing for drawing, _ in drawings(history) if drawing.title.startswith(of)), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--otava", metavar="PYTHON")
    parser.add_argument("--storage", type=Path)
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer()
        return
    if options.storage:
        trend(options.storage, REAL_OF, REAL)
        return
    sys.path.insert(0, str(ROOT))
    there = There(options.otava or "")
    methods: dict[str, Method] = {
        "fwbench history": ours,
        "Otava 0.8.0": there.find,
        "ruptures 1.1.10 alone": candidates,
    }
    tables: dict[str, Callable[[], list[str]]] = {
        "gate": gate,
        "gate frogs": gate_frogs,
        "real": real,
        "frogs": frogs,
        "power": power,
        "patterns": lambda: scores(methods, there.patterns()),
        "unchanged": lambda: false_points(methods),
    }
    figure()
    for name in options.tables or tables:
        if name in ("patterns", "unchanged") and not options.otava:
            parser.error(f"{name} needs --otava")
        table = tables[name]()
        text = PAGE.read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, after = text.split(begin)[0], text.split(end)[1]
        PAGE.write_text(before + begin + "\n".join(table) + "\n" + end + after, encoding="utf-8")
        print(name, *table, sep="\n", flush=True)


if __name__ == "__main__":
    main()
