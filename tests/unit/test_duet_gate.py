"""`--fwbench-against` in real pytest runs, over verdicts that are given; then once over real sides."""

import contextlib
import dataclasses
import json
import math
import shutil
import signal

import pytest

from fwbench.compare import duet
from fwbench.compare.findings import Verdict
from fwbench.compare.pair import Comparison, Fault, Pair
from fwbench.errors import Absent, UserError
from fwbench.plugin.session import Session
from fwbench.record.measurement import Failure, Measurement, Metric
from fwbench.worker.client import interrupts
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.client.workers import Workers
from fwbench.worker.turns.pairs import Pairs
from tests.unit.recorded import outputs
from tests.unit.shared import ONE_PAIR, git, needs
from tests.unit.suites import benchmarks, commit, ended, in_process, refused
from tests.unit.suites import run as in_own_process

SUITE = benchmarks("mlp", "torch")


def compared(workload, kind, changed, size):
    """A comparison that came to this verdict; of a program that has changed, or has not, and head's output."""
    if kind in ("new", "failed", "unavailable", "missing", "incomparable"):
        failures = {"new": "error", "failed": "error", "incomparable": "crashed"}
        side = "base" if kind in ("new", "incomparable") else "head"
        fault = Fault(side, "a side", Failure(failures.get(kind, "unavailable"), "why"))
        return Comparison(workload, kind, note="the reason", fault=fault)
    ratio = 1.05 if kind == "regressed" else 1.0
    verdicts = {"latency": Verdict(kind, ratio, (ratio - 0.01, ratio + 0.01), 0.95, 10, 0.001)}
    rounds = {"base": [0.1, 0.2], "head": [0.25, 0.125]}
    values = {"base": {"latency": 0.15}, "head": {"latency": 0.1875}}
    described = {
        name: {
            "settings": {},
            "versions": {"torch": version},
            "program": {"form": "operators", "digest": digest if changed else "one", "operators": {}},
            "outputs": outputs(size if name == "head" else 1.0),
        }
        for name, version, digest in (("base", "2.0", "one"), ("head", "2.1", "another"))
    }
    return Comparison(workload, kind, verdicts, [Pair({"latency": 0.0}, rounds, values, described, 0.0, 2.0)] * 3)


class Given:
    """What duets find.

    Attributes:
        kinds: verdicts by batch size; whatever is not given is unchanged. `program`: whose program has changed;
            `computes`: head's output, where base's is 1.
        error: raised by a duet.
        asked: the thresholds of each duet, by batch size.
    """

    def __init__(self):
        self.kinds, self.error, self.asked = {}, None, []

    def duet(self, workloads, keep):
        self.workloads = workloads
        return self

    def play(self, play, tell, left):
        self.left = left()
        self.asked.append(
            {
                workload.batch_size: sorted((metric, limit.share) for metric, limit in limits.items())
                for workload, limits in self.workloads.items()
            }
        )
        if self.error:
            raise self.error

    def comparisons(self):
        return {
            workload: compared(
                workload,
                self.kinds.get(workload.batch_size, "unchanged"),
                self.kinds.get("program") == workload.batch_size,
                self.kinds.get("computes", {}).get(workload.batch_size, 1.0),
            )
            for workload in self.workloads
        }


@pytest.fixture
def given(monkeypatch):
    """Duets that find what they are told, and measurements that take no time."""
    found = Given()
    monkeypatch.setattr(duet, "Duet", found.duet)
    ordinary = {"throughput": Metric(1.0, "ordinary")}
    monkeypatch.setattr(
        Session, "run", lambda self, workload, protocol, tell=None: Measurement(workload, (0.5,) * 5, ordinary)
    )
    return found


