"""A run of pytest whose benchmarks are spread over the accelerators of an engine."""

import dataclasses
import threading

import pytest

from fwbench.ext.cluster import pool as pools
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Metric
from fwbench.record.reading import read
from fwbench.worker import chain
from tests.ext.cluster.fake import FakeEngine
from tests.unit.recorded import MACHINE, measured
from tests.unit.suites import benchmarks, in_process, suite  # noqa: F401


@pytest.fixture
def spread(suite, monkeypatch):
    """A suite that is spread over two accelerators of a fake engine, and that engine."""
    engine = FakeEngine("a", "b")
    monkeypatch.setattr("fwbench.ext.cluster.engine.load", lambda name: engine)
    monkeypatch.setattr(pools, "_LOOK", 0.01)
    return suite, engine


def spread_run(suite, *options):
    return in_process(suite, "--benchmark-only", "--fwbench-set=patience=0", "--fwbench-workers=fake", *options)


def test_a_run_is_spread_and_its_records_name_their_nodes(spread):
    suite, engine = spread
    done = spread_run(suite, "--benchmark-json=run.json")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["fwbench: 2 accelerators measure at the same time, through Fake (a, b)"])
    done.stdout.fnmatch_lines(["*noop-noop-inference-b1: on [ab], *"])
    record = read(suite.path / "run.json")
    assert {m.node.host for m in record.measurements} == {"a", "b"}
    assert record.machine.cpu == "Some CPU"
    assert engine.closed == 1
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    assert len(read(journal).measurements) == 3


def test_a_saved_baseline_is_of_the_nodes_kind(spread):
    """Not of the kind of the machine that pytest runs on: another kind of nodes is not compared."""
    suite, engine = spread
    suite.makepyfile(test_suite=benchmarks("mlp", "torch"))
    gate = ("--fwbench-gate", "--benchmark-compare=base.json")
    spread_run(suite, "--benchmark-json=base.json")
    assert spread_run(suite, *gate).ret == 0
    engine.machines = dict.fromkeys("ab", dataclasses.replace(MACHINE, cpu="Another CPU"))
    done = spread_run(suite, *gate)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: base.json is not comparable: cpu differs: Some CPU in *, Another CPU here.*"])


def test_k_leaves_out_and_x_cancels_the_rest_yet_keeps_what_came(spread):
    """The second one has come, and the third one has begun, when the first test fails."""
    suite, engine = spread
    failing = "    fwbench_measure()\n    assert 0\n"
    suite.makepyfile(test_suite=benchmarks(sizes=(1, 2, 3, 4)).replace("    fwbench_measure()\n", failing, 1))
    begun, killed = threading.Event(), threading.Event()
    kill = engine.kill
    engine.kill = lambda handle: kill(handle) or killed.set()

    def measure(place, workload):
        if workload.batch_size == 4:
            begun.set()
            killed.wait(10)
        if workload.batch_size == 1:
            begun.wait(10)

    engine.measure = measure
    done = spread_run(suite, "-x", "-k", "not b2")
    done.assert_outcomes(failed=1, deselected=1)
    assert sorted(size for what, _, size in engine.log if what == "begin") == [1, 3, 4]
    assert len(engine.killed) == 2
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    assert sorted(m.workload.batch_size for m in read(journal).measurements) == [1, 3]
    # And a run that goes on from there measures the rest alone.
    engine.log.clear()
    engine.measure = lambda place, workload: None
    spread_run(suite, "--fwbench-resume").assert_outcomes(passed=3, failed=1)
    assert sorted(size for what, _, size in engine.log if what == "begin") == [2, 4]


def test_what_was_disturbed_is_measured_again_at_once_on_several_nodes(spread, monkeypatch):
    """And stands in the journal once."""
    suite, engine = spread
    monkeypatch.setattr(chain, "LANES", {"noop": dataclasses.replace(LANES["noop"], internal=False)})
    seen, both = [], threading.Barrier(2, timeout=10)

    def measure(place, workload):
        size = workload.batch_size
        again = size in seen
        seen.append(size)
        if again and size < 3:
            both.wait()
        load = 0.0 if again else 0.5
        # No two measurements have the same samples.
        samples, metrics = (0.25 + load,), {"other_load": Metric(load, "a test")}
        return measured("noop", "noop", batch_size=size, samples=samples, metrics=metrics)

    engine.measure = measure
    done = in_process(suite, "--benchmark-only", "--fwbench-set=patience=9", "--fwbench-workers=fake")
    done.assert_outcomes(passed=3)
    assert sorted(seen) == [1, 1, 2, 2, 3, 3]
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    kept = read(journal).measurements
    assert [(m.value("other_load"), len(m.attempts)) for m in kept] == [(0.0, 1)] * 3


def test_a_run_without_any_node_left_ends_with_a_sentence(spread):
    suite, engine = spread
    engine.measure = lambda place, workload: engine.dead.update("ab")
    done = spread_run(suite)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines(["*Exit: every accelerator of Fake is lost; what was measured is in the journal*"])
    assert engine.closed == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--fwbench-against=HEAD",), "*--fwbench-workers cannot work with --fwbench-against: in a duet*"),
        (("--fwbench-devices=1,2",), "*--fwbench-workers cannot work with --fwbench-devices: each benchmark*"),
        (("--benchmark-disable",), "*--benchmark-disable measures nothing for --fwbench-workers*"),
        (("-n2",), "*--fwbench-workers cannot work with -n/--dist*"),
    ],
)
def test_what_cannot_be_spread_is_refused(spread, options, sentence):
    suite, engine = spread
    done = in_process(suite, "--fwbench-workers=fake", *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([sentence])
    assert not engine.log


def test_an_engine_that_is_not_installed_is_one_sentence(suite):
    done = in_process(suite, "--fwbench-workers=nobodys")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: the engine 'nobodys' is not installed here: `pip install fwbench-nobodys` on*"])
