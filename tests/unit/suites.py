"""A user's suite outside this repository, in real pytest runs."""

import contextlib
import functools
import itertools
import os
import sys
from importlib import metadata
from types import SimpleNamespace

import cpuinfo
import pytest

# pytester unloads what a run in this process has loaded: what all of them need is loaded once, and SciPy can only be.
import fwbench.gates.duet
import fwbench.gates.saved
import fwbench.plugin.run  # noqa: F401
from fwbench.plugin.session import Session
from fwbench.record import journal
from fwbench.record.measurement import Measurement, Metric
from tests.unit.shared import ALONE, extension, git

extension("programs.gate")

FAST = ("--benchmark-max-time=0", "--benchmark-min-rounds=7", "--fwbench-set=patience=0", "--fwbench-minutes=0")


def benchmarks(model="noop", lane="noop", sizes=(1, 2, 3), marks=None, first=""):
    """A test file of one benchmark for each batch size.

    Args:
        marks: decorators by batch size.
        first: code at the start of each test.
    """
    parts = ["import pytest\n\nimport fwbench\n"]
    for size in sizes:
        mark = (marks or {}).get(size)
        parts.append(
            (f"@{mark}\n" if mark else "")
            + f'@fwbench.benchmark("{model}", lanes=["{lane}"], batch_sizes=[{size}])\n'
            + f"def test_{size}(fwbench_workload, fwbench_measure):\n"
            + (f"    {first}\n" if first else "")
            + "    fwbench_measure()\n"
        )
    return "\n\n".join(parts)


def commit(folder, *paths):
    """Commit these files of a folder, or all of them; the folder becomes a repository if it is none yet."""
    git(folder, "init", "--quiet")
    git(folder, "add", *(paths or ["."]))
    git(folder, "commit", "--quiet", "--message", "it")


@pytest.fixture
def suite(pytester, request, monkeypatch):
    """A suite over three workloads that do nothing."""
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    # A run under xdist hands this down, and pytest-benchmark takes it as a word to switch itself off.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest('pytest_plugins = ["fwbench.plugin"]')
    pytester.makepyfile(test_suite=benchmarks())
    return pytester


@pytest.fixture
def given(monkeypatch):
    """Measurements without processes."""

    def measured(session, workload, protocol, tell=None):
        return Measurement(workload, (0.25,) * 7, {"throughput": Metric(4.0, "given")}, protocol.to_json())

    monkeypatch.setattr(Session, "run", measured)


def run(suite, *arguments):
    """The suite in a process of its own."""
    return suite.runpytest_subprocess(*ALONE, *arguments)


def ended(result, code, *lines, **outcomes):
    """The result of a run that ended with this exit code, wrote these lines in this order and had these outcomes."""
    assert result.ret == code
    result.stdout.fnmatch_lines(lines)
    if outcomes:
        result.assert_outcomes(**outcomes)
    return result


def refused(result, sentence):
    """A run that was refused in one sentence."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert len([line for line in result.stderr.lines if line]) == 1
    result.stderr.fnmatch_lines([f"ERROR: {sentence}"])


_RUNS = itertools.count()
# pytest-benchmark asks for it in each run, and it starts a process to find out.
_CPU = functools.cache(cpuinfo.get_cpu_info)


class _Known:
    """A distribution whose files are read once; pytest looks through those of all for plugins, twice a run."""

    def __init__(self, distribution):
        self._distribution = distribution

    def __getattr__(self, name):
        return getattr(self._distribution, name)

    @functools.cached_property
    def entry_points(self):
        return self._distribution.entry_points

    @functools.cached_property
    def files(self):
        return [*map(str, self._distribution.files or ())]


@functools.cache
def _known(path):
    return [*map(_Known, metadata.distributions(path=[*path]))]


@contextlib.contextmanager
def _prepared():
    """What each run would look up anew; patches more for as long."""
    with pytest.MonkeyPatch.context() as patch:
        all_of = metadata.distributions
        patch.setattr(metadata, "distributions", lambda **of: all_of(**of) if of else _known(tuple(sys.path)))
        patch.setattr(cpuinfo, "get_cpu_info", _CPU)
        yield patch


def parsed(pytester, *options):
    """The configuration that options make of a run with the plugin."""
    with _prepared():
        return pytester.parseconfig(*ALONE, "-p", "fwbench.plugin", *options)


def in_process(suite, *arguments):
    """The suite in this process: a second sooner, and patches of the calling test hold in it."""
    with _prepared() as patch:
        # A journal's name is the second and the process, of which runs in one process have the same.
        patch.setattr(journal, "os", SimpleNamespace(**{**vars(os), "getpid": lambda: f"run{next(_RUNS)}"}))
        return suite.runpytest_inprocess(*ALONE, *arguments)