@pytest.fixture
def project(pytester, monkeypatch):
    """A repository with a suite."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest('pytest_plugins = ["fwbench.plugin"]')
    pytester.makepyfile(test_suite=SUITE)
    commit(pytester.path)
    return pytester


@pytest.fixture
def with_fwbench(project):
    """A repository with a suite and fwbench itself."""
    shutil.copytree(PACKAGE, project.path / "fwbench")
    (project.path / ".gitignore").write_text("__pycache__\n")
    # None of the tests within fwbench.
    project.makeini("[pytest]\ntestpaths = test_suite.py\n")
    commit(project.path)
    return project


@pytest.fixture
def run(project, given):
    """Runs the suite in a duet that finds these verdicts by batch size."""

    def go(kinds, *arguments):
        given.kinds = kinds
        return in_process(project, "--benchmark-only", "--fwbench-against=HEAD", *arguments)

    return go


def test_unchanged_code_passes_and_heads_rounds_are_the_benchmarks(without_gpu, run, project):
    ended(
        run({}, "--benchmark-json=x.json"),
        0,
        "*fwbench: duet*",
        "working tree at * against HEAD (*",
        "torch-mlp-inference-b1 *latency *+0.0%*unchanged",
        "torch 2.0 in base, 2.1 in head",
        "3 benchmarks: 3 unchanged; * s a benchmark",
        passed=3,
    )
    data = json.loads((project.path / "x.json").read_text())
    benchmark = data["benchmarks"][0]
    assert benchmark["stats"]["data"] == [0.25, 0.125] * 3
    told = benchmark["extra_info"]["duet"]
    assert told["verdicts"]["latency"]["ratio"] == 1.0
    assert len(told["screening"]) == 3
    assert told["base"].startswith("HEAD (")
    assert data["machine_info"]["fwbench"]["threads"] == 1


def test_what_pairs_take_longer_for_is_measured_only_where_somebody_asks(run, project, given, monkeypatch):
    """And where no pair has them, that is said."""
    asked = {1: "compile_time", 2: "warm_start", 3: "energy", 4: "cpu_time"}
    marks = {size: f"pytest.mark.fwbench_fail('{metric}:25%')" for size, metric in asked.items()}
    project.makepyfile(test_suite=benchmarks("mlp", "torch", sizes=asked, marks=marks))
    made = []
    monkeypatch.setattr("fwbench.gates.duet.Pairs", lambda *sides, **options: made.append(options) or given)
    monkeypatch.setattr("fwbench.gates.duet.counter", lambda device: Absent("no RAPL"))
    result = ended(run({}), 0)
    (pairs,) = made
    sizes = [[workload.batch_size for workload in pairs[kind]] for kind in ("cold", "warm", "metered")]
    assert sizes == [[1], [2], [3]]
    (judged,) = given.asked
    for metric in ("compile_time", "warm_start", "energy"):
        assert [size for size, limits in judged.items() if (metric, 0.25) in limits] == [
            size for size in asked if asked[size] == metric
        ]
        (told,) = (line for line in result.outlines if line.startswith(f"{metric} was not compared"))
        assert told.endswith("no RAPL") == (metric == "energy")


def test_a_batch_that_both_sides_had_to_halve_stands_under_the_one_that_was_played(run, project, given, monkeypatch):
    comparisons = given.comparisons

    def halving():
        found = comparisons()
        return {workload: halved(one) if workload.batch_size == 3 else one for workload, one in found.items()}

    def halved(one):
        pairs = [dataclasses.replace(pair, unfit=(3,)) for pair in one.screening]
        return dataclasses.replace(one, workload=one.workload.fitted((3,)), screening=pairs)

    monkeypatch.setattr(given, "comparisons", halving)
    project.makepyfile(test_suite=benchmarks("mlp", "torch", sizes=(2, 3)))
    ended(
        run({3: "regressed"}, "--benchmark-json=x.json"),
        1,
        "*torch-mlp-inference-b1 regressed: latency +5.0%*",
        "torch-mlp-inference-b1: batch 3 was asked for, and 3 did not fit into memory, so both sides had 1",
        passed=1,
        failed=1,
    )
    _, benchmark = json.loads((project.path / "x.json").read_text())["benchmarks"]
    assert (benchmark["params"]["batch_size"], benchmark["extra_info"]["unfit"]) == (1, [3])


def test_the_options_reach_pairs_and_workers(run, monkeypatch):
    made = []
    for kind in (Pairs, Workers):
        begin = kind.__init__
        monkeypatch.setattr(
            kind, "__init__", lambda self, *of, begin=begin, **how: made.append(how) or begin(self, *of, **how)
        )
    run({2: "new"}, "--fwbench-set=fit_batch=true")
    workers, pairs = made
    # Of a duet nobody asks how near its sides come to what the machine can do.
    assert workers.pop("facts")
    assert bool(pairs.pop("servers"))
    assert [pairs.pop(kind) for kind in ("cold", "warm", "metered")] == [[], [], []]
    assert [workers.pop(name) for name in ("patience", "compiled", "keep")] == [0.0, None, False]
    assert callable(workers.pop("lowers"))
    assert callable(workers.pop("stays"))
    assert workers == pairs == {"fit_batch": True}


def notes(result):
    return [line for line in result.outlines if line.startswith("torch-mlp-inference-b") and ": " in line]


def test_changed_programs_are_told_first_and_fail_nothing(run):
    told = "3 benchmarks: 1 inconclusive, 2 unchanged; 1 with a changed program; *"
    result = ended(run({1: "inconclusive", "program": 3}), 0, told)
    assert notes(result)[0].startswith("torch-mlp-inference-b3: with a changed program: ")


@pytest.mark.parametrize(("option", "code"), [((), 0), (("--fwbench-fail=different",), 1)])
def test_a_head_that_computes_something_else_is_told_first_and_fails_where_that_is_asked(run, project, option, code):
    result = run({"program": 3, "computes": {2: 1.0025, 3: 1.000001}}, "--fwbench-summary=out.json", *option)
    told = "3 benchmarks: 3 unchanged; 1 computing something else; 1 with a changed program; *"
    ended(result, code, told, passed=3)
    different = "torch-mlp-inference-b2: HEAD computes something else: outputs differ by 2.5e-03 (bound 4e-06)"
    assert notes(result)[0] == different
    findings = json.loads((project.path / "out.json").read_text())["findings"]
    kinds = {finding["benchmark"][-1]: finding["kind"] for finding in findings if not finding["metric"]}
    assert kinds == {"2": "different", "3": "program"}
    # Rounding is nothing else.
    assert run({"computes": {1: 1.000002, 2: 0.999999}}, *option).ret == 0


@pytest.mark.parametrize("name", ["out.json", "out.md"])
def test_the_summary_of_a_run_that_is_killed_says_that_it_has_not_ended(run, project, given, monkeypatch, name):
    path, found, comparisons = project.path / name, [], given.comparisons
    monkeypatch.setattr(given, "comparisons", lambda: found.append(path.read_text()) or comparisons())
    run({}, f"--fwbench-summary={name}")
    assert found
    assert "the run has not come to its end" in found[0]
    assert "has not come to its end" not in path.read_text()
    if name.endswith(".json"):
        unended = json.loads(found[0])
        assert (unended["exit_code"], unended["findings"]) == (pytest.ExitCode.INTERRUPTED, [])


def test_of_a_changed_program_whose_outputs_cannot_be_compared_the_reason_is_told(run, monkeypatch):
    sides = {1.0: outputs(), 2.0: outputs(weights="def")}
    monkeypatch.setattr("tests.unit.test_duet_gate.outputs", sides.__getitem__)
    told = "torch-mlp-inference-b1: with a changed program: *unknown: they began with other *"
    ended(run({"program": 1, "computes": {1: 2.0}}, "--fwbench-fail=different"), 0, told)


@pytest.mark.parametrize(("options", "least", "most"), [((), math.inf, math.inf), (["--fwbench-minutes=9"], 500, 540)])
def test_the_run_s_minutes_bind_the_duet(run, given, options, least, most):
    result = run({}, *options)
    assert least <= given.left <= most
    assert ("fwbench: the duet ends after 9 min" in result.outlines) == bool(options)


def test_a_regression_fails_its_own_test(run, project):
    result = run({2: "regressed"}, "--fwbench-summary=summary.md", "--junit-xml=junit.xml")
    told = "*torch-mlp-inference-b2 regressed: latency +5.0% (+4.0% to +6.0%) against HEAD (*"
    ended(result, 1, told, passed=2, failed=1)
    summary = (project.path / "summary.md").read_text()
    assert "1 regressed, 2 unchanged" in summary
    assert "| torch-mlp-inference-b2 | latency |" in summary
    assert "torch-mlp-inference-b1" not in summary
    assert 'failures="1"' in (project.path / "junit.xml").read_text()


def test_what_the_base_has_not_is_new_and_measured_as_usual(run, project):
    told = ("torch-mlp-inference-b3: new: the reason", "3 benchmarks: 1 new, 2 unchanged*")
    ended(run({3: "new"}, "--benchmark-json=x.json"), 0, *told)
    benchmark = json.loads((project.path / "x.json").read_text())["benchmarks"][2]
    assert benchmark["stats"]["data"] == [0.5] * 5
    assert benchmark["extra_info"]["metrics"]["throughput"]["value"] == 1.0
    assert benchmark["extra_info"]["duet"]["kind"] == "new"


WARM = ("--fwbench-fail=warm_start:25%",)


@pytest.mark.parametrize(
    ("kinds", "options", "code", "line"),
    [
        ({1: "failed"}, (), 1, "torch-mlp-inference-b1: failed: the reason"),
        ({1: "incomparable"}, (), 4, "torch-mlp-inference-b1: not comparable: the reason"),
        ({1: "inconclusive"}, (), 0, "3 benchmarks: 1 inconclusive, 2 unchanged*"),
        ({1: "inconclusive"}, ("--fwbench-fail=inconclusive",), 1, "3 benchmarks: 1 inconclusive, 2 unchanged*"),
        ({1: "improved"}, ("--fwbench-fail=inconclusive",), 0, "3 benchmarks: 1 improved, 2 unchanged*"),
        ({1: "unavailable"}, (), 0, "2 benchmarks: 2 unchanged*"),
        ({1: "unavailable", 2: "unavailable", 3: "unavailable"}, (), 4, "nothing was compared"),
        ({1: "missing"}, (), 1, "torch-mlp-inference-b1: missing: the reason"),
        ({1: "missing", 2: "missing", 3: "missing"}, (), 1, "3 benchmarks: 3 missing*"),
        ({1: "new", 2: "new", 3: "new"}, (), 4, "3 benchmarks: 3 new*"),
        ({}, WARM, 0, "warm_start was not compared: no benchmark has it on both sides"),
        (
            *(dict.fromkeys((1, 2, 3), "incomparable"), WARM, 4),
            "warm_start was not compared: no benchmark that it is asked of ran on both sides",
        ),
    ],
)
def test_exit_codes(run, kinds, options, code, line):
    ended(run(kinds, *options), code, line)


def test_nothing_was_compared_has_its_reason(run, given):
    sides = "working tree at *, against HEAD (*"
    unavailable = run({1: "unavailable", 2: "unavailable", 3: "unavailable"})
    ended(unavailable, 4, sides, "torch-mlp-inference-b1: the reason")
    given.error = UserError("no servers here.")
    ended(run({}), 4, sides, "no servers here.", "nothing was compared")
    given.error, given.asked = ZeroDivisionError(), []
    broken = ended(run({}), 1, "the duet ended with ZeroDivisionError", "nothing was compared", failed=3)
    # It is not started again.
    assert len(given.asked) == 1
    assert broken.outlines.count("the duet ended with ZeroDivisionError, as its first test tells") == 2


def test_a_duet_whose_sides_cannot_be_made_compares_no_revision_with_itself(run, monkeypatch):
    @contextlib.contextmanager
    def refused(*_):
        raise UserError("the disk is full.")
        yield

    monkeypatch.setattr("fwbench.gates.duet.sides", refused)
    run({}).stdout.fnmatch_lines(["this working tree, against HEAD", "the disk is full.", "nothing was compared"])


def test_all_benchmarks_are_one_duet_with_their_own_thresholds(run, project, given):
    marks = dict.fromkeys((1, 2, 3), "pytest.mark.fwbench_fail('latency:7%')")
    project.makepyfile(test_suite=benchmarks("mlp", "torch", marks=marks))
    run({}, "--fwbench-fail=peak_memory:3%", "-k", "b1 or b2")
    limits = [("cpu_time", 0.1), ("latency", 0.07), ("peak_memory", 0.03), ("program_memory", 0.02)]
    assert given.asked == [{1: limits, 2: limits}]


def on_the_second(mark):
    return benchmarks("mlp", "torch", marks={2: f"pytest.mark.{mark}"})


# By the outcome of a test that regresses: what it is marked with.
MARKED = {
    "skipped": ["skip", "skipif(True, reason='known')"],
    "xfailed": ["xfail(run=False)", "xfail(condition=True, reason='known', run=False)"],
    "failed": [
        "skipif(False, reason='known')",
        "skipif('False', reason='known')",
        "xfail(False, reason='known', run=False)",
    ],
}


def test_a_test_is_measured_if_it_runs(run, project, given):
    marks = dict(enumerate((f"pytest.mark.{mark}" for of in MARKED.values() for mark in of), 2))
    project.makepyfile(test_suite=benchmarks("mlp", "torch", sizes=range(1, 9), marks=marks))
    ended(run(dict.fromkeys(marks, "regressed")), 1, passed=1, **{outcome: len(of) for outcome, of in MARKED.items()})
    assert [[*asked] for asked in given.asked] == [[1, 6, 7, 8]]


def test_a_test_that_was_not_to_run_is_measured_where_xfail_is_switched_off(run, project, given):
    project.makepyfile(test_suite=on_the_second("xfail(run=False)"))
    ended(run({2: "regressed"}, "--runxfail"), 1, passed=2, failed=1)
    assert [[*asked] for asked in given.asked] == [[1, 2, 3]]


def test_a_test_that_skips_itself_is_not_judged(run, project):
    project.makepyfile(
        test_suite=benchmarks("mlp", "torch", first="if fwbench_workload.batch_size == 2: pytest.skip('known')")
    )
    ended(run({2: "regressed"}), 0, "2 benchmarks: 2 unchanged*")


@pytest.mark.parametrize(("others", "code"), [({}, 0), ({1: "incomparable"}, 4)])
def test_a_regression_that_is_expected_is_told_and_forgiven(run, project, others, code):
    project.makepyfile(test_suite=on_the_second("xfail"))
    ended(run({2: "regressed"} | others), code, "3 benchmarks: 1 regressed, *", xfailed=1, passed=2)


@pytest.mark.parametrize(("strict", "code", "outcome"), [(False, 0, "xpassed"), (True, 1, "failed")])
def test_what_was_expected_to_regress_and_has_not_counts_as_pytest_counts_it(run, project, strict, code, outcome):
    project.makepyfile(test_suite=on_the_second(f"xfail(strict={strict})"))
    ended(run({}), code, passed=2, **{outcome: 1})


def test_epochs_and_the_harness_itself_take_no_turns(run, project):
    project.makepyfile(test_suite=benchmarks())
    ended(run({}), 4, "*3 deselected*")


def test_a_duet_that_is_ended_by_a_signal_tells_what_it_knows(run, given):
    given.error = interrupts.Ended(signal.SIGTERM)
    ended(run({2: "inconclusive"}), pytest.ExitCode.INTERRUPTED, "3 benchmarks: 1 inconclusive, 2 unchanged*")


class Playing:
    """Plays pairs with equal times, other outputs and a stop; a run is ended by SIGTERM when it has played so many.

    Attributes:
        played: how many.
        last: after which the run is ended.
    """

    def __init__(self):
        self.played, self.last = 0, 4

    def play(self, pairs, workloads, arrived):
        for workload in workloads:
            if self.played == self.last:
                raise interrupts.Ended(signal.SIGTERM)
            self.played += 1
            sizes = {"base": 1.0, "head": 1.0025}
            described = {side: {"settings": {}, "versions": {}, "outputs": outputs(of)} for side, of in sizes.items()}
            values = {side: {"latency": 0.1, "cpu_time": 0.1} for side in described}
            differences = {"latency": 0.001, "cpu_time": 0.001}
            # No two take the same times.
            seconds = 2.0 + self.played / 1024
            rounds = {side: [0.1] for side in described}
            arrived(workload, Pair(differences, rounds, values, described, 0.0, seconds, held=True))


@pytest.fixture
def playing(without_gpu, project, monkeypatch):
    found = Playing()
    monkeypatch.setattr(Pairs, "play", lambda *given: found.play(*given))
    return found


def in_duet(project, *arguments):
    return in_process(project, "--benchmark-only", "--fwbench-against=HEAD", *arguments)


@needs("resume")
def test_a_duet_that_was_ended_goes_on_with_its_pairs(project, playing):
    """Three of each of three benchmarks."""
    assert in_duet(project).ret == pytest.ExitCode.INTERRUPTED
    playing.last = None
    ended(
        in_duet(project, "--fwbench-resume", "--benchmark-json=x.json"),
        0,
        "fwbench: 4 pairs taken from .benchmarks/journal/*.jsonl",
        "torch-mlp-inference-b1*: HEAD computes something else: outputs differ by 2.5e-03 *",
        "*in 3 of 3 pairs processes were stopped, or a quota of CPUs held them back*",
        "3 benchmarks: 3 unchanged; 3 computing something else*",
    )
    assert playing.played == 9
    saved = json.loads((project.path / "x.json").read_text())["benchmarks"]
    assert [len(benchmark["extra_info"]["duet"]["screening"]) for benchmark in saved] == [3, 3, 3]
    # Its own journal has all of them, so that nothing is played when it is resumed again.
    in_duet(project, "--fwbench-resume").stdout.fnmatch_lines(["fwbench: 9 pairs taken from *"])
    assert playing.played == 9


@needs("resume")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda project, _: project.makepyfile(more="") and commit(project.path),
            "nothing is taken from .benchmarks/journal/*: commit * then, * now*; compared with something else then",
        ),
        (
            lambda project, _: project.makepyfile(more=""),
            "nothing is taken from .benchmarks/journal/*: other uncommitted changes*",
        ),
        (
            lambda _, patch: patch.setenv("MALLOC_ARENA_MAX", "1"),
            "nothing is taken from *: MALLOC_ARENA_MAX not there then, 1 now",
        ),
    ],
    ids=["commit", "edit", "variable"],
)
def test_pairs_of_other_code_or_under_other_variables_are_not_taken(project, playing, monkeypatch, change, why):
    in_duet(project)
    playing.last = None
    change(project, monkeypatch)
    in_duet(project, "--fwbench-resume").stdout.fnmatch_lines([f"fwbench: {why}"])
    assert playing.played == 4 + 9


@needs("resume")
def test_what_is_no_journal_of_a_duet_is_one_sentence(project, playing):
    project.path.joinpath("x.jsonl").write_text('{"schema": 1, "started": ""}\n')
    for named in ("x.jsonl", "nothing.jsonl", ""):
        result = in_duet(project, f"--fwbench-resume={named}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: --fwbench-resume*{named}*"])
    assert playing.played == 0


@needs("resume")
def test_a_duet_without_a_journal_begins_anew_and_says_so(project, playing):
    playing.last = None
    told = "fwbench: --fwbench-resume: there is no journal of a duet yet, so everything is measured"
    in_duet(project, "--fwbench-resume").stdout.fnmatch_lines([told])
    assert playing.played == 9


def test_a_base_that_cannot_be_had_ends_the_run_in_one_sentence(run, given, project):
    """A filter of large files that is not installed."""
    git(project.path, "config", "filter.large.required", "true")
    git(project.path, "config", "filter.large.clean", "cat")
    git(project.path, "config", "filter.large.smudge", "no-such-program")
    (project.path / ".gitattributes").write_text("test_suite.py filter=large\n")
    commit(project.path, ".gitattributes")
    result = ended(run({}), 4, "*HEAD (*) could not be checked out in *: *smudge filter large failed*")
    result.stdout.no_fnmatch_line("*Traceback*")
    assert not given.asked


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--fwbench-against=nothing"], "*'nothing' is no interpreter, and no revision of *"),
        (["--fwbench-against="], "--fwbench-against '' is no interpreter, and no revision of *"),
        (["--fwbench-fail=latency:5"], "*--fwbench-fail 'latency:5' is not METRIC:PERCENT%*"),
        (["--fwbench-fail=throughput:5%"], "*throughput in --fwbench-fail is not measured by this gate*"),
        (["--fwbench-threads=0"], "*--fwbench-threads 0 is not a whole number*"),
        (["--fwbench-threads=4096"], "*this process may use * cores*"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_4(project, given, arguments, sentence):
    refused(in_process(project, "--fwbench-against=HEAD", *arguments), sentence)
    assert not given.asked


def test_a_real_duet_with_a_revision(without_gpu, with_fwbench):
    """What it finds is the machine's business: that it finds, and leaves nothing behind, is ours.

    Limits that no noise reaches, so that there are no suspects.
    """
    with_fwbench.makeconftest(f'{ONE_PAIR}\npytest_plugins = ["fwbench.plugin"]\n')
    with_fwbench.makepyfile(test_suite=benchmarks("mlp", "jax"))
    limits = [f"--fwbench-fail={metric}:10000%" for metric in ("latency", "cpu_time", "peak_memory")]
    against = ("--benchmark-only", "--fwbench-against=HEAD", "--benchmark-json=x.json")
    assert in_own_process(with_fwbench, *against, *limits, "-k", "b1").ret == 0
    (benchmark,) = json.loads((with_fwbench.path / "x.json").read_text())["benchmarks"]
    told = benchmark["extra_info"]["duet"]
    assert {"latency", "cpu_time", "peak_memory", "program_memory"} == told["verdicts"].keys()
    assert told["verdicts"]["program_memory"]["ratio"] == 1.0
    assert len(told["screening"]) >= 3
    # Two turns at each of the four placings; how many rounds a turn has depends on the machine's speed.
    assert benchmark["stats"]["rounds"] >= 2 * 4
    assert not (with_fwbench.path / ".git" / "worktrees").exists()
