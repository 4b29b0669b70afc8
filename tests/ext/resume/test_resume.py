"""`--fwbench-resume`: what is taken from a journal, what is not and why, and that the outcome is that of one run."""

import dataclasses
import itertools
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fwbench.errors import UserError
from fwbench.ext.resume import conditions, resuming
from fwbench.machine import machine
from fwbench.models import CATALOG, Model
from fwbench.models.inputs import normal
from fwbench.models.project import Project
from fwbench.plugin.selecting import select
from fwbench.plugin.session import Session
from fwbench.record import journal
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.journal import AGAINST, ROUND
from fwbench.record.measurement import Failure
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from tests.unit.faults.test_records import AGAIN
from tests.unit.recorded import failed, measured, rounds, write
from tests.unit.shared import git, needs
from tests.unit.suites import benchmarks, parsed
from tests.unit.suites import in_process as run
from tests.unit.suites import suite as noops

QUICK = PROFILES["quick"]


__all__ = ["noops"]


class Measuring:
    """Stands in for the processes that measure: of each workload always the same numbers, and a list of who asked.

    Attributes:
        asked: batch sizes, in order.
        ending: at this one the run ends.
        failing: this one fails.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.ending: int | None = None
        self.failing: int | None = None

    def __call__(self, session, workload, protocol, tell=lambda _: None):
        size = workload.batch_size
        self.asked.append(size)
        if size == self.ending:
            pytest.exit("ended", pytest.ExitCode.INTERRUPTED)
        failure = Failure("crashed", "killed by SIGKILL") if size == self.failing else None
        samples = tuple(size / (7 + number) for number in range(5))
        fields = {"mode": workload.mode, "batch_size": size, "device": workload.device, "samples": samples}
        found = measured("noop", "noop", protocol=protocol.to_json(), stages={"latency": 0.1 * size}, **fields)
        return dataclasses.replace(found, parity={}, failure=failure, samples=() if failure else samples)


@pytest.fixture
def suite(noops):
    """Three workloads that do nothing."""
    return noops


@pytest.fixture
def measuring(monkeypatch):
    found = Measuring()
    monkeypatch.setattr(Session, "run", lambda *arguments: found(*arguments))
    return found


def journals(suite):
    """Those of a suite's runs, oldest first, each without its header."""
    paths = suite.path.glob(".benchmarks/journal/*.jsonl")
    read = [list(map(json.loads, journal.lines(path.read_text())[0])) for path in paths]
    return [rest for _, *rest in sorted(read, key=lambda lines: lines[0]["started"])]


def stored(suite, name):
    """What pytest-benchmark stored, less the moment."""
    record = json.loads((suite.path / name).read_text())
    del record["datetime"]
    # Of no repository it takes the time.
    del record["commit_info"]
    return record


ONLY = "--benchmark-only"


def test_a_resumed_run_ends_with_the_json_of_a_whole_one(suite, measuring):
    run(suite, ONLY, "--benchmark-json=whole.json")
    measuring.asked.clear()
    measuring.ending = 3
    ended = run(suite, ONLY, "--benchmark-storage=other")
    assert ended.ret == pytest.ExitCode.INTERRUPTED
    ended.stdout.fnmatch_lines(["the run was ended: the same command with --fwbench-resume goes on from here"])
    ended.stdout.no_fnmatch_line("*fixture was not used*")
    measuring.ending = None
    result = run(suite, ONLY, "--benchmark-storage=other", "--fwbench-resume", "--benchmark-json=resumed.json")
    result.assert_outcomes(passed=3)
    assert measuring.asked == [1, 2, 3, 3]
    assert stored(suite, "resumed.json") == stored(suite, "whole.json")
    result.stdout.no_fnmatch_line("*the run was ended*")
    result.stdout.fnmatch_lines(
        [
            "fwbench: 2 of 3 benchmarks taken from other/journal/*.jsonl; measured: 1 (not measured then)",
            "fwbench: 1 benchmark, *",
            "[[]1/3, * left] noop-noop-inference-b1: taken from the journal, *",
            "[[]3/3, * left] noop-noop-inference-b3: *samples/s",
            "journal: other/journal/*.jsonl; all of it: fwbench report other/journal/*.jsonl",
            "resumed: 2 of 3 benchmarks taken from other/journal/*.jsonl; *",
        ]
    )


