"""A user's repository, and fwbench as a real process in it whose pairs are given."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fwbench import git as module
from tests.unit.shared import ALONE, finish
from tests.unit.suites import FAST

ROOT = Path(__file__).parents[3]

# Runs pytest or a command of fwbench; pairs are not measured, but note the files, modules and commit of both sides.
DRIVER = """
import json, os, subprocess, sys

import pytest

from fwbench.commands.cli import main
from fwbench.compare.pair import Pair
from fwbench.record.lanes import LANES
from fwbench.worker.client.starting import environment
from fwbench.worker.turns.pairs import Pairs


def seen(side):
    variables = environment(os.environ, 1, "cpu", LANES["torch"])

    def told(*asked):
        done = subprocess.run(
            ["git", "-C", str(side.root), *asked], capture_output=True, text=True, env=variables, check=True
        )
        return done.stdout.strip()

    return {
        "text": (side.root / "net.py").read_text(),
        "has": side.has("net"),
        "commit": told("rev-parse", "HEAD"),
        "staged": told("diff", "--cached", "--name-only"),
        "files": sorted(path.name for path in side.root.iterdir()),
    }


def play(self, workloads, arrived=lambda *_: None):
    sides = {side.name: seen(side) for side in self._sides}
    with open(os.environ["SEEN"], "a") as file:
        file.write(json.dumps(sides) + "\\n")
    if "KILLED" in os.environ:
        os.kill(os.getpid(), 9)
    noted = {"settings": {}, "versions": {}, "sources": {"net.py": ""}}
    values = {"latency": 0.1, "cpu_time": 0.1}
    each = {name: noted for name in sides}
    pair = Pair(dict.fromkeys(values, 0.001), dict.fromkeys(sides, [0.1]), dict.fromkeys(sides, values), each, 0.0, 2.0)
    for workload in workloads:
        arrived(workload, pair)
    return dict.fromkeys(workloads, pair)


Pairs.play = play
what, *arguments = sys.argv[1:]
sys.exit(main(arguments) if what == "fwbench" else pytest.main(arguments))
"""

SUITE = """
import fwbench

tiny = fwbench.Model("tiny", inputs=fwbench.normal(4), torch="net:Net")


@fwbench.benchmark(tiny, lanes=["torch"])
def test_tiny(fwbench_measure):
    fwbench_measure()


@fwbench.benchmark("noop", lanes=["noop"])
def test_noop(fwbench_measure):
    fwbench_measure()
"""

NET = """
import torch


class Net(torch.nn.Linear):
    version = {}

    def __init__(self):
        super().__init__(4, 4)
