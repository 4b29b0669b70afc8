"""`fwbench bisect` and `fwbench explain` of plain tests: a real repository, real processes; profiles of lines.

Each duet and each comparison of a search plays one pair.
"""

import functools
import json
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fwbench.ext.causes.operators import changes, of_lines
from fwbench.meters.sampling import sampled
from fwbench.plugin.seat import Call
from tests.unit.shared import ONE_PLAIN_PAIR, git
from tests.unit.test_plain_duet import SOURCE, committed, duet, ran

SETTINGS = '[tool.pytest.ini_options]\npythonpath = ["src"]\n'
BENCHMARKS = """
import pytest
import words


@pytest.mark.parametrize("n", [1, 2])
def test_nap(benchmark, n):
    assert benchmark(words.nap) == 1
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository of four commits; with the third a call takes three times as long."""
    # Long naps: the fastest of few then takes as long in each process.
    long = SOURCE.replace("0.001", "0.01")
    folder = committed(tmp_path_factory.mktemp("searched"), BENCHMARKS, SETTINGS, long)
    source = folder / "src" / "words.py"
    for subject, before, after in (("two", "return 2", "return 3"), ("three", "0.01", "0.03"), ("four", "3", "4")):
        source.write_text(source.read_text()[::-1].replace(before[::-1], after[::-1], 1)[::-1])
        git(folder, "commit", "-qam", subject)
    return folder


def fwbench(folder, *arguments):
    code = f"{ONE_PLAIN_PAIR}\nimport sys\nfrom fwbench.commands.cli import main\n\nsys.exit(main())"
    return ran(folder, sys.executable, "-c", code, *arguments)


@pytest.mark.slow
def test_the_commit_that_made_a_plain_test_slower_is_found(repository):
    done = fwbench(repository, "bisect", "HEAD~3..HEAD", "--test=bench/test_words.py::test_nap[2]")
    assert done.returncode == 0, done.stderr
    (slower,) = (line for line in done.stdout.splitlines() if line.startswith("It became "))
    assert slower.startswith("It became slower with ")
    assert "(three): +1" in slower


@pytest.mark.slow
def test_the_line_that_made_a_plain_test_slower_is_found_with_the_function_where_the_time_goes(repository):
    done = fwbench(repository, "explain", "HEAD~2", "HEAD", "--test=bench/test_words.py::test_nap[2]")
    assert done.returncode == 0, done.stderr
    assert "comes from src/words.py, line 5: it is gone with that" in done.stdout
    rows = done.stdout.partition("Where the time of a call goes")[2].splitlines()
    assert rows[2].endswith("nap (src/words.py:5)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("bench/test_words.py::test_nap", "that is 2 tests; name one"),
        ("bench/test_words.py::test_missing", "pytest cannot collect it"),
        ("src/words.py", "no test with the fixture"),
    ],
)
def test_what_is_no_plain_test_is_one_sentence(repository, test, words):
    done = fwbench(repository, "bisect", "HEAD~2..HEAD", f"--test={test}")
    assert done.returncode == 4
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"fwbench: --test {test}: ")
    assert words in last


COLD = """
import time

held = []


def load():
    if not held:
        time.sleep(0.2)
        held.append(bytearray(1 << 20))
    time.sleep(0.001)
    return bytearray(1 << 20)[:1]
"""
LOADS = "import words\n\n\ndef test_load(benchmark):\n    assert benchmark(words.load) == b'\\0'\n"


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    """A repository whose first call becomes slower with its second commit, and whose memory grows with its last.

    The one between changes nothing: fresh memory takes time in the first call, too, and a search that ends before the
    last commit has one change to find.
    """
    folder = committed(tmp_path_factory.mktemp("cold"), LOADS, SETTINGS, COLD)
    source = folder / "src" / "words.py"
    more = ("return bytearray(1 <<", "return bytearray(48 <<")
    changes = (("0.2", "0.4"), ("held = []", "held: list[bytearray] = []"), more)
    for before, after in changes:
        source.write_text(source.read_text().replace(before, after))
        git(folder, "commit", "-qam", after)
    return folder


@pytest.mark.slow
def test_a_slower_first_call_and_more_memory_fail_a_gate(cold):
    begun = ("-c", f"{ONE_PLAIN_PAIR}\nimport sys\n\nimport pytest\n\nsys.exit(pytest.main())")
    run = duet(cold, "--fwbench-against=HEAD~3", "--fwbench-fail=first_call:20%,compile_time:20%", begun=begun)
    # A plain test has no such time, and that is said.
    (note,) = run.notes
    assert note.startswith("compile_time was not compared")
    found = run.found["test_load"]
    assert {metric: kind for metric, (kind, _) in found.items()} == {
        "latency": found["latency"][0],
        "cpu_time": found["cpu_time"][0],
        "first_call": "regressed",
        "peak_memory": "regressed",
    }