def test_a_resumed_run_that_is_ended_too_can_be_resumed(suite, measuring):
    """Its journal has all that was measured before as soon as it is there."""
    measuring.ending = 3
    run(suite, ONLY)
    measuring.ending = 3
    run(suite, ONLY, "--fwbench-resume")
    measuring.ending = None
    run(suite, ONLY, "--fwbench-resume").assert_outcomes(passed=3)
    assert measuring.asked == [1, 2, 3, 3, 3]
    first, second, third = journals(suite)
    assert first == second == third[:2]
    # Of a run that was not ended everything is taken, and nothing is left to be planned.
    result = run(suite, ONLY, "--fwbench-resume")
    assert len(measuring.asked) == 5
    result.stdout.fnmatch_lines(["fwbench: 3 of 3 benchmarks taken from *.jsonl"])
    assert "benchmark, " not in result.stdout.str()


def test_what_failed_is_measured_again_and_a_line_that_was_cut_off_too(suite, measuring):
    measuring.failing = 2
    run(suite, ONLY)
    (path,) = suite.path.glob(".benchmarks/journal/*")
    path.write_text(path.read_text()[:-40])
    measuring.failing = None
    measuring.asked.clear()
    result = run(suite, ONLY, f"--fwbench-resume={path}", "--benchmark-json=x.json")
    result.assert_outcomes(passed=3)
    assert measuring.asked == [2, 3]
    result.stdout.fnmatch_lines(
        [
            "fwbench: 1 of 3 benchmarks taken from *; measured: 1 (crashed then, and what failed is measured again), "
            "1 (not measured then)",
            "fwbench: the last line is cut off*",
        ]
    )
    assert stored(suite, "x.json")["fwbench"]["failures"] == []
    assert [m["workload"]["batch_size"] for m in journals(suite)[-1]] == [1, 2, 3]


def test_a_test_gets_what_was_taken_as_if_it_were_measured(suite, measuring):
    """It has its own marker, and fails by itself afterwards."""
    source = benchmarks(sizes=(1, 2), marks={1: "pytest.mark.benchmark(min_rounds=9)"})
    suite.makepyfile(test_suite=source.replace("fwbench_measure()", "assert len(fwbench_measure().samples) == 6"))
    run(suite, ONLY, "--benchmark-json=whole.json").assert_outcomes(failed=2)
    result = run(suite, ONLY, "--benchmark-json=resumed.json", "--fwbench-resume")
    result.assert_outcomes(failed=2)
    assert measuring.asked == [1, 2]
    assert stored(suite, "resumed.json") == stored(suite, "whole.json")