"""

PYTEST = ("pytest", *ALONE, "--benchmark-only", "-q", *FAST)
GATES = {
    "duet": (*PYTEST, "--fwbench-against=BASE"),
    "saved": (*PYTEST, "-k", "noop", "--benchmark-compare=../base.json", "--fwbench-gate"),
    "baseline": (*PYTEST, "-k", "noop", "--benchmark-autosave"),
    "programs": ("pytest", *ALONE, "-q", "-k", "tiny", "--fwbench-programs-only", "--benchmark-json=../programs.json"),
    "explain": ("fwbench", "explain", "BASE", ".", "device=cpu", "--model=tiny", "--lane=torch"),
    "bisect": ("fwbench", "bisect", "first..BASE", "device=cpu", "--model=tiny", "--lane=torch"),
}


class Repository:
    """A user's repository with fwbench in its hooks, and what runs in it."""

    def __init__(self, folder):
        self.folder = folder
        self.top = folder / "project"
        self.environment = {
            **module.unbound(os.environ),
            "PYTHONPATH": str(ROOT),
            "SEEN": str(folder / "seen"),
            "HOME": str(folder),
            "TMPDIR": str(folder / "temporary"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "CUDA_VISIBLE_DEVICES": "",
            **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in WHO.items()},
        }
        self.environment.pop("PYTEST_XDIST_WORKER", None)

    def git(self, *arguments, top=None, **variables):
        done = finish("git", "-C", top or self.top, *arguments, env={**self.environment, **variables})
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def write(self, version):
        (self.top / "net.py").write_text(NET.format(version))

    def commit(self, version, *arguments):
        self.write(version)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", f"Version {version}", *arguments)

    def hook(self, names, gate, where=".", base="HEAD", top=None):
        """Let hooks run a gate, note its exit code and output, and let git go on."""
        arguments = " ".join(f"'{each}'" for each in GATES[gate]).replace("BASE", base)
        folder = self.git("rev-parse", "--absolute-git-dir", top=top).strip()
        for name in names:
            hook = Path(folder, "hooks", name)
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(
                f"#!/bin/sh\nread old new ref\ncd {where}\n"
                f"'{sys.executable}' '{self.folder / 'driver.py'}' {arguments} >> '{self.folder / 'said'}' 2>&1\n"
                f"echo $? >> '{self.folder / 'codes'}'\n"
            )
            hook.chmod(0o755)

    def run(self, gate, base="HEAD", **variables):
        """A gate in the repository; its exit code and its output are in `codes` and `said`, too."""
        arguments = [each.replace("BASE", base) for each in GATES[gate]]
        with (self.folder / "said").open("a") as said, (self.folder / "codes").open("a") as codes:
            done = subprocess.run(
                [sys.executable, str(self.folder / "driver.py"), *arguments],
                cwd=self.top,
                env={**self.environment, **variables},
                stdout=said,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            codes.write(f"{done.returncode}\n")
        return done.returncode

    @property
    def told(self):
        """The last line of what was said."""
        return next((line for line in reversed(self.said.splitlines()) if line.strip(" =")), "")

    @property
    def codes(self):
        return (self.folder / "codes").read_text().split()

    @property
    def said(self):
        return (self.folder / "said").read_text()

    @property
    def seen(self):
        return [json.loads(line) for line in (self.folder / "seen").read_text().splitlines()]

    def state(self, top):
        """All that Git has: refs, index, files, objects, and the names of its own files; and that it is whole."""
        folder = Path(self.git("rev-parse", "--absolute-git-dir", top=top).strip())
        bare = self.git("rev-parse", "--is-bare-repository", top=top).strip() == "true"
        # Files of a worktree are seen by `status`; these of a repository are those of git alone.
        return {
            "fsck": self.git("fsck", "--full", "--strict", "--unreachable", top=top),
            "refs": self.git("for-each-ref", top=top) + (folder / "HEAD").read_text(),
            "log": self.git("reflog", "--all", "--format=%H %gs", top=top),
            "index": "" if bare else self.git("ls-files", "--stage", "-v", top=top),
            "status": "" if bare else self.git("status", "--porcelain", "--ignored", top=top),
            "worktrees": self.git("worktree", "list", top=top).count("\n"),
            "files": sorted(
                str(path.relative_to(folder))
                for path in folder.rglob("*")
                if path.is_file() and path.parent.name != "hooks"
            ),
        }


WHO = {"NAME": "nobody", "EMAIL": "nobody@example.org", "DATE": "1700000000 +0000"}


@pytest.fixture
def repository(tmp_path):
    """Two commits on main, one on a branch beside them, and a remote."""
    found = Repository(tmp_path)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "base.json").write_text("{}")
    found.top.mkdir()
    found.git("init", "--quiet", "--initial-branch=main")
    (found.top / "test_suite.py").write_text(SUITE)
    (found.top / "conftest.py").write_text('pytest_plugins = ["fwbench.plugin"]\n')
    (found.top / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (found.top / ".gitignore").write_text("__pycache__/\n.benchmarks/\n")
    found.commit(0)
    found.git("tag", "first")
    found.git("switch", "--quiet", "--create", "beside")
    (found.top / "other").write_text("")
    found.git("add", "other")
    found.git("commit", "--quiet", "--message", "Beside")
    found.git("switch", "--quiet", "main")
    found.commit(1)
    found.git("clone", "--quiet", "--bare", str(found.top), str(tmp_path / "remote"))
    found.git("remote", "add", "origin", str(tmp_path / "remote"))
    return found


@pytest.fixture
def folder(tmp_path):
    """A place for checkouts."""
    made = tmp_path / "made"
    made.mkdir()
    return made
