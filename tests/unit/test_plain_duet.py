"""Plain tests of pytest-benchmark's in a duet: a real repository, real processes."""

import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import jsonschema
import pytest

from fwbench.compare.pair import Pair
from fwbench.plugin import marked, plain
from fwbench.plugin.seat import Call, Seat, UnrepeatableError
from fwbench.record.plain import PlainTest
from fwbench.worker.process.player import Turns
from fwbench.worker.process.witness import Witness
from fwbench.worker.turns.plain import Invocation, PlainPairs
from fwbench.worker.turns.taken import Taken
from tests.unit.shared import ALONE, extension, finish, git, needs
from tests.unit.test_duet import BASE, HEAD

kept = extension("resume.kept")

SOURCE = "import time\n\n\ndef nap():\n    time.sleep(0.001)\n    return 1\n\n\ndef same():\n    return 2\n"
BENCHMARKS = """
import os

import pytest
import words


@pytest.fixture(scope="module")
def given():
    return 3


def test_nap(benchmark, given):
    assert benchmark(words.nap) + 2 == given


class TestGroup:
    @pytest.mark.parametrize("n", [1, 2])
    def test_same(self, benchmark, n, tmp_path):
        assert benchmark(words.same) == 2
        assert benchmark.stats.stats.rounds >= 1


def test_arranged(benchmark):
    data = []
    benchmark.pedantic(lambda own: own.append(1), setup=lambda: ((data,), {}), teardown=list.clear, rounds=9)
    assert data == []


def test_wrong(benchmark):
    assert benchmark(words.same) == 2


def test_dies(benchmark):
    benchmark(words.same)


def test_one_round(benchmark):
    assert benchmark.pedantic(words.same, rounds=1) == 2


def test_unused(benchmark):
    pass


def test_skips(benchmark):
    pytest.skip("no such device")


def test_without():
    raise AssertionError


@pytest.mark.benchmark
@pytest.mark.parametrize("n", [1, 2])
def test_marked(n, given):
    assert words.nap() + 2 == given


@pytest.mark.benchmark
def test_marked_new():
    assert words.same() == 2
"""
# Behaves as pytest-codspeed does where it is installed and not switched on: it registers itself under its name.
CODSPEED = "def pytest_configure(config):\n    config.pluginmanager.register(object(), 'codspeed_plugin')\n"
SETTINGS = '[tool.pytest.ini_options]\ntestpaths = ["bench"]\npythonpath = ["src"]\nfilterwarnings = ["ignore"]\n'