@needs("programs")
def test_a_gate_judges_what_was_taken_too(suite, measuring):
    """Of programs, as the lane that does nothing takes part in no other."""
    programs = "--fwbench-programs-only"
    run(suite, programs)
    base = next(suite.path.glob(".benchmarks/journal/*"))
    changed = [json.loads(line) for line in base.read_text().splitlines()]
    for line in changed[1:]:
        line["program"] = dataclasses.asdict(Fingerprint(form="HLO", digest="f00d"))
    write(suite.path / "base.jsonl", changed)
    result = run(suite, programs, "--fwbench-resume", "--benchmark-compare=base.jsonl")
    assert measuring.asked == [1, 2, 3]
    result.assert_outcomes(failed=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_of_two_tests_of_one_workload_each_has_its_own(suite, measuring, monkeypatch):
    source = benchmarks(sizes=(1,))
    suite.makepyfile(test_suite=source, test_twin=source)
    numbers = itertools.count(1)
    once = Session.run

    def twice(*arguments):
        number = float(next(numbers))
        return dataclasses.replace(once(*arguments), samples=(number,) * 3, stages={"latency": number})

    monkeypatch.setattr(Session, "run", twice)
    run(suite, ONLY, "--benchmark-json=whole.json")
    run(suite, ONLY, "--benchmark-json=resumed.json", "--fwbench-resume")
    assert measuring.asked == [1, 1]
    assert stored(suite, "resumed.json") == stored(suite, "whole.json")


def test_a_taken_test_that_is_run_again_is_measured_again(suite, measuring):
    suite.makeconftest(AGAIN)
    suite.makepyfile(test_suite=benchmarks(sizes=(1,)).replace("fwbench_measure()", "fwbench_measure(); assert 0"))
    run(suite, ONLY)
    run(suite, ONLY, "--fwbench-resume")
    assert measuring.asked == [1, 1, 1]


def test_without_a_journal_everything_is_measured_and_collecting_writes_none(suite, measuring):
    result = run(suite, ONLY, "--fwbench-resume")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["fwbench: --fwbench-resume: there is no journal yet, so everything is measured"])
    result = run(suite, ONLY, "--fwbench-resume", "--collect-only")
    result.stdout.fnmatch_lines(["fwbench: 3 of 3 benchmarks taken from *"])
    assert len(journals(suite)) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--fwbench-resume=none.jsonl", "none.jsonl cannot be read (No such file or directory): name one of *"),
        ("--fwbench-resume=test_suite.jsonl", "*taken from test_suite.jsonl: it is no journal of fwbench. *"),
        ("--fwbench-resume=.", "--fwbench-resume=. names tests: name something else, or leave out the =."),
        ("--fwbench-resume=", "names no journal: leave out the = for the newest one."),
        ("--fwbench-resume --benchmark-disable", "measures nothing for --fwbench-resume*"),
        ("--fwbench-resume --benchmark-skip", "measures nothing for --fwbench-resume*"),
        ("--fwbench-resume -n2", " cannot work with -n/--dist*"),
        ("--fwbench-resume=old.jsonl", "nothing can be taken from old.jsonl: its first line *"),
        ("--fwbench-resume=strange.jsonl", "nothing can be taken from strange.jsonl: its first line *"),
    ],
)
def test_what_cannot_be_resumed_is_one_sentence_and_exit_4(suite, measuring, arguments, sentence):
    suite.path.joinpath("test_suite.jsonl").write_text("{}\n")
    header = {"schema": 1, "started": "2026-11-21T09:05:35+00:00", "profile": "quick", "machine": machine().to_json()}
    write(suite.path / "old.jsonl", [header])
    write(suite.path / "strange.jsonl", [{**header, "code": [], "settings": 3}])
    result = run(suite, *arguments.split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{sentence.replace('[', '[[]')}"])
    assert measuring.asked == []


@pytest.mark.parametrize("after", ["folder", "folder/test_one.py", "folder/test_one.py::test_it"])
def test_what_is_to_be_tested_is_not_taken_for_a_journal(pytester, after):
    pytester.mkdir("folder").joinpath("test_one.py").write_text("")
    for arguments in ((after, "--fwbench-resume"), ("--fwbench-resume", after), ("--fwbench-resume", after, "-x")):
        config = parsed(pytester, *arguments)
        assert (config.getoption("fwbench_resume"), config.args) == (True, [after])
    config = parsed(pytester, "--fwbench-resume", "a.jsonl", after)
    assert (config.getoption("fwbench_resume"), config.args) == ("a.jsonl", [after])
    assert parsed(pytester).getoption("fwbench_resume") is None


# What decides


HERE = machine()
ASKED = {"one": (Workload("torch", "mlp"), QUICK), "other": (Workload("jax", "mlp"), QUICK)}


@pytest.fixture
def now(pytester):
    """A run's conditions, as JSON."""
    selection = select(parsed(pytester), dataclasses.replace(HERE, device="cpu"))
    project = Project(pytester.path, (pytester.path,))
    return conditions.conditions(selection, HERE, project, [w for w, _ in ASKED.values()], pytester.path / "s", ())


def resumed(tmp_path, then, now, *measurements, asked=ASKED):
    header = {"schema": 1, "started": "2026-11-21T09:05:35+00:00", **then}
    (tmp_path / "journal").mkdir()
    lines = [*(m.to_json() for m in measurements), *({ROUND: each} for each in rounds(*measurements))]
    write(tmp_path / "journal" / "x.jsonl", [header, *lines])
    return resuming.resume(True, tmp_path, now, asked, tmp_path)


def both(**fields):
    return [measured(lane, protocol=QUICK.to_json(), **fields) for lane in ("torch", "jax")]


@pytest.mark.parametrize(
    "change",
    [
        lambda then: None,
        lambda then: then["machine"].update(memory=4096),
        # That one run alone has loaded.
        lambda then: then["modules"].update({"elsewhere.py": "0"}),
    ],
    ids=["nothing", "memory", "other tests"],
)
def test_what_changes_no_number_is_no_difference(tmp_path, now, change):
    then = json.loads(json.dumps(now))
    change(then)
    found = resumed(tmp_path, then, now, *both())
    assert {test: m.samples for test, m in found.taken.items()} == dict.fromkeys(ASKED, (0.25, 0.125, 0.5))


def test_what_no_lane_computes_with_is_no_condition(now):
    own = now["lanes"]["torch"]
    assert own["numpy"]
    assert own["torch"]
    assert not own.keys() & {"jax", "pygal", "pytest", "fwbench", "PATH"}


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        (("run", "profile"), "paper", "profile paper then, quick now"),
        (("run", "profile"), "a\n\nb", "profile a b then, quick now"),
        (("run", "kernel"), "Linux 1", "kernel Linux 1 then, "),
        (("run", "cpus"), [7, 8], "cpus 7 8 then, "),
        (("run", "threads"), 64, "threads 64 then, "),
        (("run", "processes"), 3, "processes 3 then, 1 now"),
        (("run", "commit"), "a" * 40, "commit aaaaaaaaaaaa then, not there now"),
        (("changes",), "b", "other uncommitted changes"),
        (("run", "fwbench"), "0.0.9 (c)", "fwbench 0.0.9 (c) then, 0."),
        (("modules",), {"nets.py": "0"}, "nets.py has changed"),
    ],
)
def test_of_another_run_nothing_is_taken_and_the_reason_is_told(tmp_path, now, keys, value, sentence):
    now["modules"]["nets.py"] = "1"
    then = json.loads(json.dumps(now))
    of = then
    for key in keys[:-1]:
        of = of[key]
    of[keys[-1]] = value
    found = resumed(tmp_path, then, now, *both())
    assert not found.taken
    assert sentence in found.lines[0]
    assert found.lines[0].startswith("nothing is taken from ")


