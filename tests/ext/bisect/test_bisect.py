"""`fwbench bisect` over real commits, with given pairs, then once with real pairs."""

import dataclasses
import json
import math
import re
import time

import pytest

from fwbench.commands.cli import main
from fwbench.compare.pair import Fault, Pair
from fwbench.errors import Absent
from fwbench.ext.bisect import ranges
from fwbench.ext.causes import searching, series
from fwbench.record.measurement import Failure
from fwbench.worker.turns.pairs import Pairs
from tests.unit.recorded import outputs
from tests.unit.shared import git

ASKED = ("device=cpu", "--model=tiny", "--lane=torch")


@pytest.fixture
def repository(tmp_path, searches):
    """A function that commits each text in the project's file `cost`: the seconds of a call, or a fault."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    searches(folder)

    def make(*costs):
        for number, cost in enumerate(costs):
            (folder / "cost").write_text(cost)
            git(folder, "add", "cost")
            git(folder, "commit", "--quiet", "--allow-empty", "--message", f"Commit {number}")
        return folder

    return make


class Given:
    """Pairs that compare each side's `cost` without noise.

    Attributes:
        made: how many objects were created.
    """

    made = 0

    def __init__(self, base, head, models, machine, device, deadline, profiled, servers, cold, warm, metered):
        Given.made += 1
        self.sides = {"base": base, "head": head}
        self.machine = machine
        self.asked = {"compile_time": cold, "warm_start": warm, "energy": metered}

    def play(self, workloads, arrived):
        (workload,) = workloads
        arrived(workload, self.pair(workload))

    def pair(self, workload):
        assert (self.machine.threads, workload.id) == (1, "torch-tiny-inference-b1")
        costs, described = {}, {}
        for name in ("head", "base"):
            side = self.sides[name]
            assert (side.name, side.root in side.path) == (name, True)
            text, _, size = (side.root / "cost").read_text().partition(" computes ")
            described[name] = {"outputs": outputs(float(size or 1))}
            if not text.replace(".", "").isdigit():
                return Fault(name, side.title, Failure("error", text, "duet"))
            costs[name] = float(text)
        change = math.log(costs["head"] / costs["base"])
        return Pair({"latency": change}, {}, {}, described, 0.0, 1.0)


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(series, "Pairs", Given)


@pytest.fixture
def bisect(command):
    return lambda span, *options, code=0: command("bisect", span, *ASKED, *options, code=code)


def commit(folder, back):
    """How a commit is named that lies so many before the newest."""
    return git(folder, "rev-parse", "--short=12", f"main~{back}")


def test_it_names_each_commit_and_leaves_the_repository_as_it_was(given, repository, bisect):
    folder = repository("1.0", "1.0", "1.1", "1.1", "1.1", "0.9", "0.9")
    (folder / "cost").write_text("7.0")
    out = bisect("main~6..main")
    slower, faster = (commit(folder, back) for back in (4, 1))
    assert f"It became slower with {slower} (Commit 2): +10.0% (+10.0% to +10.0%) of latency, confirmed by" in out
    assert f"It became faster with {faster} (Commit 5): -18.2% (-18.2% to -18.2%) of latency, confirmed by" in out
    assert out.index("Commit 2") < out.index("Commit 5")
    assert re.search(r"^\d+ comparisons, \d+ pairs, 1 s; at most 5% of such searches name a wrong commit\.$", out, re.M)
    assert not (folder / ".git" / "worktrees").exists()
    assert (git(folder, "status", "--short"), git(folder, "branch", "--show-current")) == ("M cost", "main")


@pytest.mark.parametrize(("beside", "ends"), [(2, False), (99, True)])
def test_pairs_beside_somebody_on_the_gpu_count_for_nothing(given, repository, capsys, monkeypatch, beside, ends):
    """Some are played again; where all of them are disturbed the search ends and says so."""
    pair, left = Given.pair, [beside]

    def disturbed(self, workload):
        left[0] -= 1
        wrong = {"differences": {"latency": 9.0}, "disturbed": "a neighbour"} if left[0] >= 0 else {}
        return dataclasses.replace(pair(self, workload), **wrong)

    monkeypatch.setattr(Given, "pair", disturbed)
    repository("1.0", "1.1", "1.1")
    main(["bisect", "main~2..main", *ASKED])
    out = capsys.readouterr().out
    assert ("a neighbour" in out) == ends
    assert ("+10.0% (+10.0% to +10.0%)" in out) == (not ends)


def test_a_commit_that_computes_something_else_is_named_whatever_its_speed(given, repository, bisect):
    folder = repository("1.0", "1.1", "1.1 computes 1.0025", "1.1 computes 1.0025")
    out = bisect("main~3..main")
    other = commit(folder, 1)
    told = [line for line in out.splitlines() if "something else" in line]
    assert told == [
        f"With {other} (Commit 2) it begins to compute something else: outputs differ by 2.5e-03 (bound 4e-06)."
    ]


def test_between_commits_that_were_not_measured_the_stretch_is_named(given, repository, bisect):
    folder = repository("1.0", "no module", "1.0 computes 2")
    first, last = (commit(folder, back) for back in (2, 0))
    where = f"Between {first} (Commit 0) and {last} (Commit 2) it begins to compute something else: "
    assert where in bisect("main~2..main")


def test_there_is_a_line_for_each_comparison(given, repository, bisect):
    folder = repository("1.0", "1.0", "1.0")
    before = Given.made
    _, whole, half, *rest = bisect("main~2..main").splitlines()
    # All pairs of a comparison are played by the same object, which keeps fallback flags from pair to pair.
    assert Given.made - before == 2
    first, middle, last = (commit(folder, back) for back in (2, 1, 0))
    assert whole == f"  {first}..{last}, 2 commits: +0.0% (+0.0% to +0.0%), 4 pairs"
    assert half == f"  {first}..{middle}, neighbours: +0.0% (+0.0% to +0.0%), 4 pairs"
    assert rest[0] == "No commit is confirmed to have made it slower or faster."


def test_a_commit_that_cannot_be_measured_is_stepped_over_and_said(given, repository, bisect):
    folder = repository("1.0", "1.0", "no module", "1.1", "1.1")
    out = bisect("main~4..main")
    before, broken, after = (commit(folder, back) for back in (3, 2, 1))
    assert f"{broken} (Commit 2) was skipped, as it could not be measured: no module" in out
    assert f"It became slower between {before} (Commit 1) and {after} (Commit 3): +10.0%" in out


def test_reasons_that_differ_in_a_version_alone_are_told_once(given, repository, bisect):
    wants = [f"tiny 0.4.{number} wants numpy<1.{number} {'and so on ' * 40}" for number in range(3)]
    folder = repository("1.0", *wants, "no module", "1.0")
    out = bisect("main~5..main")
    (told,) = [line for line in out.splitlines() if "wants numpy" in line]
    names = [commit(folder, back) for back in (4, 3, 2)]
    assert told.startswith(f"{names[0]} (Commit 1) was skipped")
    assert told.endswith(f"; and for the same reason {names[1]}, {names[2]}")
    assert len(told) < 350
    assert "(Commit 4) was skipped, as it could not be measured: no module\n" in out


def test_where_no_two_commits_can_be_measured_it_is_one_sentence(given, repository, capsys):
    repository("no module", "1.0", "no module")
    assert main(["bisect", "main~2..main", *ASKED]) == 4
    captured = capsys.readouterr()
    assert captured.out.count("was skipped, as it could not be measured: no module; and for the same reason ") == 1
    assert captured.err == "fwbench: no two commits from main~2 to main could be compared: the reasons are above.\n"


def test_it_ends_with_the_time_and_says_what_it_knows(given, repository, bisect, monkeypatch):
    """Only pairs move the clock, by one second each."""
    repository("1.0", "1.0", "1.1", "1.1", "1.1")
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    play = Given.play

    def slow(self, *given):
        now[0] += 1
        play(self, *given)

    monkeypatch.setattr(Given, "play", slow)
    out = bisect("main~4..main", "--minutes=0.15", code=1)
    assert "The search ended early, as the time was over: give more minutes." in out
    assert "No commit is confirmed to have made it slower or faster." in out
    assert re.search(r"From \w+ \(Commit 0\) to \w+ \(Commit 4\) the latency changed by a further \+10\.0%", out)
    assert re.search(r"Not searched to the end: \w+ \(Commit 0\) to \w+ \(Commit 4\). Its ends differ by \+10", out)
    assert " 9 pairs, 9 s;" in out


def test_a_commit_that_fails_later_ends_the_search(given, repository, bisect, monkeypatch):
    folder = repository("1.0", "1.1")
    play, played = Given.play, []

    def fails(self, *given):
        played.append(given)
        if len(played) == 3:
            (self.sides["head"].root / "cost").write_text("was killed by signal 9")
        play(self, *given)

    monkeypatch.setattr(Given, "play", fails)
    out = bisect("main~1..main", code=1)
    words = "could be measured before, and now cannot: was killed by signal 9"
    assert f"{commit(folder, 0)} (Commit 1) {words}" in out
    assert "\n1 comparison, 2 pairs, " in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("main", "batch_size=8", *ASKED), "'main' is one side alone: "),
        (("jax==0.4.0", "numpy==2.0.0", *ASKED), "has no revision 'jax==0.4.0'"),
        (("main~9..main", *ASKED), "has no revision 'main~9'"),
        (("main..main~1", *ASKED), "holds no second commit"),
        (("side..main", *ASKED), "side is not on main's line of first parents"),
        (("main~1..main", "--model=tinny", "--lane=torch"), "unknown model 'tinny': the nearest is 'tiny'"),
        (("main~1..main", "--model=tiny", "--lane=torhc"), "unknown lane 'torhc'"),
        (("main~1..main", "--model=mlp", "--lane=torch"), "mlp is one of fwbench's own models, and no commit of"),
        (("main~1..main", "mode=fit", *ASKED), "takes no turns"),
        (("main~1..main", "devices=2", "batch_size=2", *ASKED), "takes no turns"),
        (("main~1..main", "batch_size=0", *ASKED), "batch size 0 is not a whole number of at least 1"),
        (("main~1..main", *ASKED, "--minutes=0"), "--minutes 0 leaves no time"),
        (("main~1..main",), "give either --test, or --model and --lane"),
        (("main~1..main", *ASKED, "--test=a.py::b"), "give either --test, or --model and --lane"),
        (("main~1..main", *ASKED, "--metric=compile"), "unknown metric 'compile': "),
        (("main~1..main", *ASKED, "--metric=throughput"), "choose from latency, cpu_time, peak_memory, program_mem"),
        (("main~1..main", *ASKED, "--metric=peak_memory"), "torch-tiny-inference-b1 has no peak_memory in pairs her"),
    ],
)
def test_misuse_is_one_sentence(given, repository, command, arguments, words):
    folder = repository("1.0", "1.0")
    git(folder, "checkout", "--quiet", "-b", "side", "main~1")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "aside")
    git(folder, "checkout", "--quiet", "main")
    assert words in command("bisect", *arguments, code=4)


class Metered(Given):
    """Pairs that compare each side's `cost`, which holds its metrics as JSON."""

    played = 0

    def pair(self, workload):
        Metered.played += 1
        values = {name: json.loads((side.root / "cost").read_text()) for name, side in self.sides.items()}
        both = values["base"].keys() & values["head"].keys()
        differences = {metric: math.log(values["head"][metric] / values["base"][metric]) for metric in both}
        for metric in [each for each in both if workload not in self.asked.get(each, [workload])]:
            del differences[metric]
        return Pair(differences, {}, values, {"base": {}, "head": {}}, 0.0, 1.0)