def ran(folder, *command, **variables):
    # A run under xdist hands its variables down, and pytest-benchmark takes them as a word to switch itself off.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**inherited, **variables}
    return finish(*command, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with a commit, without fwbench in it."""
    return committed(tmp_path_factory.mktemp("words"), BENCHMARKS.replace("test_marked_new", "test_of_old"), SETTINGS)


def committed(folder, benchmarks, settings, source=SOURCE):
    """The folder as a repository of these."""
    files = {"src/words.py": source, "bench/test_words.py": benchmarks, "pyproject.toml": settings}
    for name, text in {**files, "conftest.py": CODSPEED}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        git(folder, *arguments)
    return folder


SUMMARY_SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[2] / "docs" / "summary.schema.json").read_text())
)


def duet(folder, *arguments, begun=("-m", "pytest")):
    """The kinds and notes of a duet's findings by benchmark, and the outcomes of its tests.

    Args:
        begun: the words between the interpreter and pytest's options.
    """
    summary, junit = folder / "summary.json", folder / "junit.xml"
    options = (*ALONE, "-q", "--benchmark-only", f"--fwbench-summary={summary}", f"--junitxml={junit}", *arguments)
    done = ran(folder, sys.executable, *begun, *options)
    assert summary.exists(), done.stdout + done.stderr
    outcome = json.loads(summary.read_text())
    SUMMARY_SCHEMA.validate(outcome)
    assert outcome["exit_code"] == done.returncode
    found = {}
    for each in outcome["findings"]:
        kind, note = each["kind"], each["note"]
        found.setdefault(each["benchmark"].partition("::")[2], {})[each["metric"]] = (kind, note)
    tests = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        tests[case.get("name")] = next((child.tag for child in case), "passed")
    return SimpleNamespace(found=found, notes=outcome["notes"], tests=tests, code=done.returncode, said=done.stdout)


@pytest.fixture(scope="module")
def changed(repository):
    """A duet of a changed working tree with its commit."""
    source, benchmarks = repository / "src" / "words.py", repository / "bench" / "test_words.py"
    source.write_text(SOURCE.replace("0.001", "0.004"))
    text = BENCHMARKS.replace(
        "def test_wrong(benchmark):\n    assert benchmark(words.same) == 2",
        "def test_wrong(benchmark):\n    assert benchmark(words.same) == 3",
    )
    text = text.replace("def test_dies(benchmark):\n", "def test_dies(benchmark):\n    os._exit(7)\n")
    benchmarks.write_text(f"{text}\n\ndef test_new(benchmark):\n    assert benchmark(words.same) == 2\n")
    yield duet(repository, "--fwbench-against=HEAD")
    ran(repository, "git", "checkout", "-q", ".")


@pytest.mark.slow
def test_a_slower_call_fails_its_test(changed):
    assert changed.found["test_nap"]["latency"][0] == "regressed"
    assert changed.tests["test_nap"] == "failure"
    assert changed.code == 1


@pytest.mark.slow
def test_what_pytest_codspeed_would_measure_as_a_whole_takes_turns(changed):
    """Also each of several tests of one function; and one that base has not is run, and measured, in the usual way."""
    for name in ("test_marked[1]", "test_marked[2]"):
        assert changed.found[name]["latency"][0] == "regressed"
        assert changed.tests[name] == "failure"
    assert changed.found["test_marked_new"][""][0] == "new"
    assert changed.tests["test_marked_new"] == "passed"
    assert "test_marked_new" in changed.said.partition("fwbench: duet")[0]


@pytest.mark.parametrize(
    ("codspeed", "source", "adopted"),
    [
        (True, "@pytest.mark.benchmark\ndef test_x(tmp_path): assert tmp_path.exists()", True),
        (True, "@pytest.mark.codspeed_benchmark\ndef test_x(): pass", True),
        (True, "@pytest.mark.benchmark\nasync def test_x(): pass", True),
        (True, "@pytest.mark.benchmark\ndef test_x(benchmark): pass", False),
        (True, "def test_x(): pass", False),
        # Then the marker is pytest-benchmark's, or somebody's own.
        (False, "@pytest.mark.benchmark\ndef test_x(): pass", False),
    ],
)
def test_a_marked_test_is_a_benchmark_where_pytest_codspeed_is_installed(pytester, codspeed, source, adopted):
    pytester.makeini("[pytest]\nmarkers = codspeed_benchmark: as pytest-codspeed has it")
    (item,) = pytester.getitems(f"import pytest\n\n{source}\n")
    if codspeed:
        item.config.pluginmanager.register(object(), "codspeed_plugin")
    run = item.runtest
    marked.adopt(item)
    assert (item.runtest != run) is adopted
    if adopted:
        item.funcargs = {"benchmark": lambda call: calls.append(call), "tmp_path": pytester.path}
        calls = []
        item.runtest()
        # A coroutine is pytest's to run.
        assert (calls == [run]) is ("async" in source)


@pytest.mark.slow
def test_unchanged_calls_pass(changed):
    for name in ("TestGroup::test_same[1]", "TestGroup::test_same[2]", "test_arranged"):
        assert changed.found[name]["latency"][0] in ("unchanged", "inconclusive")
        assert changed.tests[name.rpartition("::")[2]] == "passed"


@pytest.mark.slow
def test_what_fails_in_head_fails_here_and_a_test_that_kills_its_process_spares_the_others(changed):
    assert changed.found["test_wrong"][""][0] == changed.found["test_dies"][""][0] == "failed"
    assert "exit code 7" in changed.found["test_dies"][""][1]
    assert changed.tests["test_wrong"] == changed.tests["test_dies"] == "failure"


@pytest.mark.slow
def test_what_base_has_not_is_new_and_measured_in_the_usual_way(changed):
    assert changed.found["test_new"][""][0] == "new"
    assert changed.tests["test_new"] == "passed"


@pytest.mark.slow
def test_what_cannot_take_turns_is_told_and_measured_in_the_usual_way(changed):
    for name in ("test_one_round", "test_unused"):
        assert name not in changed.found
        assert [note for note in changed.notes if name in note]
        assert changed.tests[name] == "passed"


@pytest.mark.slow
def test_what_is_skipped_or_has_no_benchmark_is_left_alone(changed):
    assert changed.tests["test_skips"] == changed.tests["test_without"] == "skipped"
    assert not {"test_skips", "test_without"} & changed.found.keys()


@needs("resume")
@pytest.mark.slow
def test_pairs_are_kept_and_taken_again(changed, repository):
    """They lie in the run's journal, as those of workloads do."""
    (journal,) = (repository / ".benchmarks" / "journal").iterdir()
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    pairs = [kept.pair(line) for line in lines if "pair" in line]
    assert {(stage, test) for stage, test, _ in pairs} >= {("screening", PlainTest("bench/test_words.py::test_nap"))}
    metrics = {"latency", "cpu_time", "first_call", "peak_memory"}
    assert all(metrics == pair.differences.keys() for _, _, pair in pairs)
    without = {name: value for name, value in next(line for line in lines if "pair" in line).items() if name != "test"}
    with pytest.raises(ValueError, match="test"):
        kept.pair(without)


@pytest.mark.slow
def test_of_a_base_whose_pytest_does_not_begin_all_is_new(tmp_path):
    tests = "".join(f"def test_{number}(benchmark):\n    benchmark(int)\n\n\n" for number in range(20))
    folder = committed(tmp_path, tests, SETTINGS + 'addopts = "--no-such-option"\n')
    (folder / "pyproject.toml").write_text(SETTINGS)
    found = duet(folder, "--fwbench-against=HEAD", "--benchmark-max-time=0", "--benchmark-min-rounds=1")
    assert {kind for metrics in found.found.values() for kind, _ in metrics.values()} == {"new"}
    assert len(found.found) == 20
    assert set(found.tests.values()) == {"passed"}
    assert found.code == 4


@pytest.mark.slow
def test_a_module_of_head_in_base_ends_the_run(repository, tmp_path):
    """As of a package that was installed from the working tree in a way that no search path shows."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('words', {str(repository / 'src' / 'words.py')!r})\n"
        "sys.modules['words'] = module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
    )
    command = (sys.executable, "-m", "pytest", *ALONE, "-q", "--benchmark-only", "--fwbench-against=HEAD", "-k", "nap")
    done = ran(repository, *command, PYTHONPATH=str(hidden))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "'words'" in done.stdout + done.stderr


class Pipes:
    """A client that wants these steps, turns and nothing more."""

    def __init__(self, *messages):
        self.messages, self.sent = [*messages, {"go": True}], []

    def send(self, message):
        self.sent.append(message)

    def receive(self):
        return self.messages.pop(0)


CONFIG = {"tests": ["a"], "tree": None}


def test_a_step_is_as_many_calls_as_asked_and_their_times_are_of_one_call():
    count = []
    pipes = Pipes({"first": True}, {"calls": 5, "warm": 3, "padding": [8]}, {"rounds": 4})
    Seat(CONFIG, pipes, Witness(".")).take_turns(Call(count.append, lambda: ((1,), {})), calls=0)
    assert len(count) == 2 + 5 * (3 + 4)
    arrived, called, placed, turn = pipes.sent
    assert (arrived["test"], called["calls"]) == ("", 0)
    assert called["first"] >= called["call"] > 0
    assert called["peak"] > 1e6
    assert len(turn["rounds"]) == 4
    assert 0 < min(turn["rounds"]) < placed["placed"]


def test_energy_is_of_one_call_of_many(monkeypatch):
    """A step of five calls takes 10 J."""
    asked = []
    monkeypatch.setattr(Turns, "energy", lambda call: asked.append(call.device) or 10.0)
    pipes = Pipes({"first": True}, {"calls": 5, "warm": 1, "padding": []}, {"rounds": 1}, {"energy": True})
    Seat(CONFIG, pipes, Witness(".")).take_turns(Call(int, lambda: ((), {})), calls=0)
    assert (pipes.sent[-1], asked) == ({"energy": 2.0}, ["cpu"])


def test_calls_back_to_back_are_arranged_and_cleared():
    steps = []
    call = Call(
        lambda: steps.append("call"), lambda: steps.append("arrange") or ((), {}), lambda: steps.append("clear")
    )
    call.usual = 1.0, 1.0
    assert call._spend(1e-9)[0] * ["arrange", "call", "clear"] == steps


def test_what_is_arranged_and_cleared_is_not_timed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def later(seconds):
        now[0] += seconds

    call = Call(lambda: later(1.0), lambda: later(10.0) or ((), {}), lambda: later(100.0))
    assert call.settle(3) == 1.0
    assert now[0] == 3 * 111.0


def test_the_last_steps_tell_how_long_a_call_takes_that_becomes_slower(monkeypatch):
    now, count = [0.0], []
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def slower():
        count.append(1)
        now[0] += len(count)

    assert Call(slower, lambda: ((), {})).settle(9) == 7.0


class Sitting:
    """A side's process, whose calls take so many seconds, and so many joules."""

    alive = True

    def __init__(self, seconds=0.03, joules=1.0):
        self.seconds, self.joules, self.turns = seconds, joules, 0

    def arrive(self, test):
        return {"arrived": True}

    def go_on(self, test):
        return {"over": "passed"}

    def ask(self, message, answer):
        self.turns += answer == "rounds"
        told = {"placed": self.seconds, "rounds": [self.seconds] * message.get("rounds", 0), "energy": self.joules}
        return {**told, "cpu_time": self.seconds, "held": 0.0, **first_call(self.seconds)}


def first_call(seconds):
    return {"call": seconds, "calls": 1, "first": seconds, "peak": None, "versions": {}}


@pytest.fixture
def pairs(tmp_path):
    return lambda **options: PlainPairs(BASE, HEAD, Invocation(tmp_path, tmp_path, [], [], []), 60.0, **options)


@pytest.mark.parametrize(("seconds", "calls"), [(0.019, 2), (0.021, 1)])
def test_a_slow_call_is_a_turn_by_itself(pairs, seconds, calls):
    told = {side: first_call(seconds) for side in ("base", "head")}
    taken = Taken(pairs().amounts)
    pairs()._take_turns({side: Sitting(seconds) for side in told}, told, taken, 99)
    assert {side: len(stored) for side, stored in taken.pair("cpu", 1.0).rounds.items()} == dict.fromkeys(
        told, 12 * calls
    )


@pytest.mark.parametrize("metered", [True, False])
def test_a_pairs_energy_is_measured_where_it_is_asked_for(pairs, metered):
    seats = {"base": Sitting(joules=1.0), "head": Sitting(joules=1.5)}
    pair = pairs(metered=lambda test: metered)._pair(PlainTest("a"), seats, 0.0, 1)
    assert pair.differences.get("energy") == (pytest.approx(math.log(1.5)) if metered else None)
    assert ("energy" in pair.values["head"]) == metered


@pytest.mark.parametrize(("tests", "blocks"), [(1, 16), (2, 8), (3, 6), (400, 6)])
def test_few_tests_of_a_pair_of_processes_take_more_turns(pairs, tests, blocks):
    seats = {side: Sitting() for side in ("base", "head")}
    told = {side: first_call(0.03) for side in seats}
    pairs()._take_turns(seats, told, Taken(pairs().amounts), tests)
    assert {seat.turns for seat in seats.values()} == {2 * blocks}


def test_the_only_call_of_a_turn_counts():
    pipes = Pipes({"first": True}, {"calls": 1, "warm": 1, "padding": []}, {"rounds": 1})
    Seat(CONFIG, pipes, Witness(".")).take_turns(Call(int, lambda: ((), {})), calls=0)
    turn = pipes.sent[-1]
    assert (len(turn["rounds"]), turn["cpu_time"] >= 0) == (1, True)


@pytest.mark.parametrize("numbers", [[1], [1, 2], range(9)])
def test_a_call_that_uses_up_its_input_cannot_be_repeated(numbers):
    pipes = Pipes({"first": True}, {"calls": 5, "warm": 3, "padding": []}, {"rounds": 4})
    left = iter(numbers)
    with pytest.raises(UnrepeatableError, match="StopIteration"):
        Seat(CONFIG, pipes, Witness(".")).take_turns(Call(next, lambda: ((left,), {})), calls=0)


def test_the_first_call_may_fail_as_the_test_would():
    with pytest.raises(ZeroDivisionError):
        Seat(CONFIG, Pipes({"first": True}), Witness(".")).take_turns(Call(lambda: 1 / 0, lambda: ((), {})), calls=0)


def test_what_nobody_awaits_is_no_call():
    async def later():
        return 1

    with pytest.raises(UnrepeatableError):
        Seat(CONFIG, Pipes({"first": True}), Witness(".")).take_turns(Call(later, lambda: ((), {})), calls=0)


def test_a_second_benchmark_in_a_test_cannot_take_turns():
    seat = Seat(CONFIG, Pipes({"first": True}), Witness("."))
    seat.take_turns(Call(int, lambda: ((), {})), calls=0)
    with pytest.raises(UnrepeatableError):
        seat.take_turns(Call(int, lambda: ((), {})), calls=0)


def test_results_are_waited_for(monkeypatch):
    """Frameworks hand over arrays that they have yet to compute."""
    waited = []
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(block_until_ready=waited.append))
    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: waited.append("torch"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    Call(lambda: 7, lambda: ((), {})).settle(2)
    assert waited == [7, "torch", 7, "torch"]


@pytest.mark.parametrize(("spoke", "begun"), [(False, 2), (True, 6)])
def test_processes_that_die_are_begun_again_if_they_came_to_a_test(monkeypatch, pairs, spoke, begun):
    seats = []

    class Dead:
        def __init__(self, side, *_):
            self.side, self.name, self.alive, self.spoke = side, side.name, False, spoke
            seats.append(self)

        def arrive(self, test):
            return {"over": "died", "message": "it was killed"}

        def close(self):
            pass

    monkeypatch.setattr("fwbench.worker.turns.plain._Seat", Dead)
    faults = {}
    tests = [PlainTest(name) for name in "abc"]
    pairs().play(tests, faults.__setitem__)
    assert list(faults) == tests
    assert {fault.failure.kind for fault in faults.values()} == {"crashed"}
    assert len(seats) == begun


def test_places_are_told_from_options(tmp_path):
    names = SimpleNamespace(file_or_dir=["tests", "other::test_a"])
    called = SimpleNamespace(args=("-k", "tests", "-x", "tests", "other::test_a"), dir=tmp_path)
    config = SimpleNamespace(invocation_params=called, known_args_namespace=names, rootpath=tmp_path)
    found = plain.invocation(config)
    assert (list(found.options), list(found.places)) == (["-k", "tests", "-x"], ["tests", "other::test_a"])


@needs("resume")
def test_a_pair_of_a_plain_test_is_read_as_it_was_written():
    sides = {"base": [1.0], "head": [1.0]}
    values = {side: {"latency": 1.0} for side in sides}
    described = {side: {"settings": {}, "versions": {}} for side in sides}
    pair = Pair({"latency": 0.5}, sides, values, described, 0.0, 2.0)
    line = json.loads(json.dumps({"stage": "screening", "test": "a", "pair": pair.to_json()}))
    stage, test, read = kept.pair(line)
    assert (stage, test) == ("screening", PlainTest("a"))
    assert (read.differences, read.rounds, read.seconds) == (pair.differences, sides, 2.0)