@pytest.mark.parametrize("field", ["machine", "run", "modules", "lanes"])
def test_of_a_newest_journal_that_is_damaged_nothing_is_taken_and_the_run_goes_on(tmp_path, now, field):
    """A job that may be ended at any moment is always begun by the same command."""
    found = resumed(tmp_path, {**now, field: 3}, now, *both())
    assert (found.taken, found.lines[0].startswith("nothing is taken")) == ({}, True)


def test_of_another_schema_nothing_is_taken(tmp_path, now):
    found = resumed(tmp_path, {**now, "schema": 99}, now)
    assert "has schema 99" in found.lines[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"JAX_ENABLE_X64": "1"}, "JAX_ENABLE_X64 1 then, not there now"),
        ({"interpreter of jax": "/elsewhere"}, "interpreter of jax /elsewhere then, "),
        ({"jax": "0.0.1"}, "jax 0.0.1 then, "),
        ({"flax": "0.0.1"}, "flax 0.0.1 then, "),
    ],
)
def test_what_differs_in_one_lane_is_not_taken_of_that_lane_alone(tmp_path, now, change, sentence):
    then = json.loads(json.dumps(now))
    then["lanes"]["jax"] |= change
    found = resumed(tmp_path, then, now, *both())
    assert found.taken.keys() == {"one"}
    ((why, count),) = found.left.items()
    assert (sentence in why, count) == (True, 1)
    assert f"1 of 2 benchmarks taken from {tmp_path / 'journal' / 'x.jsonl'}; measured: 1 ({why})" == found.lines[0]


@pytest.mark.parametrize(
    ("measurement", "why"),
    [
        (measured(protocol={**QUICK.to_json(), "min_rounds": 9}), "min_rounds 9 then, 5 now"),
        (measured(protocol=QUICK.to_json(), batch_size=2), "not measured then"),
        (measured(protocol=QUICK.to_json(), seed=1), "not measured then"),
        (measured(protocol=QUICK.to_json(), duet={"kind": "unchanged"}), "measured in a duet then"),
        (failed("unavailable", lane="torch"), "unavailable then, and what failed is measured again"),
        (failed("timed_out", lane="torch"), "timed_out then, and what failed is measured again"),
    ],
)
def test_what_this_run_would_not_make_is_not_taken(tmp_path, now, measurement, why):
    asked = {"one": ASKED["one"]}
    found = resumed(tmp_path, now, now, measurement, asked=asked)
    assert (found.taken, found.left) == ({}, {why: 1})