FIRST = {"latency": 1.0, "program_memory": 1e6, "compile_time": 0.083, "warm_start": 0.04, "energy": 1.0}
COSTS = [{**FIRST, "peak_memory": 1e8}]
for changed in (
    {"compile_time": 2.08},
    {"program_memory": 3e6, "warm_start": 0.06, "peak_memory": 1.2e8},
    {"latency": 1.1, "energy": 1.5},
):
    COSTS.append(COSTS[-1] | changed)


@pytest.mark.parametrize(
    ("metric", "number", "size", "pairs"),
    [
        ("latency", 3, "+10.0%", r"\d+ pairs"),
        ("program_memory", 2, "+200.0%", "1 pair"),
        ("compile_time", 1, "25.1 times", r"\d\d? pairs"),
        ("warm_start", 2, "+50.0%", r"\d\d? pairs"),
        ("energy", 3, "+50.0%", r"\d\d? pairs"),
        ("peak_memory", 2, "+20.0%", r"\d\d? pairs"),
    ],
)
def test_it_names_the_commit_by_the_metric_that_was_asked_for(
    repository, bisect, monkeypatch, metric, number, size, pairs
):
    """And what one pair decides is decided by one."""
    monkeypatch.setattr(series, "Pairs", Metered)
    monkeypatch.setattr(searching, "counter", lambda device: object())
    repository(*map(json.dumps, COSTS))
    before = Metered.played
    out = bisect("main~3..main", f"--metric={metric}")
    became = "slower" if metric == "latency" else "worse"
    (step,) = [line for line in out.splitlines() if line.startswith("It became")]
    told = rf"It became {became} with \w+ \(Commit {number}\): {re.escape(size)} \(.*\) of {metric}"
    assert re.match(rf"{told}, confirmed by {pairs}\.", step)
    assert f"{metric.capitalize()}, that of " in out
    comparisons = len([line for line in out.splitlines() if re.match(r"  \w+\.\.\w+, ", line)])
    assert (Metered.played - before == comparisons) == (metric == "program_memory")


