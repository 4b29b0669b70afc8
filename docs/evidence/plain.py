"""How often a gate of plain tests is wrong: suites of which it is known what has changed, and public repositories.

    python docs/evidence/plain.py suites 40 WORK         runs suites in WORK until plain.jsonl holds 40, half under load
    python docs/evidence/plain.py growing 8 WORK         the same for suites of growing functions, in growing.jsonl
    python docs/evidence/plain.py repositories FOLDER    gates the clones in FOLDER; adds to repositories.jsonl
    python docs/evidence/plain.py --page                 writes plain.md

A suite is a repository of plain tests, with the fixture `benchmark` and nothing of fwbench's, and has two commits: in
the second some functions do 21 units of work where they did 20. Beside these are functions whose processes or calls
have two speeds, and functions that grow with each call. In every second suite a process computes on one CPU for half of
the time, in spells of up to 8 s. A suite of growing functions has as many others, and nothing planted. Suites need
NumPy, PyTorch and JAX; the machine must do nothing else.
"""

import dataclasses
import json
import math
import random
import shutil
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median, stdev
from typing import NamedTuple

from lines import stored, table

from fwbench.compare.findings import Outcome
from fwbench.ext.ci.summary import read

HERE = Path(__file__).resolve().parent
DATA, GROWING, OF_REPOSITORIES, PAGE = (
    HERE / name for name in ("plain.jsonl", "growing.jsonl", "repositories.jsonl", "plain.md")
)
MINUTES = 4
CONDITIONS = {False: "quiet", True: "a process computes for half of it"}
KINDS = ("regressed", "improved", "unchanged", "inconclusive")

# About how many seconds a unit of each kind of work takes, the unit, and what it needs.
UNITS = {
    "python": (4e-8, "value = (value * 5 + 1) & 1023", ""),
    "numpy": (3e-7, "np.add(ROW, ROW, out=OTHER)", "import numpy as np\nROW, OTHER = np.ones(500), np.empty(500)\n"),
    "torch": (8e-7, "torch.add(A, A, out=B)", "import torch\nA, B = torch.ones(500), torch.empty(500)\n"),
    "jax": (
        6e-6,
        "value = STEP(value)",
        "import jax\njax.config.update('jax_platforms', 'cpu')\nSTEP = jax.jit(lambda value: value * 0.5 + 1.0)\n",
    ),
}
# The functions of a suite: 5 % are planted in three, and one is long. The limits of a call's seconds.
COUNT, SHARE, USUAL, LONG = 9, 0.05, (1e-6, 1e-2), (1e-2, 1e-1)
# The odd functions, so many in a suite: limits, units, and the note that names them. SLOW is drawn by process.
ODDS = 2
# The functions of each kind in a suite of growing ones.
EACH = 5
ODD = {
    "by_process": ((3e-5, 2e-3), "units * 13 // 10 if SLOW else units", "processes have two speeds"),
    "by_call": ((1e-4, 1e-2), "units * 13 // 10 if random.random() < 0.5 else units", "calls have two speeds"),
    "grows": ((2e-6, 1e-4), "units + kept() // 8", "with each one"),
    "creeps": ((3e-5, 1e-3), "units + units * kept() // 2000", "with each one"),
}
TRUTHS = ("unchanged", "5 % slower", *ODD)

WORK = """
import os, random
SLOW = os.urandom(1)[0] % 2
KEPT = []
UNITS = {UNITS}

def kept():
    KEPT.append(1)
    return len(KEPT)
"""
FUNCTION = """
def of_{name}(units):
    value = 1
    for _ in range({count}):
        {unit}
    return value
"""
TESTS = """
import pytest
import work

@pytest.mark.parametrize("name", list(work.UNITS))
def test(benchmark, name):
    work.KEPT = []
    benchmark(getattr(work, "of_" + name.partition("-")[0]), work.UNITS[name])
"""
SPIN = """
import os, random, time
drawn = random.Random({number})
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
while True:
    end = time.monotonic() + drawn.uniform(1, 8)
    while time.monotonic() < end:
        pass
    time.sleep(drawn.uniform(1, 8))
"""