def test_rounds_are_taken_with_all_measurements_that_played_them_and_else_not(tmp_path, now):
    turns = tuple({"begun": float(number), "call": [0.5]} for number in range(3))
    found = resumed(tmp_path, now, now, *both(turns=turns))
    assert [each.begun for each in found.rounds] == [0.0, 1.0, 2.0]
    # The session adds them to its measurements.
    assert [m.turns for m in found.taken.values()] == [(), ()]
    (tmp_path / "other").mkdir()
    torch, jax = both(turns=turns)
    again = dataclasses.replace(jax, protocol={**QUICK.to_json(), "min_rounds": 9})
    found = resumed(tmp_path / "other", now, now, torch, again)
    assert (list(found.taken), list(found.rounds)) == (["one"], [])


def test_a_duets_journal_is_not_that_of_a_run(tmp_path, now):
    (tmp_path / "journal").mkdir()
    path = write(tmp_path / "journal" / "x.jsonl", [{"schema": 1, "started": "", **now, AGAINST: {"revision": "HEAD"}}])
    assert "there is no journal yet" in resuming.resume(True, tmp_path, now, ASKED, tmp_path).lines[0]
    with pytest.raises(UserError, match=r"nothing can be taken from .*: it is a duet's"):
        resuming.resume(str(path), tmp_path, now, ASKED, tmp_path)


def test_of_several_lines_the_last_counts(tmp_path, now):
    asked = {"one": ASKED["one"]}
    first, last = (measured(protocol=QUICK.to_json(), samples=(value,)) for value in (1.0, 2.0))
    assert resumed(tmp_path, now, now, first, last, asked=asked).taken["one"].samples == (2.0,)


def test_of_the_newest_journal_the_time_within_counts_not_the_name(tmp_path):
    for name, started in (("b", "2026-11-21T09:00:00.5+00:00"), ("a", "2026-11-21T09:00:00.7+00:00")):
        write(tmp_path / f"{name}.jsonl", [{"schema": 1, "started": started}])
    (tmp_path / "z.jsonl").write_text("no journal")
    assert journal.newest(tmp_path).stem == "a"
    assert journal.newest(tmp_path / "none") is None


# Code


@pytest.fixture
def repository(pytester, monkeypatch):
    """A git repository with a model; what a run in it writes down of the code."""
    for name, value in (("GIT_CONFIG_GLOBAL", os.devnull), ("GIT_CONFIG_SYSTEM", os.devnull)):
        monkeypatch.setenv(name, value)
    top = pytester.path
    (top / "nets.py").write_text("import numpy\nimport scipy\n")
    (top / ".gitignore").write_text("ignored.py\n")
    git(top, "init", "-q")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "first")
    selection = select(parsed(pytester), HERE)
    project = Project(top, (top, top / "outside"))

    def code(*models):
        for model in models:
            project.models.setdefault(model.name, model)
        workloads = [Workload("torch", model.name) for model in models]
        found = conditions.conditions(selection, HERE, project, workloads, top / ".benchmarks", ())
        return {**found, "commit": found["run"]["commit"]}, found["lanes"]

    code.top = top
    return code


def test_a_commit_and_every_change_that_is_not_committed_count(repository):
    top = repository.top
    clean, _ = repository()
    assert len(clean["commit"]) == 40
    assert clean["changes"] == ""
    seen = {""}
    for name, text in (("nets.py", "x = 1\n"), ("nets.py", "x = 2\n"), ("new.py", "y = 1\n"), ("conf.toml", "a = 1\n")):
        (top / name).write_text(text)
        seen.add(repository()[0]["changes"])
    assert len(seen) == 5
    git(top, "add", "nets.py", "new.py")
    assert repository()[0]["changes"] not in ("", None)
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "second")
    after, _ = repository()
    assert (after["changes"], after["commit"] == clean["commit"]) == ("", False)


def test_records_logs_and_what_git_ignores_are_no_change(repository):
    for name in (".benchmarks/journal/x.jsonl", ".benchmarks/x.py", "run.log", "results.json", "ignored.py"):
        path = repository.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("something\n")
    assert repository()[0]["changes"] == ""