def test_a_search_by_energy_needs_a_counter(repository, bisect, monkeypatch):
    monkeypatch.setattr(searching, "counter", lambda device: Absent("this CPU shows no counters"))
    repository("1.0", "1.0")
    said = bisect("main~1..main", "--metric=energy", code=4)
    assert said == "fwbench: --metric energy: this CPU shows no counters.\n"


def test_a_commit_that_does_not_yield_the_metric_is_stepped_over(repository, bisect, monkeypatch):
    monkeypatch.setattr(series, "Pairs", Metered)
    without = {name: value for name, value in COSTS[1].items() if name != "program_memory"}
    folder = repository(*map(json.dumps, [COSTS[0], without, *COSTS[2:]]))
    out = bisect("main~3..main", "--metric=program_memory")
    first, middle, last = (commit(folder, back) for back in (3, 2, 1))
    assert (
        f"{middle} (Commit 1) was skipped, as it could not be measured: its processes report no program_memory" in out
    )
    assert f"It became worse between {first} (Commit 0) and {last} (Commit 2): " in out


def test_a_merged_branch_is_one_commit_of_the_line(given, repository):
    folder = repository("1.0", "1.0")
    git(folder, "checkout", "--quiet", "-b", "side", "main~1")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "aside")
    git(folder, "checkout", "--quiet", "main")
    git(folder, "merge", "--quiet", "--no-ff", "--message", "Merge side", "side")
    titles = ranges.Commits("main~2", "main", folder).titles
    assert [title.partition(" ")[2] for title in titles] == ["(Commit 0)", "(Commit 1)", "(Merge side)"]