@pytest.mark.slow
def test_the_commit_of_a_slower_first_call_is_found(cold):
    options = ("--test=bench/test_words.py::test_load", "--metric=first_call")
    done = fwbench(cold, "bisect", "HEAD~3..HEAD~1", *options)
    assert done.returncode == 0, done.stderr
    (worse,) = (said for said in done.stdout.splitlines() if said.startswith("It became "))
    assert "(0.4)" in worse


@pytest.mark.slow
def test_the_line_that_needs_more_memory_is_found(cold):
    options = ("--test=bench/test_words.py::test_load", "--metric=peak_memory")
    done = fwbench(cold, "explain", "HEAD~3", "HEAD", *options)
    assert done.returncode == 0, done.stderr
    assert "comes from src/words.py, line 12: it is gone with that" in done.stdout


@pytest.mark.slow
def test_a_metric_of_workloads_is_refused_with_those_of_plain_tests(cold):
    done = fwbench(cold, "bisect", "HEAD~2..HEAD", "--test=bench/test_words.py::test_load", "--metric=compile_time")
    assert done.returncode == 4
    assert "choose from latency, cpu_time, peak_memory, first_call" in done.stderr


def nap(seconds):
    time.sleep(seconds)


def arrange():
    time.sleep(0.02)


def measured():
    nap(0.01)
    nap(0.03)


def test_samples_count_for_the_line_that_called_and_only_within_the_measured_function():
    def run():
        arrange()
        measured()

    times = sampled(run, measured.__code__, seconds=0.1)
    by_function = {function: seconds for (function, _, _), seconds in times.items()}
    # Where a call of C takes longer than a sample's interval, the sample that follows it stands for all of it.
    assert by_function["nap"] > 0.03
    assert by_function["nap"] > 0.9 * sum(by_function.values())
    assert "arrange" not in by_function


def test_a_sample_that_interrupts_another_counts_for_what_was_measured(monkeypatch):
    samples = []

    def read():
        if sys._getframe(1).f_code.co_name == "sample":
            samples.append(len(samples))
            if len(samples) == 1:
                signal.raise_signal(signal.SIGALRM)
        return perf_counter()

    perf_counter = time.perf_counter
    monkeypatch.setattr("fwbench.meters.sampling.time", SimpleNamespace(perf_counter=read))
    times = sampled(measured, measured.__code__, seconds=0.1)
    assert len(samples) > 1
    assert {function for function, *_ in times} <= {"nap", "measured"}


def test_a_function_of_c_that_is_benchmarked_itself_has_a_name(monkeypatch):
    monkeypatch.setattr("fwbench.meters.sampling.sampled", functools.partial(sampled, seconds=0.05))
    # As where the module is run, and not imported.
    monkeypatch.setattr("fwbench.plugin.seat.__file__", "elsewhere")
    call = Call(time.sleep, lambda: ((0.002,), {}))
    assert {(function, file) for function, file, *_ in call.profile("")} == {("the benchmark's call", "")}


def test_files_of_the_repository_and_of_python_are_named_from_there(monkeypatch):
    monkeypatch.setattr("fwbench.meters.sampling.sampled", functools.partial(sampled, seconds=0.05))
    call = Call(json.dumps, lambda: (([*range(2000)],), {"indent": 1}))
    root = str(Path(__file__).parent)
    assert "json/encoder.py" in {file for _, file, *_ in call.profile(root)}
    own = Call(nap, lambda: ((0.002,), {}))
    assert Path(__file__).name in {file for _, file, *_ in own.profile(root)}


def test_lines_of_a_function_are_added_and_its_heaviest_line_is_its_place():
    base = of_lines([("clean", "a.py", 3, 1.0), ("clean", "a.py", 4, 2.0), ("clean", "b.py", 4, 5.0)])
    head = of_lines([("clean", "a.py", 9, 6.0), ("clean", "b.py", 4, 5.0)])
    assert (base.seconds, head.seconds) == (8.0, 11.0)
    first, second = changes(base, head)
    assert (first.seconds, first.base.place, first.head.place) == (3.0, "a.py:4", "a.py:9")
    assert second.seconds == 0.0