def test_modules_of_a_network_count_wherever_they_lie_and_what_they_import_too(repository):
    outside = repository.top / "ignored.py"
    outside.write_text("import nets\n")
    model = Model("mine", torch="ignored:Net", inputs=normal(3), classes=2)
    before, imported = repository(model)
    assert "scipy" in imported["torch"]
    outside.write_text("import nets\nx = 1\n")
    after, _ = repository(model)
    assert before["changes"] == after["changes"] == ""
    assert before["modules"]["ignored"] != after["modules"]["ignored"]
    # Of the suite's own networks fwbench's digest tells.
    assert "scipy" not in repository(CATALOG["mlp"])[1]["torch"]


def test_an_edit_of_any_network_is_an_edit_of_the_project(tmp_path):
    for name in ("net", "fused", "jax_net"):
        (tmp_path / f"{name}.py").write_text(f"NAME = {name!r}\n")
    model = Model("block", torch={"one": "net:A", "two": "fused:A"}, jax="jax_net:A", inputs=normal(8))
    followed = conditions._followed([model], Project(tmp_path, (tmp_path,), {}))
    assert followed.files.keys() == {"net", "fused", "jax_net"}


def test_of_the_loaded_modules_those_count_that_nothing_else_stands_for(tmp_path, monkeypatch):
    """Not fwbench's and Python's own, nor what is installed or of a commit; but a folder whose name begins alike."""
    files = [tmp_path / "mine.py", tmp_path / "of-a-commit-not" / "mine.py", tmp_path / "of-a-commit" / "theirs.py"]
    files.append(tmp_path / "lib" / "site-packages" / "theirs.py")
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    told = [conditions.PACKAGE / "__init__.py", Path(os.__file__)]
    modules = [SimpleNamespace(__file__=str(path)) for path in (*files, *told)]
    monkeypatch.setattr(conditions, "sys", SimpleNamespace(modules={}))
    found = conditions._loaded(tmp_path, tmp_path / "of-a-commit", modules)
    assert found.keys() == {"mine.py", os.path.join("of-a-commit-not", "mine.py")}


def test_outside_of_a_repository_the_files_of_the_tests_count(suite, measuring):
    run(suite, ONLY)
    path = suite.path / "test_suite.py"
    path.write_text(path.read_text() + "\n# Edited.\n")
    result = run(suite, ONLY, "--fwbench-resume")
    result.stdout.fnmatch_lines(["fwbench: nothing is taken from *.jsonl: test_suite.py has changed"])
    assert measuring.asked == [1, 2, 3] * 2
    conftest = suite.path / "conftest.py"
    conftest.write_text(conftest.read_text() + "\n# Edited.\n")
    run(suite, ONLY, "--fwbench-resume").stdout.fnmatch_lines(["fwbench: nothing is taken *: conftest.py has changed"])


def test_each_conftest_counts_though_they_share_a_name(tmp_path, pytester):
    """Of several, Python's list of modules has the last one alone."""
    path = pytester.path / "folder" / "conftest.py"
    path.parent.mkdir()
    path.write_text("x = 1\n")
    selection, project = select(parsed(pytester), HERE), Project(pytester.path, ())
    found = conditions.conditions(selection, HERE, project, (), tmp_path, [SimpleNamespace(__file__=str(path))])
    assert "folder/conftest.py" in found["modules"]


def test_of_two_versions_of_a_distribution_the_one_that_is_imported_counts(tmp_path, monkeypatch):
    for folder, version in (("first", "1.0"), ("second", "2.0")):
        (tmp_path / folder / f"some_thing-{version}.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*(str(tmp_path / folder) for folder in ("none", "first", "second"))])
    assert conditions.interpreter.__wrapped__(sys.executable)["distributions"] == {"some-thing": "1.0"}


def test_another_interpreters_versions_are_asked_for():
    wrapped = os.path.join(os.path.dirname(sys.executable), ".", os.path.basename(sys.executable))
    own, other = conditions.interpreter(sys.executable), conditions.interpreter(wrapped)
    assert own["version"] == other["version"]
    assert own["distributions"]["nvidia-ml-py"] == other["distributions"]["nvidia-ml-py"]
    assert conditions.interpreter("/bin/false") == {"version": None, "distributions": {}}