TEST = """
import fwbench

tiny = fwbench.Model("tiny", inputs=fwbench.normal(64), LANE="mine:Net")


@fwbench.benchmark(tiny)
def test_speed(fwbench_measure):
    fwbench_measure()
"""


@pytest.fixture
def few_pairs(monkeypatch):
    """Each comparison plays one real pair of short turns and reuses it as all its pairs."""
    monkeypatch.setattr(Pairs, "amounts", dataclasses.replace(Pairs.amounts, placings=1))
    play, played = Pairs.play, {}

    def once(self, workloads, arrived):
        key = tuple(side.root.name for side in self._sides)
        if key not in played:
            played[key] = play(self, workloads)
        for workload in workloads:
            arrived(workload, played[key][workload])

    monkeypatch.setattr(Pairs, "play", once)


UNROLLED = (
    "jax",
    "x = jax.lax.fori_loop(0, 300, lambda _, x: jnp.sin(x) + 0.1, x)",
    "for _ in range(300): x = jnp.sin(x) + 0.1",
)
PLANTED = {
    "latency": ("torch", "x = self.layer(x)", "for _ in range(400): x = self.layer(x)"),
    "compile_time": UNROLLED,
    # It is traced again in each process, whatever the caches hold: for so long that no stall of a process hides it.
    "warm_start": tuple(part.replace("300", "1500") for part in UNROLLED),
    "program_memory": (
        "jax",
        "x = x + self.layer(x)",
        "x = x + self.layer(jnp.sort(jnp.tile(jnp.sin(x), (1, 4096)))[:, :64])",
    ),
    "peak_memory": ("torch", "x = self.layer(x)", "self.kept = torch.ones(1 << 26); x = self.layer(x)"),
}
NETS = {
    "torch": """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        {line}
        return x
""",
    "jax": """
import jax
import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.Linear(64, 64, rngs=rngs)

    def __call__(self, x):
        {line}
        return x
""",
}