def functions(number: int) -> dict[str, tuple[int, int]]:
    """The functions of a suite, drawn by its number: units of work in base and in head."""
    drawn = random.Random(number)
    kinds, chosen = ("python", "numpy", ("torch", "jax")[number // 2 % 2]), {}
    for index in range(COUNT):
        kind = kinds[index % 3]
        seconds = math.exp(drawn.uniform(*map(math.log, LONG if index == number % COUNT else USUAL)))
        twentieth = max(1, round(seconds / UNITS[kind][0] * SHARE))
        chosen[f"{kind}-{index}"] = 20 * twentieth, (21 if index // 3 % 3 == 1 else 20) * twentieth
    for name in list(ODD)[number // 4 % 2 :: len(ODD) // ODDS]:
        limits = ODD[name][0]
        chosen[name] = (round(math.exp(drawn.uniform(*map(math.log, limits))) / UNITS["python"][0]),) * 2
    return chosen


def growing(number: int) -> dict[str, tuple[int, int]]:
    """Functions that grow, drawn by the suite's number, and as many that do not: the same units in base and head."""
    drawn = random.Random(1000 + number)
    chosen = {}
    for index in range(EACH):
        for name in ("grows", "creeps"):
            seconds = math.exp(drawn.uniform(*map(math.log, ODD[name][0])))
            chosen[f"{name}-{index}"] = (round(seconds / UNITS["python"][0]),) * 2
    for index in range(2 * EACH):
        kind = list(UNITS)[index % len(UNITS)]
        seconds = math.exp(drawn.uniform(*map(math.log, USUAL)))
        chosen[f"{kind}-{index}"] = (max(1, round(seconds / UNITS[kind][0])),) * 2
    return chosen


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    subprocess.run(("git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments), cwd=folder, check=True)


def gated(python: str, folder: Path, against: str, minutes: float, *arguments: str) -> Outcome:
    """The outcome of a gate of a repository."""
    summary = folder.with_suffix(".json")
    options = ["-q", "--benchmark-only", f"--fwbench-against={against}", f"--fwbench-minutes={minutes}"]
    command = [python, "-m", "pytest", *options, f"--fwbench-summary={summary}", *arguments]
    summary.unlink(missing_ok=True)
    with folder.with_suffix(".log").open("w") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False)
    return read(summary)


def suite(work: Path, number: int, chosen: Mapping[str, tuple[int, int]]) -> list[dict]:
    """Write and gate a suite of these functions; return a line for each of its comparisons."""
    folder, loaded = work / f"suite-{number}", number % 2 == 1
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "test_work.py").write_text(TESTS)
    kinds = [name for name in UNITS if any(each.startswith(name) for each in chosen)]
    defined = [(name, "units", UNITS[name][1]) for name in kinds]
    defined += [(name, count, UNITS["python"][1]) for name, (_, count, _) in ODD.items()]
    text = "".join(UNITS[name][2] for name in kinds) + WORK
    text += "".join(FUNCTION.format(name=name, count=count, unit=unit) for name, count, unit in defined)
    for side, commit in enumerate(("base", "head")):
        units = repr({name: both[side] for name, both in chosen.items()})
        (folder / "work.py").write_text(text.replace("{UNITS}", units))
        git(folder, "add", "work.py", "test_work.py")
        git(folder, "commit", "--allow-empty", "-qm", commit)
    begun = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", SPIN.format(number=number) if loaded else ""]) as beside:
        try:
            outcome = gated(sys.executable, folder, "HEAD~1", MINUTES)
        finally:
            beside.kill()
    facts = {"suite": number, "loaded": loaded, "seconds": round(time.monotonic() - begun, 1)}
    lines = []
    for finding in map(dataclasses.asdict, outcome.findings):
        name = finding["benchmark"].partition("[")[2].removesuffix("]")
        kind = name.partition("-")[0]
        truth = kind if kind in ODD else TRUTHS[chosen[name][1] > chosen[name][0]]
        lines.append({**facts, **finding, "benchmark": name, "truth": truth})
    return lines


class Repository(NamedTuple):
    """A public repository: what pip installs besides, pytest's arguments, and the most minutes of its gate.

    Shares of a call of `test` are planted in a file, in a function that is entered so many times.
    """

    url: str
    commit: str
    installed: Sequence[str]
    arguments: Sequence[str]
    minutes: float
    test: str
    planted: dict[float, tuple[str, str, int]]


REPOSITORIES = {
    "pint": Repository(
        "https://github.com/hgrecco/pint",
        "6fc05335ef2820736efec7c5b9d55433acfb6aad",
        ["numpy", "pytest-subtests"],
        ["pint/testsuite/benchmarks"],
        30,
        "pint/testsuite/benchmarks/test_10_registry.py::test_parse_expression[True-kilometer]",
        {0.05: ("pint/facets/plain/registry.py", "parse_expression", 1), 0.3: ("pint/pint_eval.py", "evaluate", 3)},
    ),
    "cattrs": Repository(
        "https://github.com/python-attrs/cattrs",
        "82b02c07ca535a1ba656b935767d819eac9d383b",
        ["msgspec", "orjson"],
        ["bench"],
        15,
        "bench/test_attrs_nested.py::test_unstruct_attrs_deep_nest[UnstructureStrategy.AS_DICT-BaseConverter]",
        {0.05: ("src/cattrs/converters.py", "unstructure", 1), 0.3: ("src/cattrs/_compat.py", "fields", 1365)},
    ),
    "graphql-core": Repository(
        "https://github.com/graphql-python/graphql-core",
        "e49e4e2d8aa7b752ddd194aa689ce418a327c503",
        ["pytest-asyncio", "pytest-describe", "pytest-timeout"],
        ["tests/benchmarks", "--benchmark-enable"],
        15,
        "tests/benchmarks/test_parser.py::test_parse_kitchen_sink",
        {
            0.05: ("src/graphql/language/parser.py", "parse_document", 1),
            0.3: ("src/graphql/language/lexer.py", "read_name", 79),
        },
    ),
}


def prepared(folder: Path, name: str, repository: Repository) -> tuple[Path, str]:
    """A clone at its commit, and the Python of an environment with it and fwbench."""
    clone, own = folder / "gated" / name, folder / "gated" / f"{name}.env"
    python = str(own / "bin" / "python")
    if not clone.exists():
        git(folder, "clone", "-q", str(folder / name), str(clone))
    git(clone, "checkout", "-q", "--force", repository.commit)
    if not own.exists():
        venv.create(own, with_pip=True)
        wanted = ["-e", str(HERE.parents[1]), "-e", str(clone), *repository.installed]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return clone, python


def plant(python: str, path: Path, function: str, seconds: float) -> int:
    """Have a function of a file spin for so many seconds first; return the line."""
    timed = "import timeit; print(min(timeit.repeat('for _ in range(1000): pass', number=1000, repeat=9)))"
    each = float(subprocess.run([python, "-c", timed], check=True, capture_output=True, text=True).stdout) / 1e6
    lines = path.read_text().splitlines(keepends=True)
    line = next(number for number, text in enumerate(lines) if text.lstrip().startswith(f"def {function}("))
    # Behind the signature, which may take several lines.
    line = next(number for number in range(line, len(lines)) if lines[number].rstrip().endswith(":")) + 1
    indent = lines[line][: -len(lines[line].lstrip())]
    lines.insert(line, f"{indent}for _ in range({max(1, round(seconds / each))}): pass\n")
    path.write_text("".join(lines))
    return line + 1


def gate(folder: Path, name: str) -> Iterator[dict]:
    """Gate a repository: HEAD against itself, then with each slowdown; `explain` is to name the line of a large one."""
    repository, test = REPOSITORIES[name], REPOSITORIES[name].test
    clone, python = prepared(folder, name, repository)
    outcome = gated(python, clone, "HEAD", repository.minutes, *repository.arguments)
    yield {"repository": name, "planted": 0.0, **dataclasses.asdict(outcome)}
    call = next(each.base for each in outcome.findings if (each.benchmark, each.metric) == (test, "latency"))
    options = [each for each in repository.arguments if each.startswith("-")]
    for share, (file, function, times) in repository.planted.items():
        line = plant(python, clone / file, function, share * call / times)
        outcome = gated(python, clone, "HEAD", repository.minutes, test, *options)
        facts = {"repository": name, "planted": share, "place": f"{file}, line {line}", **dataclasses.asdict(outcome)}
        if share > 0.1:
            git(clone, "commit", "-qam", "planted")
            command = [python, "-m", "fwbench", "explain", "HEAD~1", "HEAD", "--test", test, "--minutes", "10"]
            begun = time.monotonic()
            said = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
            facts |= {"explained": said.stdout or said.stderr, "explaining": time.monotonic() - begun}
        git(clone, "checkout", "-q", "--force", repository.commit)
        yield facts


def shown(line: dict) -> str:
    """What a comparison says."""
    if not (verdict := line["verdict"]):
        return f"{line['kind']}, {line['note']}"
    low, high = (f"{end - 1:+.1%}" for end in verdict["interval"])
    return f"{line['kind']}, {verdict['ratio'] - 1:+.1%} ({low} to {high})"


def page(lines: list[dict], grown: list[dict], gates: list[dict]) -> str:
    """The data as Markdown."""
    seconds = [line["seconds"] for line in {line["suite"]: line for line in lines}.values()]
    timed = [line for line in lines if line["metric"] == "latency"]
    verdicts = []
    for loaded, condition in CONDITIONS.items():
        for truth in TRUTHS:
            of = [line for line in timed if (line["loaded"], line["truth"]) == (loaded, truth)]
            errors = [math.log(line["verdict"]["ratio"]) - math.log1p(SHARE) * (truth == TRUTHS[1]) for line in of]
            bias = f"{100 * mean(errors):+.2f} % ± {100 * stdev(errors) / math.sqrt(len(errors)):.2f}" if of[1:] else ""
            right = [truth in ODD and ODD[truth][2] in line["note"] for line in of]
            named = [any(word in line["note"] for *_, word in ODD.values()) for line in of]
            verdicts.append((condition, truth, len(of), *counts(of), bias, sum(right), sum(named) - sum(right)))
    expected = {truth: ("regressed",) * (truth == TRUTHS[1]) + KINDS[2:] for truth in TRUTHS}
    alarms = [line for line in lines if line["kind"] not in expected[line["truth"]]]
    wrong = [f"- suite {line['suite']}: {line['benchmark']}, {line['metric']}: {shown(line)}" for line in alarms]
    failed = {line["suite"] for line in alarms if line["kind"] != "improved"}
    return f"""# How often a gate of plain tests is wrong

Made by `python docs/evidence/plain.py` on an Intel Xeon that is slow in spells, with two cores.

{len(seconds)} suites of {COUNT + ODDS} functions each took {median(seconds):.0f} s, at most {max(seconds):.0f} s.
{len(failed)} of them failed for a function that is as fast as before.

{table(("suites", "functions", "comparisons", *KINDS, "mean error", "named", "misnamed"), verdicts)}

`by_process`: half of the processes take 1.3 times as long, on either side; `by_call`: half of the calls do; `grows`,
`creeps`: a list grows with each call, and the call with it. *Named*: a note says so. Notes on growth are those of an
older rule, which the spells of this machine hid it from. Wrong:

{chr(10).join(wrong) or "- nothing"}

## Growing functions

{of_growing(grown)}

## Public repositories

{chr(10).join(of_repositories(gates)) or "Not gated yet."}
"""


def of_growing(lines: Sequence[dict]) -> str:
    """A table of what the notes say of functions that grow, and of others."""
    note = ODD["grows"][2]
    rows = []
    for loaded, condition in CONDITIONS.items():
        for truth in ("grows", "creeps", TRUTHS[0]):
            of = [
                line for line in lines if (line["loaded"], line["truth"], line["metric"]) == (loaded, truth, "latency")
            ]
            rows.append((condition, truth, len(of), *counts(of), sum(note in line["note"] for line in of)))
    count = len({line["suite"] for line in lines})
    return f"""{count} suites on a virtual machine with two AMD EPYC cores, by today's rule: a line through each pair of
processes. Calls that grow by less than 2 % within a process are not named.

{table(("suites", "functions", "comparisons", *KINDS, "named as growing"), rows)}"""


def counts(lines: Sequence[dict]) -> tuple[int, ...]:
    count = Counter(line["kind"] for line in lines)
    return tuple(count[kind] for kind in KINDS)


def of_repositories(gates: Iterable[dict]) -> Iterator[str]:
    """A table of the gates, and what was explained."""
    rows, explained = [], []
    for gate in gates:
        url = "/tree/".join(REPOSITORIES[gate["repository"]][:2])
        of = [line for line in gate["findings"] if line["metric"] in ("", "latency")]
        where = f"about {gate['planted']:+.0%} in `{gate['place']}`" if gate["planted"] else "the same"
        count = Counter(line["kind"] for line in of)
        answer = "; ".join(map(shown, of)) if gate["planted"] else ", ".join(f"{count[kind]} {kind}" for kind in count)
        rows.append((f"[{gate['repository']}]({url})", where, len(of), answer, f"{gate['seconds'] / 60:.1f}"))
        if gate.get("explained"):
            what = f"{gate['repository']}, {where}, explained in {gate['explaining'] / 60:.1f} minutes"
            explained.append(f"\n{what}:\n\n```text\n{gate['explained']}```")
    if rows:
        yield (
            "Each is cloned at a commit and gated without a changed line. What is planted is a loop at the beginning "
            "of a function; its share is what so many turns take elsewhere, so it is about that.\n"
        )
        yield table(("repository", "head", "benchmarks", "answer", "minutes"), rows)
    yield from explained


def keep(path: Path, lines: Iterable[dict]) -> None:
    with path.open("a") as data:
        data.writelines(f"{json.dumps(line)}\n" for line in lines)


def main() -> None:
    if sys.argv[1] == "--page":
        PAGE.write_text(page(stored(DATA), stored(GROWING), stored(OF_REPOSITORIES)))
    elif sys.argv[1] in ("suites", "growing"):
        data, draw = (DATA, functions) if sys.argv[1] == "suites" else (GROWING, growing)
        while (number := len({line["suite"] for line in stored(data)})) < int(sys.argv[2]):
            keep(data, suite(Path(sys.argv[3]).resolve(), number, draw(number)))
    else:
        done = {line["repository"] for line in stored(OF_REPOSITORIES)}
        for name in [name for name in REPOSITORIES if name not in done]:
            keep(OF_REPOSITORIES, list(gate(Path(sys.argv[2]).resolve(), name)))


if __name__ == "__main__":
    main()
