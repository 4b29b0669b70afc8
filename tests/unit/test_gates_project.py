"""The gates in a user's own repository, with an installed fwbench: whose code is measured on each side of a duet.

Sides are real processes of a lane that starts at once; of the pairs the first alone is played, and their times are made
equal. What tells one side's code from the other's is the program.
"""

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from fwbench.compare.pair import Pair
from fwbench.record.lanes import LANES
from fwbench.worker.turns.pairs import Pairs
from tests.unit.plain.plain_lane import LANE
from tests.unit.shared import git, needs
from tests.unit.suites import FAST, commit, ended, in_process

NET = """
class Net:
    operators = {}

    def layer(self, x):
        self.operators["product"] = self.operators.get("product", 0) + 1
        return 2 * x

    def __call__(self):
        x = 1
        return self.layer(x)
"""
SLOWER = NET.replace("return self.layer(x)", "return self.layer(self.layer(x))")
BENCHMARK = """
@fwbench.benchmark(fwbench.Model("NAME", plain="mine.NAME:Net", inputs=fwbench.normal(64)), lanes=["plain"])
def test_NAME(fwbench_measure):
    fwbench_measure()
"""
UNCHANGED = "plain-old-inference-b1 *latency *unchanged"
CHANGED = "plain-net-inference-b1: with a changed program: 1 more product*"


@pytest.fixture
def equal(monkeypatch):
    """Plays a pair of each workload, short as it is, and takes it for all: what is said of its times is in the dict."""
    play, played, times = Pairs.play, {}, {"differences": {"latency": 0.0}}

    def equal(self, workloads, arrived):
        played.update(play(self, [workload for workload in workloads if workload not in played]))
        for workload in workloads:
            found = played[workload]
            arrived(workload, dataclasses.replace(found, **times) if isinstance(found, Pair) else found)

    monkeypatch.setattr(Pairs, "play", equal)
    monkeypatch.setattr(Pairs, "amounts", dataclasses.replace(Pairs.amounts, placings=1))
    return times


class Repository:
    """A user's repository, whose package `mine` lies in the folder `source`."""

    def __init__(self, pytester, source=""):
        self.pytester = pytester
        self.path = pytester.path / "repository"
        self.source = self.path / source
        self.write("tests/conftest.py", 'pytest_plugins = ["fwbench.plugin"]\n')
        self.benchmarks("net", "old")
        self.write("pytest.ini", "[pytest]\n")
        self.write(".gitignore", "__pycache__\n.benchmarks\n.venv\n")
        self.module("old", NET)
        git(self.path, "init", "--quiet")

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def benchmarks(self, *names):
        text = "".join(BENCHMARK.replace("NAME", name) for name in names)
        self.write("tests/test_net.py", f"import fwbench\n{text}")

    def module(self, name, text):
        self.write(self.source / "mine" / "__init__.py", "")
        self.write(self.source / "mine" / f"{name}.py", text)

    def run(self, *arguments, folder="."):
        """A run in one of its folders."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.path / folder)
            return in_process(self.pytester, "--benchmark-only", *arguments)

    def against(self, revision, *arguments, folder="."):
        return self.run(f"--fwbench-against={revision}", *arguments, folder=folder)

    def says(self, code, *lines, only="", **options):
        """Compare with HEAD: the exit code, and lines that are said."""
        return ended(self.against("HEAD", "-k", only, **options), code, *lines)


@pytest.fixture
def make(pytester, monkeypatch, equal):
    """Makes a repository; whatever else it is given, is installed: folders in which every Python looks for modules."""

    def go(source="", installed=()):
        # Where the workers find the lane.
        lane = Path(__file__).parent / "plain"
        monkeypatch.setenv("PYTHONPATH", ":".join(map(str, (lane, *installed))))
        monkeypatch.setitem(LANES._all, LANE.name, LANE)
        monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
        return Repository(pytester, source)

    return go


def test_each_side_has_its_own_revisions_modules(make):
    """What is not committed counts as head's."""
    repository = make()
    repository.benchmarks("net", "old", "new", "gone", "lost")
    repository.module("net", NET)
    repository.module("gone", NET)
    commit(repository.path)
    repository.module("net", SLOWER)
    repository.module("new", NET)
    (repository.path / "mine" / "gone.py").unlink()
    result = repository.says(1, "working tree at * with uncommitted changes, against HEAD (*")
    result.stdout.fnmatch_lines_random(
        [
            CHANGED,
            UNCHANGED,
            "plain-new-inference-b1: new: HEAD (*) cannot build it: there is no module 'mine.new', *",
            "plain-gone-inference-b1: missing: working tree * cannot run it: there is no module 'mine.gone', *",
            # No reason to skip.
            "plain-lost-inference-b1: failed: there is no module 'mine.lost', *",
            "5 benchmarks: 1 failed, 1 missing, 1 new, 2 unchanged; *",
        ]
    )
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.no_fnmatch_line("plain-old-*changed program*")
    commit(repository.path)
    repository.against("HEAD~1", "-k", "plain-net").stdout.fnmatch_lines([CHANGED])


