"""`--fwbench-programs-only` in real pytest runs, over workers whose programs a test plants."""

import json

import pytest

from tests.unit.test_plugin import NOOP, run, suite

__all__ = ["suite"]

# What a worker would say of the programs that the file `programs.json` lists by batch size.
PLANTED = """
import dataclasses
import json
from pathlib import Path

from fwbench.record.fingerprint import Fingerprint
from fwbench.plugin.session import Session

pytest_plugins = ["fwbench.plugin"]
run = Session.run


def planted(self, workload, protocol, on_stage=lambda _: None):
    measurement = run(self, workload, protocol, on_stage)
    adds = json.loads(Path("programs.json").read_text()).get(str(workload.batch_size))
    if adds is None:
        return measurement
    program = Fingerprint(form="fake", digest=f"digest of {adds} adds", operators={"add": adds})
    return dataclasses.replace(measurement, program=program)


Session.run = planted
"""
ALL = {1: 5, 2: 6, 3: 7}


@pytest.fixture
def programs(suite):
    """Runs the suite over planted programs (adds by batch size); returns pytest's result."""
    suite.makeconftest(PLANTED)

    def go(planted, *arguments):
        suite.path.joinpath("programs.json").write_text(json.dumps(planted))
        return run(suite, "--fwbench-programs-only", *arguments)

    return go


@pytest.fixture
def baseline(suite, programs):
    """A journal that a run of all three made."""
    result = programs(ALL)
    assert result.ret == 0
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    result.stdout.fnmatch_lines([f"no baseline was given, nothing was compared;*--benchmark-compare={journal}"])
    return journal.rename(suite.path / "programs.jsonl")


def test_the_same_programs_pass_and_nothing_is_timed(suite, programs, baseline):
    result = programs(ALL, f"--benchmark-compare={baseline}")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["3 of 3: same program, same compiler: a difference in time is the machine's"])
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    _, *records = map(json.loads, journal.read_text().splitlines())
    assert [record["samples"] for record in records] == [[], [], []]
    assert "latency" not in records[0]["stages"]


def test_a_changed_program_fails_its_test_until_the_baseline_is_renewed(suite, programs, baseline):
    changed = ALL | {2: 9}
    compare = f"--benchmark-compare={baseline}"
    for _ in range(2):
        result = programs(changed, compare)
        result.assert_outcomes(passed=2, failed=1)
        assert result.ret == 1
        result.stdout.fnmatch_lines(
            ["noop-noop-inference-b2: 3 more add", "*fwbench: programs*", "noop-noop-inference-b2: 3 more add"]
        )
    (renewal,) = [line for line in result.outlines if line.startswith("to accept these programs: ")]
    assert suite.run(*renewal.partition(": ")[2].split()).ret == 0
    assert programs(changed, compare).ret == 0


def test_a_program_that_is_in_no_run_any_more_fails_and_a_new_one_does_not(suite, programs, baseline):
    suite.makepyfile(test_suite=NOOP.replace("[1, 2, 3]", "[1, 2, 4]"))
    result = programs(ALL | {4: 1}, f"--benchmark-compare={baseline}")
    assert result.ret == 1
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "noop-noop-inference-b4: new, not in the baseline",
            "noop-noop-inference-b3: in the baseline, but was not run",
        ]
    )


def test_what_is_left_out_on_purpose_is_not_missing(programs, baseline):
    result = programs(ALL, f"--benchmark-compare={baseline}", "-k", "b1")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*was not run*")
    # Its journal would be a baseline without the others.
    result = programs(ALL | {1: 9}, f"--benchmark-compare={baseline}", "-k", "b1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["to accept these programs, run all of them and *"])


def test_a_gate_over_nothing_is_no_gate(suite, programs, baseline):
    suite.makepyfile(test_suite=NOOP.replace("[1, 2, 3]", "[5]"))
    result = programs({5: 1}, f"--benchmark-compare={baseline}")
    assert result.ret == 4
    result.stdout.fnmatch_lines(["nothing to compare: *programs.jsonl holds none of these programs*"])


def test_what_is_skipped_is_not_missing(suite, programs, baseline):
    suite.makepyfile(test_suite=NOOP.replace("3]", "pytest.param(3, marks=pytest.mark.skip)]"))
    result = programs(ALL, f"--benchmark-compare={baseline}")
    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=1)


def test_a_changed_program_that_is_expected_is_told_and_forgiven(suite, programs, baseline):
    suite.makepyfile(test_suite=NOOP.replace("3]", "pytest.param(3, marks=pytest.mark.xfail)]"))
    result = programs(ALL | {3: 9}, f"--benchmark-compare={baseline}")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["noop-noop-inference-b3: 2 more add"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--benchmark-compare"], "*takes the baseline by its path, --benchmark-compare=PATH*"),
        (["--benchmark-compare="], "*takes the baseline by its path, *=PATH to a record or a journal."),
        (["--benchmark-compare=no.json"], "*--benchmark-compare=PATH*there is no no.json*"),
        (["--benchmark-compare=test_suite.py"], "*--benchmark-compare: test_suite.py is not JSON*"),
        (["--benchmark-autosave"], "*--benchmark-autosave cannot work with --fwbench-programs-only*"),
        (["--benchmark-compare-fail=min:5%"], "*--benchmark-compare-fail cannot work with*"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_4(programs, arguments, sentence):
    result = programs(ALL, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [line for line in result.stderr.lines if line]
    assert len(lines) == 1
    result.stderr.fnmatch_lines([f"ERROR: {sentence}"])


def test_a_timed_record_is_a_baseline_too(suite, programs):
    suite.path.joinpath("programs.json").write_text(json.dumps(ALL))
    run(suite, "--benchmark-only", "--benchmark-json=timed.json", "--benchmark-max-time=0", "--benchmark-min-rounds=5")
    assert programs(ALL, "--benchmark-compare=timed.json").ret == 0
    result = programs(ALL | {1: 6}, "--benchmark-compare=timed.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["to accept these programs, make this run's journal the baseline: *"])