def planted(folder, metric, commits):
    """Commit a network without the plant, then with it, in so many commits."""
    lane, before, after = PLANTED[metric]
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (folder / "test_speed.py").write_text(TEST.replace("LANE", lane))
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number in range(commits):
        (folder / "mine.py").write_text(NETS[lane].format(line=after if number else before))
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--allow-empty", "--message", f"Commit {number}")
    return "device=cpu", "--model=tiny", f"--lane={lane}", f"--metric={metric}"


@pytest.mark.slow
@pytest.mark.parametrize("metric", PLANTED)
def test_a_real_plant_is_named_by_its_metric(tmp_path, monkeypatch, command, few_pairs, metric):
    """A longer loop, one that is unrolled, a large temporary, and memory that is kept."""
    asked = planted(tmp_path, metric, 3)
    monkeypatch.chdir(tmp_path)
    out, slow = command("bisect", "main~2..main", *asked), commit(tmp_path, 1)
    became = "slower" if metric == "latency" else "worse"
    told = rf"It became {became} with {slow} \(Commit 1\): (\+[\d.]+%|[\d.]+ times) \(.*\) of {metric}, "
    assert re.search(told, out), out
    # Real outputs, of real processes.
    other = [line.partition(": ")[0] for line in out.splitlines() if "something else" in line]
    changes = [f"With {slow} (Commit 1) it begins to compute something else"]
    assert metric != "latency" or other == changes


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["compile_time", "program_memory"])
def test_a_real_plant_is_explained_by_its_metric(tmp_path, monkeypatch, command, few_pairs, metric):
    """Beside another change."""
    asked = planted(tmp_path, metric, 1)
    lane, _, after = PLANTED[metric]
    changed = NETS[lane].format(line=after).replace("import nnx\n", "import nnx\n\nUNUSED = 1\n")
    (tmp_path / "mine.py").write_text(changed)
    monkeypatch.chdir(tmp_path)
    out = command("explain", "main", ".", *asked)
    assert f"HEAD's {metric} differs from BASE's by " in out
    assert "comes from mine.py, line 14: it is gone with that as in BASE" in out, out
    assert "by the framework's profiler" not in out