def test_a_project_in_a_folder_of_the_repository(make):
    repository = make("libraries/src")
    repository.module("net", NET)
    git(repository.path, "add", ".")
    git(repository.path, "mv", "tests", "benchmarks")
    repository.write("benchmarks/pytest.ini", "[pytest]\npythonpath = ../libraries/src\n")
    commit(repository.path)
    repository.module("net", SLOWER)
    repository.says(0, CHANGED, only="plain-net", folder="benchmarks")


@pytest.mark.parametrize(
    "installed", ["src", ".venv/lib/site-packages", pytest.param("../elsewhere", marks=pytest.mark.slow)]
)
def test_an_installed_package_is_not_compared_with_itself(make, pytester, installed):
    """Neither an editable install nor a copy, be it in a virtual environment in the repository."""
    folder = Path(os.path.normpath(pytester.path / "repository" / installed))
    repository = make("src", [folder])
    repository.module("net", NET)
    commit(repository.path)
    repository.module("net", SLOWER)
    if installed != "src":
        shutil.copytree(repository.source, folder)
    result = repository.says(
        4,
        f"*has a module 'mine*', but it was imported from {folder}/mine/*.py, *as in `pythonpath = src`.*",
        only="plain-net",
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    repository.write("pytest.ini", "[pytest]\npythonpath = src\n")
    repository.says(0, CHANGED, only="plain-net")


def test_a_package_that_is_new_and_installed_is_new(make, pytester):
    """Base would find head's."""
    repository = make("src", [pytester.path / "repository" / "src"])
    repository.write("pytest.ini", "[pytest]\npythonpath = src\n")
    git(repository.path, "add", "tests", "pytest.ini")
    git(repository.path, "commit", "--quiet", "--message", "before the package")
    repository.says(
        4,
        "*: new: HEAD (*) cannot build it: its module 'mine*' would come from */src/mine/*.py, which is *",
        only="plain-old",
    )


def test_a_module_that_only_a_call_imports_is_seen_too(make, pytester):
    repository = make("src", [pytester.path / "repository" / "lib"])
    repository.write("pytest.ini", "[pytest]\npythonpath = src\n")
    repository.write("lib/late.py", "factor = 2\n")
    repository.module("net", NET.replace("return", "from late import factor\n        return factor *"))
    commit(repository.path)
    repository.says(
        4, "*HEAD (*) has a module 'late', but it was imported from */repository/lib/late.py, *", only="plain-net"
    )


def test_a_package_that_is_gone_but_installed_is_missing(make, pytester):
    """Head would find the copy that somebody installed earlier."""
    folder = pytester.path / "site-packages"
    repository = make("", [folder])
    commit(repository.path)
    shutil.copytree(repository.path / "mine", folder / "mine")
    shutil.rmtree(repository.path / "mine")
    repository.says(
        1, f"*: missing: working tree *: its module 'mine*' would come from {folder}/mine/*", only="plain-old"
    )


def test_code_that_resolves_links_is_heads_own(make):
    """As scripts do that put a folder beside them onto the search path."""
    repository = make()
    repository.write("mine/extra/helper.py", "factor = 2\n")
    search = (
        'import sys\nfrom pathlib import Path\n\nsys.path.insert(0, str(Path(__file__).resolve().parent / "extra"))\n'
    )
    repository.module("net", f"{search}from helper import factor\n{NET}")
    commit(repository.path)
    repository.module("net", f"{search}from helper import factor\n{SLOWER}")
    repository.says(0, CHANGED, only="plain-net")


def test_a_slowdown_in_the_users_code_is_found(make, equal):
    """Times are real, though of one pair that counts for all: head computes the same twenty times."""
    equal.clear()
    repository = make()
    repository.module(
        "net", NET.replace("return self", "for _ in range(1000):\n            self.layer(x)\n        return self")
    )
    commit(repository.path)
    repository.module(
        "net", NET.replace("return self", "for _ in range(20_000):\n            self.layer(x)\n        return self")
    )
    result = repository.against("HEAD", "-k", "plain-net", "--fwbench-summary=../summary.md")
    ended(result, 1, "*plain-net-inference-b1 regressed: latency *", "1 benchmark: 1 regressed; *")
    summary = (repository.path.parent / "summary.md").read_text()
    assert "**fwbench: 1 benchmark: 1 regressed; " in summary
    assert "1 with a changed program" in summary


@needs("programs")
def test_programs_and_records_of_the_users_models_are_baselines_too(make):
    repository = make()
    repository.module("net", NET)
    timed = repository.run("--benchmark-json=timed.json", "--fwbench-models=net", *FAST)
    assert timed.ret == 0
    repository.module("net", SLOWER)
    # One process a side tells nothing of times, and a busy machine reaches no limit like these.
    limits = ("--fwbench-fail=latency:1000000%", "--fwbench-fail=throughput:99.99%")
    saved = repository.run("--fwbench-gate", "--benchmark-compare=timed.json", "--fwbench-models=net", *limits, *FAST)
    ended(saved, 0, CHANGED, "1 benchmark: 1 inconclusive; 1 computing *; 1 with a changed program")
    ended(
        repository.run("--fwbench-programs-only", "--benchmark-compare=timed.json"),
        1,
        "plain-net-inference-b1: changed: 1 more product*",
        "plain-old-inference-b1: new: not in the baseline",
        "2 benchmarks: 1 changed, 1 new",
    )
