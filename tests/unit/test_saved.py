"""Two records compared: verdicts whose error rates are simulated, and refusals that name the difference."""

import dataclasses
import math
import statistics
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fwbench.compare import evidence, saved, testing
from fwbench.compare.criteria import CRITERIA, Threshold
from fwbench.compare.saved import compare
from fwbench.compare.statistics import ALPHA
from fwbench.machine import disturbances, load
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import Metric, Moment
from fwbench.record.reading import Record, read
from fwbench.worker.chain import pooled
from tests.unit.recorded import MACHINE, QUICK, failed, journal, measured, outputs, plain, write
from tests.unit.recorded import saved as as_saved

THRESHOLDS = {name: criterion.saved for name, criterion in CRITERIA.items() if criterion.saved}
LATENCY = {"latency": THRESHOLDS["latency"]}
# Of five processes that scatter by one percent.
LEVELS = (0.99, 1.0, 1.01, 0.995, 1.005)
MIB = 2.0**20
DUET = Path(__file__).parents[2] / "docs/evidence/duet.jsonl"


@pytest.fixture
def record(tmp_path):
    """What is read of these measurements, once saved."""
    numbers = iter(range(1000))

    def make(*measurements, test=None, **top):
        made = as_saved(*measurements, **top)
        for benchmark in made["benchmarks"] if test else ():
            benchmark["fullname"] = test
        return read(write(tmp_path / f"{next(numbers)}.json", made))

    return make


def several(metric="latency", factor=1.0, levels=LEVELS, unit=1.0, **fields):
    """A measurement by several processes."""
    return measured(processes=tuple({metric: unit * factor * level} for level in levels), **fields)


def found(outcome, kind=None):
    """The findings on metrics by benchmark and metric, or those of one kind."""
    if kind is None:
        return {(finding.benchmark, finding.metric): finding.kind for finding in outcome.findings}
    return [finding for finding in outcome.findings if finding.kind == kind]


def verdict(record, base, head, thresholds=LATENCY, **options):
    sides = (side if isinstance(side, list) else [side] for side in (base, head))
    (finding,) = compare(*(record(*side) for side in sides), thresholds, **options).findings
    return finding


# Verdicts


@pytest.mark.parametrize(
    ("factor", "kind", "exit_code"), [(1.001, "unchanged", 0), (1.3, "regressed", 1), (0.7, "improved", 0)]
)
def test_five_processes_a_side_tell_what_has_changed(record, factor, kind, exit_code):
    outcome = compare(record(several()), record(several(factor=factor)), LATENCY)
    (finding,) = outcome.findings
    assert (finding.benchmark, finding.metric, finding.kind) == ("torch-mlp-inference-b1", "latency", kind)
    assert outcome.exit_code == exit_code
    assert finding.verdict.ratio == pytest.approx(factor)
    low, high = finding.verdict.interval
    assert low < factor < high
    assert (finding.base, finding.head) == pytest.approx((1.0, factor), rel=1e-3)
    assert finding.replicates == "5 and 5 processes"


@pytest.mark.parametrize(
    ("factor", "kind"), [(2.0, "improved"), (0.999, "unchanged"), (0.94, "unchanged"), (0.8, "regressed")]
)
def test_a_higher_throughput_is_no_failure_and_a_lower_one_fails_beyond_its_share_of_base(record, factor, kind):
    quiet = [1 + (level - 1) / 100 for level in LEVELS]
    base, head = (several("throughput", by, quiet) for by in (1.0, factor))
    finding = verdict(record, base, head, {"throughput": Threshold(0.15)})
    assert finding.kind == kind
    assert finding.verdict.ratio == pytest.approx(factor)
    assert finding.verdict.interval[0] < factor < finding.verdict.interval[1]


def test_a_fall_of_throughput_by_a_threshold_of_all_of_it_is_impossible(record):
    base, head = several("throughput"), several("throughput", 0.01)
    assert verdict(record, base, head, {"throughput": Threshold(1.0)}).kind == "unchanged"


def memory(base, head):
    return [measured(metrics={"program_memory": Metric(size, "the compiler")}) for size in (base, head)]


@pytest.mark.parametrize(
    ("base", "head", "kind"),
    [
        (2 * MIB, 2.5 * MIB, "unchanged"),  # 25 %, but less than the amount on top of the share
        (2 * MIB, 3.1 * MIB, "regressed"),
        (1000 * MIB, 1020 * MIB, "unchanged"),
        (1000 * MIB, 1022 * MIB, "regressed"),
        (1000 * MIB, 900 * MIB, "improved"),
        (7 * MIB, 7 * MIB, "unchanged"),
    ],
)
def test_what_the_compiler_says_of_memory_is_exact_so_that_one_process_decides(record, base, head, kind):
    finding = verdict(record, *memory(base, head), {"program_memory": THRESHOLDS["program_memory"]})
    assert finding.kind == kind
    assert finding.verdict.interval == (finding.verdict.ratio, finding.verdict.ratio)
    assert finding.verdict.confidence == 1.0


@pytest.mark.parametrize("hiding", [("base",), ("head",), ("base", "head")])
def test_a_peak_that_hides_the_steps_own_is_neither_unchanged_nor_missing(record, hiding):
    """A step of JAX's that takes less than its build did may have doubled, and nobody sees it."""
    sides = []
    for side in ("base", "head"):
        peak = Metric(100 * MIB, "an allocator", at_most=side in hiding)
        sides.append(record(measured("jax", device="gpu", metrics={"device_peak_memory": peak})))
    outcome = compare(*sides, {"peak_memory": Threshold(0.05), "latency": Threshold(0.15)})
    (finding,) = (finding for finding in outcome.findings if finding.metric == "peak_memory")
    assert (finding.kind, "hides the step's own" in finding.note) == ("inconclusive", True)
    assert outcome.exit_code == 0


def test_what_a_compiler_chose_by_measuring_on_a_gpu_is_decided_by_processes(record):
    limits = {"program_memory": THRESHOLDS["program_memory"]}
    one = [dataclasses.replace(m, workload=dataclasses.replace(m.workload, device="gpu")) for m in memory(1e9, 1.9e9)]
    assert verdict(record, *one, limits).kind == "inconclusive"
    for levels, kind in (((1.0, 1.0, 2.0, 1.0, 2.0), "inconclusive"), ((1.9, 2.0, 2.0, 1.9, 2.0), "regressed")):
        base = several("program_memory", levels=[1.0] * 4 + [1.1], unit=1e9, device="gpu")
        finding = verdict(record, base, several("program_memory", levels=levels, unit=1e9, device="gpu"), limits)
        assert finding.kind == kind
        assert finding.verdict.interval[0] < finding.verdict.ratio < finding.verdict.interval[1]


@pytest.mark.parametrize(
    ("seconds", "kind"), [(0.26, "inconclusive"), (0.45, "inconclusive"), (0.55, "regressed"), (0.12, "improved")]
)
def test_one_process_a_side_tells_of_changes_beyond_a_factor_of_two_and_of_no_others(record, seconds, kind):
    finding = verdict(record, measured(samples=(0.25, 0.25, 0.25)), measured(samples=(0.25, seconds, seconds)))
    assert (finding.kind, finding.verdict.interval) == (kind, (0.0, math.inf))
    assert ("--fwbench-set=processes=5 on both sides" in finding.note) is (kind == "inconclusive")


def test_one_process_a_side_knows_of_a_wider_threshold(record):
    sides = measured(samples=(0.1,) * 3), measured(samples=(0.3,) * 3)
    kinds = [verdict(record, *sides, {"latency": Threshold(share)}).kind for share in (1.5, 3.0)]
    assert kinds == ["regressed", "inconclusive"]


def test_a_record_against_itself_is_unchanged(record):
    same = record(measured(), several(batch_size=8), loaded(0.5, batch_size=256))
    outcome = compare(same, same, THRESHOLDS)
    assert {finding.kind for finding in outcome.findings} == {"unchanged"}


def test_fallback_flags_make_another_benchmark(record):
    plain, flagged = several(lane="jax"), several(lane="jax", settings={"fallback_flags": "XLA_FLAGS=--mild"})
    finding = verdict(record, [plain], [flagged])
    note = "lane setting: fallback_flags differs: None in the baseline, 'XLA_FLAGS=--mild' here"
    assert (finding.kind, finding.note) == ("incomparable", note)
    assert verdict(record, [flagged], [flagged]).kind == "unchanged"


@pytest.mark.parametrize("test", ["tests/x.py::test", None])
def test_a_batch_that_was_halved_is_not_taken_for_the_one_that_was_asked_for(record, test):
    """Neither where the test tells which belong together, nor in journals, which know no test."""
    whole, halved = several(batch_size=64), several(batch_size=16, unfit=(64, 32))
    for base, head, sizes in (([whole], [halved], (64, 16)), ([halved], [whole], (16, 64))):
        outcome = compare(record(*base, test=test), record(*head, test=test), LATENCY)
        (finding,) = outcome.findings
        note = f"batch_size differs: {sizes[0]} in the baseline, {sizes[1]} here"
        assert (finding.kind, finding.note, outcome.exit_code) == ("incomparable", note, 4)
    slower, own = several(factor=2.0, batch_size=16, unfit=(64, 32)), {whole.workload.id: {"latency": Threshold(1e3)}}
    assert verdict(record, [halved], [slower]).kind == "regressed"
    assert verdict(record, [halved], [slower], own=own).kind == "unchanged"
    outcome = compare(record(halved, several()), record(several()), LATENCY, left_out=frozenset([whole.workload.id]))
    assert not found(outcome, "missing")


def test_a_batch_that_was_measured_anyhow_counts_and_no_larger_one_that_was_halved_to_it(record):
    asked, halved = several(batch_size=16), several(factor=2.0, batch_size=16, unfit=(32,))
    larger = dataclasses.replace(halved, unfit=(64, 32))
    assert verdict(record, [asked], [halved, asked, larger]).kind == "unchanged"
    assert verdict(record, [halved, larger], [asked]).kind == "improved"


@pytest.mark.parametrize(
    ("base", "head", "old", "command"),
    [
        # A run that is not saved yet is of the working tree.
        ("1" * 40, "", "0.12.0", "111111111111 ."),
        ("1" * 40, "2" * 40, "0.12.0", "111111111111 222222222222"),
        ("1" * 40, "", "0.11.0", "'111111111111 jax==0.11.0' ."),
        ("2" * 40, "2" * 40, "0.11.0", "'222222222222 jax==0.11.0' 222222222222"),
        ("", "2" * 40, "0.11.0", "jax==0.11.0 ."),
        ("", "2" * 40, "0.12.0", None),
        ("", "", "0.11.0", "jax==0.11.0 ."),
        ("2" * 40, "2" * 40, "0.12.0", None),
        ("", "", "0.12.0", None),
    ],
)
def test_a_slowdown_is_told_with_the_command_that_searches_for_its_cause(record, base, head, old, command):
    def side(commit, version, factor):
        versions = {"jax": version, "jaxlib": version}
        fields = {"model": "vit_b_16", "batch_size": 8, "axes": (("tokens", 16),), "remat": True, "mode": "train_step"}
        mild = several(factor=1 + 0.3 * (factor - 1), versions=versions)
        made = record(mild, several(factor=factor, lane="jax", versions=versions, **fields))
        return dataclasses.replace(made, commit={"id": commit} if commit else {})

    outcome = compare(side(base, old, 1.0), side(head, "0.12.0", 2.0), LATENCY)
    assert [finding.kind for finding in outcome.findings] == ["regressed"] * 2
    told = [note for note in outcome.notes if note.startswith("what made")]
    end = "mode=train_step batch_size=8 remat=true axes=tokens:16 --model=vit_b_16 --lane=jax"
    worst = "jax-vit_b_16-train_step-b8-tokens16-remat"
    assert told == ([f"what made {worst} slower: fwbench explain {command} {end}"] if command else [])
    assert not any(
        "what made" in note for note in compare(side(base, old, 1.0), side(head, "0.12.0", 1.0), LATENCY).notes
    )


def test_the_command_is_for_the_worst_regression_of_any_metric(record):
    def side(commit, compiling, latency):
        processes = tuple({"latency": latency * level, "compile_time": compiling * level} for level in LEVELS)
        return dataclasses.replace(record(measured(lane="jax", processes=processes)), commit={"id": commit})

    limits = {name: CRITERIA[name].saved for name in ("latency", "compile_time")}
    outcome = compare(side("1" * 40, 1.0, 1.0), side("2" * 40, 25.0, 2.0), limits)
    assert {finding.metric for finding in found(outcome, "regressed")} == {"latency", "compile_time"}
    (told,) = [note for note in outcome.notes if note.startswith("what made")]
    assert told.endswith(" --metric=compile_time")


def test_what_a_record_holds_twice_is_not_comparable(record):
    once, again = several(), several(factor=3.0, stages={"latency": 1.0})
    for sides in ((record(once, again), record(once)), (record(once), record(once, again))):
        (finding,) = compare(*sides, LATENCY).findings
        assert (finding.kind, finding.note) == ("incomparable", "one of the two records holds it twice")


def test_processes_that_scatter_more_than_the_threshold_are_inconclusive(record):
    wild = (0.7, 1.0, 1.4, 0.8, 1.2)
    finding = verdict(record, several(levels=wild), several(factor=1.2, levels=wild))
    assert finding.kind == "inconclusive"
    assert "hide changes of 15%" in finding.note
    assert "--fwbench-set=processes" in finding.note


@pytest.mark.parametrize(
    ("metric", "fields", "duet"),
    [
        ("latency", {}, True),
        ("compile_time", {}, False),
        ("throughput", {}, False),
        ("latency", {"mode": "fit", "data": "digits"}, False),
        ("latency", {"devices": 2, "batch_size": 2}, False),
    ],
)
@pytest.mark.parametrize("load", [0.0, 0.5])
def test_a_duet_is_advised_for_what_it_measures_alone(record, metric, fields, duet, load):
    wild = (0.7, 1.0, 1.4, 0.8, 1.2)
    sides = [
        several(metric, factor, wild, metrics={"other_load": Metric(load, "/proc/stat")}, **fields)
        for factor in (1.0, 0.8 if metric == "throughput" else 1.2)
    ]
    finding = verdict(record, *sides, {metric: CRITERIA[metric].saved})
    assert finding.kind == "inconclusive"
    assert ("--fwbench-against" in finding.note) == duet


def test_how_far_runs_differ_widens_the_interval_by_as_much_however_many_processes_there_are(record):
    for processes in (5, 50):
        sides = several(levels=LEVELS * (processes // 5)), several(factor=1.3, levels=LEVELS * (processes // 5))
        alone, moved = (verdict(record, *sides, state=state) for state in (0.0, 0.2))
        assert (alone.kind, moved.kind) == ("regressed", "inconclusive")
        assert "`fwbench selftest` here when it is quiet" in moved.note
        # Known from elsewhere, so that it is the normal distribution's: 1.96 standard errors.
        width = 1.96 * 0.2 * math.sqrt(2)
        assert np.log(moved.verdict.interval) == pytest.approx([math.log(1.3) - width, math.log(1.3) + width], abs=1e-3)


def test_processes_that_are_all_alike_prove_nothing_of_another_run(record):
    finding = verdict(record, several(levels=[1.0] * 5), several(factor=1.16, levels=[1.0] * 5), state=0.05)
    # A difference of 1.6 standard errors, where it would be infinitely many.
    assert (finding.kind, finding.verdict.p_value > 0.05) == ("inconclusive", True)


def test_memory_is_no_matter_of_the_machines_state_or_of_other_load(record):
    sides = (loaded(0.5, "peak_memory", by, [1.0] * 5, unit=1000 * MIB) for by in (1.0, 1.2))
    assert verdict(record, *sides, {"peak_memory": THRESHOLDS["peak_memory"]}, state=0.5).kind == "regressed"


def loaded(share, *arguments, **fields):
    """A measurement during which other processes used this share of the CPUs."""
    return several(*arguments, metrics={"other_load": Metric(share, "/proc/stat")}, **fields)


@pytest.mark.parametrize(
    ("base", "head", "factor", "kind"),
    [
        # A tenth of the speed is no matter of load, be it 6 % or 30 %.
        (0.0, 0.06, 10.0, "regressed"),
        (0.06, 0.0, 10.0, "regressed"),
        (0.0, 0.3, 10.0, "regressed"),
        # 6 % explain up to a factor of 1.36, 30 % one of 5.9.
        (0.0, 0.06, 1.3, "inconclusive"),
        (0.0, 0.06, 1.8, "regressed"),
        (0.0, 0.3, 1.9, "inconclusive"),
        (0.0, 0.3, 5.0, "incomparable"),
        # The background of an idle machine is none.
        (0.05, 0.04, 1.3, "regressed"),
        # Load of the baseline's can hide a slowdown, and explain a speed-up, but explains no slowdown.
        (0.06, 0.0, 1.3, "regressed"),
        (0.06, 0.0, 0.8, "inconclusive"),
        (0.06, 0.0, 0.5, "improved"),
        (0.3, 0.0, 0.5, "inconclusive"),
        (0.3, 0.0, 1.0, "inconclusive"),
        (1.0, 1.0, 10.0, "incomparable"),
        (1.0, 1.0, 1.9, "inconclusive"),
        (1.0, 1.0, 0.1, "inconclusive"),
    ],
)
def test_other_load_explains_as_much_as_it_can_and_no_more(record, base, head, factor, kind):
    finding = verdict(record, loaded(base), loaded(head, factor=factor))
    assert finding.kind == kind
    assert finding.verdict.interval[0] <= factor <= finding.verdict.interval[1]


@pytest.mark.parametrize("metric", ["latency", "compile_time"])
@pytest.mark.parametrize("levels", [LEVELS, (1.0,), (0.2, 1.0, 5.0)])
@pytest.mark.parametrize(("factor", "code"), [(25.0, (1, 4)), (1.5, (0, 1)), (0.04, (0,))])
@pytest.mark.parametrize("load", [0.0, 0.3, 1.0])
def test_no_gate_passes_what_seems_worse_by_more_than_a_factor_of_two(record, metric, levels, factor, code, load):
    """Whatever may explain it: load, one process a side, or processes that scatter."""
    base, head = (several(metric, by, levels, 4.0, metrics={"other_load": Metric(load, "")}) for by in (1.0, factor))
    outcome = compare(record(base), record(head), {metric: THRESHOLDS[metric]})
    assert outcome.exit_code in code
    assert not load or outcome.exit_code != 1 or load < 1
    assert all("other processes" in finding.note for finding in found(outcome, "incomparable") if load)


@pytest.mark.parametrize(("load", "kind"), [(0.0, "regressed"), (0.06, "regressed"), (0.3, "incomparable")])
def test_one_process_a_side_must_differ_by_a_factor_of_two_beyond_other_load(record, load, kind):
    head = measured(samples=(2.5,) * 3, metrics={"other_load": Metric(load, "/proc/stat")})
    assert verdict(record, measured(samples=(0.25,) * 3), head).kind == kind


def test_a_note_says_what_other_load_can_explain_and_what_to_do(record):
    finding = verdict(record, loaded(0.06), loaded(0.3, factor=1.9))
    happened = "other processes used the CPUs in the baseline (6%, up to 1.4x) and in this run (30%, up to 5.9x)"
    assert finding.note.startswith(f"{happened}: that can lengthen any time. Stop the other load, and measure again")
    finding = verdict(record, loaded(0.06), loaded(0.3, factor=20.0))
    assert finding.note == f"{happened}; the change is beyond that"


def test_a_p_value_that_is_enough_for_one_benchmark_is_not_for_forty(record):
    spread = [1 + 10 * (level - 1) for level in LEVELS]

    def suite(size, factor):
        names = range(1, size + 1)
        # None is the same measurement as its baseline.
        others = 1 + (factor - 1) / 1000
        return record(*(several(factor=factor if n == 1 else others, levels=spread, batch_size=n) for n in names))

    for size, kind in ((1, "regressed"), (40, "inconclusive")):
        outcome = compare(suite(size, 1.0), suite(size, 1.3), LATENCY)
        assert found(outcome)["torch-mlp-inference-b1", "latency"] == kind
        (p,) = {f.verdict.p_value for f in outcome.findings if f.benchmark == "torch-mlp-inference-b1"}
        assert 0.01 / 40 < p < 0.01


def test_a_tests_own_threshold_stands_before_the_suites(record):
    sides = several(), several(factor=1.3)
    assert verdict(record, *sides).kind == "regressed"
    own = {"torch-mlp-inference-b1": {"latency": Threshold(0.5)}}
    assert verdict(record, *sides, own=own).kind == "unchanged"
    assert verdict(record, *sides, own={"jax-mlp-inference-b1": own["torch-mlp-inference-b1"]}).kind == "regressed"


# Error rates

BENCHMARKS = 20
SUITES = 150


def gaussian(rng, n):
    return rng.standard_normal(n)


def heavy_tails(rng, n):
    """Student's t with three degrees of freedom, scaled to a standard deviation of one."""
    return rng.standard_t(3, n) / math.sqrt(3)


def decide(rng, noise, scale, effect=0.0, state=testing.UNTESTED):
    """The verdicts on a suite of five processes a side, of which the first benchmark is slower by `effect`.

    Each run meets a state of the machine that all its benchmarks share.
    """
    states = state * noise(rng, 2)

    def case(name):
        base, head = (list(np.exp(moved + scale * noise(rng, 5))) for moved in states)
        slower = 1 + effect if name == 0 else 1.0
        return testing.Compared(str(name), "latency", base, [slower * x for x in head], 0.15, state, False)

    return [finding.kind for finding in saved._findings([case(name) for name in range(BENCHMARKS)])]


def proven(noise, scale, state=testing.UNTESTED):
    """The rate of suites without a change that fail, of which simulated ones convince at 99.9 %."""
    rng = np.random.default_rng(0)
    failures = sum("regressed" in decide(rng, noise, scale, state=state) for _ in range(SUITES))
    return stats.beta.ppf(0.001, failures, SUITES - failures + 1) if failures else 0.0


@pytest.mark.parametrize(("noise", "scale"), [(gaussian, 0.01), (gaussian, 0.1), (heavy_tails, 0.1), (gaussian, 0.3)])
@pytest.mark.parametrize("state", [0.0, testing.UNTESTED, 0.15])
def test_unchanged_suites_fail_once_in_a_hundred_at_most(noise, scale, state):
    assert proven(noise, scale, state) <= 0.01


def spreading(processes, degrees, state=0.0):
    """A standard error as of this many processes a side, each of which meets its own state of the machine."""

    def spread(case):
        variances = [np.var(np.log(side), ddof=1) for side in (case.base, case.head)]
        return math.hypot(statistics.mean(variances) ** 0.5, state) * math.sqrt(2 / processes), degrees

    return property(spread)


@pytest.mark.parametrize(
    ("part", "broken", "scale", "state"),
    [
        # As if each process were five.
        ("Compared.spread", spreading(25, 8), 0.1, 0.0),
        # As if every process were a run of its own, that meets its own state of the machine.
        ("Compared.spread", spreading(5, 8), 0.02, 0.15),
        ("Compared.spread", spreading(5, 99, 0.15), 0.02, 0.15),
        # No control over the suite's many benchmarks.
        ("holm", lambda p_values: {name for name, p in p_values.items() if p <= ALPHA}, 0.2, 0.0),
        # Certain of everything, as a test on rounds is.
        ("_p_value", lambda excess, error, degrees: 1e-9, 0.1, 0.0),
    ],
)
def test_a_broken_statistic_is_found_by_its_false_alarms(monkeypatch, part, broken, scale, state):
    *owner, name = part.split(".")
    monkeypatch.setattr(getattr(testing, owner[0]) if owner else testing, name, broken)
    assert proven(gaussian, scale, state) > 0.01


def of_processes(measurements):
    """A record of these, which no file holds."""
    return Record(Path("x"), datetime.now(UTC), measurements=tuple(measurements))


def loaded_suites(processes):
    """The suites of the self-test that stands in the docs as records, with the other load that was met: base and head.

    In half of them load came and went, and in most other work went on, so that the same benchmark took up to 2.7 times
    as long in one suite as in another. What was slowed down on purpose is left out.
    """

    def side(suite, which):
        metrics = {"other_load": Metric(suite["other_load"], "/proc/stat")}
        benchmarks = [benchmark for benchmark in suite["benchmarks"] if not benchmark["planted"]]
        medians = {b["id"]: [statistics.median(pair[which]) for pair in b["rounds"][:processes]] for b in benchmarks}
        return of_processes(
            measured(model=name, metrics=metrics, processes=tuple({"latency": seconds} for seconds in of))
            for name, of in medians.items()
        )

    return [(side(suite, "base"), side(suite, "head")) for suite in evidence.read(DUET).suites]


def false_alarms(processes):
    """The rate of unchanged suites that fail against the records of others."""
    suites = loaded_suites(processes)
    pairs = [
        (suites[number][0], suites[(number + by) % len(suites)][1])
        for by in (1, 2, 3, 5, 8, 13, 21, 34, 55)
        for number in range(len(suites))
    ]
    failed = sum(any(f.kind == "regressed" for f in compare(base, head, LATENCY).findings) for base, head in pairs)
    return failed / len(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_unchanged_suites_under_the_self_tests_load_fail_once_in_a_hundred_at_most(processes):
    assert false_alarms(processes) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("power", "processes"), [(1, 2), (1, 3)])
def test_a_rule_that_load_explains_too_little_is_found_by_its_false_alarms(monkeypatch, power, processes):
    monkeypatch.setattr(load, "_POWER", power)
    assert false_alarms(processes) > 0.01


# Seconds that a pass takes, and a time slice of the scheduler; CPUs.
PASS, SLICE, CPUS = 1.0, 0.004, 2


def waiting(rng, name, alone, disturbed, busy):
    """A process of a program whose threads wait for each other, beside one that keeps one of the cores busy at times.

    Args:
        alone, disturbed: seconds of a call while nobody computes, and while somebody does.
        busy: whether there is such a process; it comes and goes as those of the self-test.
    """
    ends = np.cumsum(rng.uniform(0.0, 8.0, 12)) - rng.uniform(0.0, 8.0)
    moments = np.linspace(0.0, PASS, 200)
    # Of the latency pass and of the throughput pass, the share in which somebody computes.
    first, second = (busy * np.mean(np.searchsorted(ends, start + moments) % 2) for start in (0.0, PASS))
    quiet, slow = (1 - first) / alone, first / disturbed
    calls = max(5, min(100, int(PASS * (quiet + slow))))
    undisturbed = round(calls * quiet / (quiet + slow))
    # The kernel counts by hundredths of a second.
    load = max(0.0, max(first, second) / CPUS + rng.uniform(-0.01, 0.01))
    return measured(
        model=str(name),
        samples=(*[alone] * undisturbed, *[disturbed] * (calls - undisturbed)),
        throughput=(1 - second) / alone + second / disturbed,
        metrics={"other_load": Metric(load, "/proc/stat")},
        settings={"cpus": list(range(CPUS))},
    )


def unchanged_beside_load(processes, suites=300):
    """The rate of suites without a change that fail, where their programs' threads wait for each other."""
    rng = np.random.default_rng(3)
    failed = 0
    for _ in range(suites):
        # Some meet once in a call, others in each of their layers, and then lose a slice each time.
        alone = np.exp(rng.uniform(np.log(30e-6), np.log(0.1), 12))
        lost = SLICE * np.exp(rng.uniform(0.0, np.log(300), 12))
        base, head = (
            of_processes(
                pooled([waiting(rng, n, alone[n], alone[n] + lost[n], busy) for _ in range(processes)])
                for n in range(12)
            )
            for busy in (0.0, 1.0)
        )
        failed += any(f.kind == "regressed" for f in compare(base, head, THRESHOLDS).findings)
    return failed / suites


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 3])
def test_programs_whose_threads_wait_for_each_other_fail_once_in_a_hundred_at_most(processes):
    assert unchanged_beside_load(processes) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 3])
def test_a_rule_that_spreads_load_over_all_cpus_is_found_by_its_false_alarms(monkeypatch, processes):
    monkeypatch.setattr(disturbances, "lengthened", lambda share, cpus, waited=None: load.lengthened(share))
    assert unchanged_beside_load(processes, 100) > 0.01


@pytest.mark.parametrize("noise", [gaussian, heavy_tails])
def test_a_slowdown_of_forty_percent_is_found(noise):
    rng = np.random.default_rng(1)
    kinds = [decide(rng, noise, 0.03, 0.4)[0] for _ in range(SUITES)]
    assert kinds.count("regressed") >= 0.95 * SUITES


def test_a_slowdown_below_the_threshold_is_none():
    rng = np.random.default_rng(2)
    assert not any(decide(rng, gaussian, 0.02, 0.08)[0] == "regressed" for _ in range(SUITES))


# Refusals

GPU = dataclasses.replace(
    MACHINE, device="gpu", accelerator="NVIDIA A100", driver="580", accelerator_memory=2**35, power_limit=400.0
)


@pytest.mark.parametrize(
    ("machine", "changes", "reason"),
    [
        (MACHINE, {"cpu": "Another CPU"}, "cpu differs: Some CPU in the baseline, Another"),
        (MACHINE, {"threads": 1}, "threads differs: 2 in the baseline, 1 here"),
        (MACHINE, vars(GPU), "device differs: cpu in the baseline, gpu here"),
        (GPU, {"accelerator": "NVIDIA H100"}, "accelerator differs: NVIDIA A100 in the baseline,"),
        (GPU, {"power_limit": 300.0}, "power_limit differs: 400.0 W in the baseline, 300.0 W here"),
    ],
)
def test_another_machine_is_refused_with_what_differs(record, machine, changes, reason):
    base = record(several(), machine=machine)
    records = base, record(several(factor=2.0), machine=dataclasses.replace(machine, **changes))
    outcome = compare(*records, LATENCY)
    (finding,) = outcome.findings
    assert (finding.kind, outcome.exit_code) == ("incomparable", 4)
    assert reason in finding.note
    assert found(compare(*records, LATENCY, allow_mismatch=True)) == {
        ("torch-mlp-inference-b1", "latency"): "regressed"
    }


@pytest.mark.parametrize(
    ("machine", "changes"),
    [
        *((MACHINE, changes) for changes in ({"kernel": "Linux 6.2"}, {"cpus": (2, 3)}, {"memory": 2**35})),
        *((MACHINE, {"accelerator": "CUDA_VISIBLE_DEVICES hides all"}), (GPU, {"driver": "590"})),
        # It need not tell everything.
        (GPU, {"power_limit": None}),
    ],
)
def test_what_numbers_do_not_depend_on_is_no_other_machine(record, machine, changes):
    sides = (record(several(), machine=of) for of in (machine, dataclasses.replace(machine, **changes)))
    assert [finding.kind for finding in compare(*sides, LATENCY).findings] == ["unchanged"]


def test_times_tell_nothing_while_somebody_else_is_on_the_gpu(record):
    neighbour = AcceleratorState(processes=(AcceleratorProcess(7, None),), throttle_reasons=("thermal limit",))
    disturbed = several(factor=2.0, accelerator=(Moment("after the latency pass", neighbour),))
    finding = verdict(record, several(), disturbed)
    assert finding.kind == "inconclusive"
    assert "other processes were on the GPU in this run (1 process after the latency pass); " in finding.note
    assert "the GPU was throttled in this run (thermal limit after the latency pass)" in finding.note
    assert "nvidia-smi" in finding.note


def setting(**of_the_lane):
    return {"settings": of_the_lane}


def weights(digest):
    return {"parity": {"weights": digest}}


def products(arithmetic):
    return {"parity": {"probe": {"matmul": {"arithmetic": arithmetic}}}}


@pytest.mark.parametrize(
    ("base", "head"),
    [
        # Another of the machine's GPUs, another folder of libraries: another place, not another benchmark.
        ({"settings": {"CUDA_VISIBLE_DEVICES": "0"}}, {"settings": {"LD_LIBRARY_PATH": "/opt/cuda"}}),
        # An amount that fwbench did not know when the baseline was made, and that is as it was then.
        ({}, {"protocol": {**QUICK, "least_warmup_time": 0.0}}),
        # What one side does not tell.
        ({"parity": {}}, {"parity": {"weights": "abc", "probe": {"matmul": {"arithmetic": "fp32"}}}}),
        # What the code of a network does.
        ({}, {"settings": {"also_imported": ["torch"]}}),
        # Where this machine runs threads and keeps data; and what an older record does not tell.
        ({"settings": {"cpus": [0, 1]}}, {"settings": {"cpus": [2, 3]}}),
        ({"mode": "fit", "data_path": "/here"}, {"mode": "fit", "data_path": "/there"}),
        ({}, {"settings": {"call_leaves_out": "flax.nnx.jit"}}),
    ],
)
def test_what_makes_no_other_benchmark_is_compared(record, base, head):
    assert verdict(record, several(**base), several(factor=2.0, **head)).kind == "regressed"


@pytest.mark.parametrize(
    ("base", "head", "reason"),
    [
        (setting(layout="last", cpus=[0]), setting(cpus=[0]), "setting: layout differs: 'last' in the baseline, None"),
        (setting(mode="default"), setting(mode="max"), "setting: mode differs: 'default' in the baseline, 'max' here"),
        ({}, {"protocol": {**QUICK, "profile": "paper"}}, "profile: profile differs: 'quick' in the baseline, 'paper'"),
        ({}, {"protocol": {**QUICK, "min_rounds": 9}}, "profile: min_rounds differs: 5 in the baseline, 9 here"),
        ({}, {"protocol": {**QUICK, "least_warmup_time": 1.0}}, "least_warmup_time differs: 0.0 in the baseline, 1.0"),
        ({"batch_size": 256}, {"batch_size": 1024}, "batch_size differs: 256 in the baseline, 1024 here"),
        ({}, {"precision": "tf32"}, "precision differs: 'fp32' in the baseline, 'tf32' here"),
        (weights("abc"), weights("def"), "digest of the weights differs: 'abc' in the baseline, 'def' here"),
        (products("fp32"), products("tf32"), "arithmetic of the matmul differs: 'fp32' in the baseline, 'tf32' here"),
    ],
)
def test_another_benchmark_under_one_test_is_refused_with_what_differs(record, base, head, reason):
    records = record(several(**base), test="test_it"), record(several(factor=2.0, **head), test="test_it")
    outcome = compare(*records, LATENCY)
    (finding,) = outcome.findings
    assert (finding.kind, outcome.exit_code) == ("incomparable", 4)
    assert reason in finding.note
    assert [f.kind for f in compare(*records, LATENCY, allow_mismatch=True).findings] == ["regressed"]


@pytest.mark.parametrize(
    ("base", "head", "reason"),
    [
        ({}, {"precision": "tf32"}, "precision is fp32 in the baseline, tf32 here"),
        ({"batch_size": 256}, {"batch_size": 1024}, "batch_size is 256 in the baseline, 1024 here"),
        ({"model": "mlp"}, {"model": "resnet50"}, "model is mlp in the baseline, resnet50 here"),
        ({}, {"variant": "other"}, "no benchmark is in both"),
        (None, {}, "the baseline holds no measured benchmark"),
        ({}, None, "this run holds no measured benchmark"),
    ],
)
def test_records_that_share_nothing_say_why(record, base, head, reason):
    sides = (record() if fields is None else record(several(**fields)) for fields in (base, head))
    outcome = compare(*sides, LATENCY)
    (finding,) = outcome.findings
    assert (finding.kind, outcome.exit_code) == ("incomparable", 4)
    assert reason in finding.note


def test_one_incomparable_benchmark_fails_a_comparison_of_others(record):
    changed = several(batch_size=8, settings={"x": 1})
    outcome = compare(record(several(), several(batch_size=8)), record(several(), changed), LATENCY)
    assert (sorted(found(outcome).values()), outcome.exit_code) == (["incomparable", "unchanged"], 4)


def test_framework_versions_may_differ_and_are_shown_benchmark_by_benchmark(record):
    # Lanes may live in environments of their own, with another NumPy in each.
    torch, jax = {"numpy": "2.0", "torch": "2.9"}, {"numpy": "2.1", "jax": "0.9"}
    base = several(versions=torch), several(lane="jax", versions=jax)
    head = several(lane="jax", versions=jax | {"jax": "0.10"}), several(versions=torch)
    outcome = compare(record(*base), record(*head), LATENCY)
    assert list(outcome.notes) == ["jax 0.9 in the baseline, 0.10 here"]
    assert outcome.exit_code == 0


# Programs


def program(adds, **fields):
    return Fingerprint(form="fake", digest=f"{adds} adds", operators={"add": adds}, **fields)


def test_a_changed_program_is_told_beside_the_verdict_and_fails_nothing(record):
    outcome = compare(record(several(program=program(1))), record(several(program=program(4))), LATENCY)
    (finding,) = found(outcome, "program")
    assert (finding.benchmark, finding.note) == ("torch-mlp-inference-b1", "3 more add")
    assert found(outcome)["torch-mlp-inference-b1", "latency"] == "unchanged"
    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    ("factor", "compiler", "note"),
    [
        (1.3, "1.0", "same program, same compiler: a difference in time is the machine's"),
        (1.3, "1.1", "same program, other compiler versions (xla 1.0 -> 1.1): made the same of it"),
        (1.0, "1.0", ""),
    ],
)
def test_a_regression_of_the_same_program_says_so(record, factor, compiler, note):
    base, head = (several(program=program(1, compiler={"xla": version})) for version in ("1.0", compiler))
    head = dataclasses.replace(head, processes=several(factor=factor).processes)
    assert verdict(record, base, head).note == note


@pytest.mark.parametrize(
    ("size", "weights", "told"),
    [(1.0, "abc", 0), (1.000001, "abc", 0), (1.0025, "abc", 1), (1.0025, "def", 0)],
)
def test_outputs_that_differ_from_the_baselines_are_told_beside_the_verdict(record, size, weights, told):
    sides = [several(parity=outputs(of, weights=digest)) for of, digest in ((1.0, "abc"), (size, weights))]
    found = compare(*(record(side) for side in sides), LATENCY, allow_mismatch=True)
    different = [finding for finding in found.findings if finding.kind == "different"]
    assert len(different) == told
    assert all("outputs differ by 2.5e-03" in finding.note for finding in different)
    assert found.exit_code == 0


def test_a_program_that_nothing_is_told_of_is_no_finding(record):
    untold = Fingerprint.untold("eager")
    for base, head in ((untold, untold), (None, program(1)), (program(1), None)):
        outcome = compare(record(several(program=base)), record(several(factor=1.3, program=head)), LATENCY)
        assert [(finding.kind, finding.note) for finding in outcome.findings] == [("regressed", "")]


# What is in one record alone


def test_a_benchmark_of_the_baseline_that_was_not_measured_fails_unless_it_was_left_out(record):
    records = record(several(), several(lane="jax")), record(several())
    outcome = compare(*records, LATENCY)
    (finding,) = found(outcome, "missing")
    assert (finding.benchmark, finding.note) == ("jax-mlp-inference-b1", "in the baseline, not measured")
    assert outcome.exit_code == 1
    outcome = compare(*records, LATENCY, left_out=frozenset(["jax-mlp-inference-b1"]))
    assert (outcome.exit_code, found(outcome, "missing")) == (0, [])


def test_a_benchmark_that_cannot_run_here_any_more_is_missing_with_the_reason(record):
    gone = failed("unavailable", "jax cannot be imported; install it there")
    outcome = compare(record(several(), several(lane="jax")), record(several(), gone), LATENCY)
    (finding,) = found(outcome, "missing")
    assert finding.note == "in the baseline, not available here: jax cannot be imported; install it there"
    assert outcome.exit_code == 1


def test_a_benchmark_that_could_run_on_neither_side_is_no_finding(record):
    gone = failed("unavailable")
    assert len(compare(record(several(), gone), record(several(), gone), LATENCY).findings) == 1


def test_a_new_benchmark_fails_nothing(record):
    outcome = compare(record(several()), record(several(), several(lane="jax")), LATENCY)
    (finding,) = found(outcome, "new")
    assert (finding.benchmark, outcome.exit_code) == ("jax-mlp-inference-b1", 0)


@pytest.mark.parametrize("base", [several(lane="jax"), failed()])
@pytest.mark.parametrize("others", [(), (several(),)])
def test_a_failed_benchmark_fails_whatever_else_there_is(record, base, others):
    outcome = compare(record(*others, base), record(*others, failed()), LATENCY)
    (finding,) = found(outcome, "failed")
    assert (finding.benchmark, finding.note) == ("jax-mlp-inference-b1", "killed by SIGKILL")
    assert (outcome.exit_code, found(outcome, "missing"), found(outcome, "incomparable")) == (1, [], [])


def test_a_metric_that_vanished_is_missing_and_a_new_one_is_not(record):
    thresholds = {"latency": Threshold(0.1), "energy": Threshold(0.1)}
    without, with_energy = several(), measured(processes=({"latency": 1.0, "energy": 2.0},) * 5)
    outcome = compare(record(with_energy), record(without), thresholds)
    (finding,) = found(outcome, "missing")
    assert (finding.benchmark, finding.metric, outcome.exit_code) == ("torch-mlp-inference-b1", "energy", 1)
    outcome = compare(record(without), record(with_energy), thresholds)
    assert (outcome.exit_code, found(outcome, "missing")) == (0, [])
    assert list(outcome.notes) == ["energy was not compared: no benchmark has it in both records"]


@pytest.mark.parametrize("of_duet", ["base", "head"])
def test_a_duets_journal_is_no_empty_record(record, of_duet):
    sides = {"base": record(several()), "head": record(several())}
    sides[of_duet] = dataclasses.replace(sides[of_duet], measurements=(), against={"revision": "abc"})
    (finding,) = compare(sides["base"], sides["head"], LATENCY).findings
    assert "holds pairs of a duet" in finding.note


def test_a_gate_over_no_metric_is_exit_4(record):
    bare = measured(processes=({},))
    outcome = compare(record(bare), record(bare), THRESHOLDS)
    assert (outcome.exit_code, found(outcome)) == (4, {("torch-mlp-inference-b1", ""): "incomparable"})


# Other records


def test_what_prices_the_harness_is_not_compared(record):
    (finding,) = compare(
        record(several(), several(lane="noop", model="noop"), several(lane="noop", model="mlp")),
        record(several(), several(lane="noop", model="noop", factor=9.0), failed(lane="noop")),
        LATENCY,
    ).findings
    assert (finding.benchmark, finding.kind) == ("torch-mlp-inference-b1", "unchanged")


def test_a_journal_is_compared_as_the_file_of_its_run(tmp_path, record):
    kept = read(write(tmp_path / "x.jsonl", journal(several(factor=1.3))))
    assert found(compare(record(several()), kept, LATENCY)) == {("torch-mlp-inference-b1", "latency"): "regressed"}


def test_what_a_reader_must_know_of_a_file_is_told(tmp_path, record):
    path = write(tmp_path / "x.jsonl", journal(several(), several(lane="jax")))
    path.write_text(path.read_text()[:-9])
    (note,) = compare(record(several()), read(path), LATENCY).notes
    assert note.startswith(f"{path}: the last line is cut off")


def foreign(*benchmarks):
    return {"benchmarks": list(benchmarks), "machine_info": {"node": "vm"}, "datetime": "2026-11-21T09:10:10"}


def test_somebody_elses_benchmarks_are_matched_by_full_name_and_one_process_decides_nothing(tmp_path):
    names = "tests/y.py::test_sort", "tests/y.py::test_merge"
    base = read(write(tmp_path / "a.json", foreign(*map(plain, names))))
    head = read(write(tmp_path / "b.json", foreign(plain(names[0], median=0.003), plain(names[1]))))
    outcome = compare(base, head, THRESHOLDS)
    assert found(outcome) == {(names[0], "latency"): "inconclusive", (names[1], "latency"): "unchanged"}
    assert [(f.base, f.head) for f in outcome.findings] == [pytest.approx((0.002, head)) for head in (0.003, 0.002)]
    # They have no such option.
    assert "only a factor of 2 counts" in outcome.findings[0].note
    assert "--fwbench" not in outcome.findings[0].note


def test_somebody_elses_benchmark_fails_beyond_a_factor_of_two_and_not_on_another_cpu(tmp_path):
    base = read(write(tmp_path / "a.json", foreign(plain())))
    head = foreign(plain(median=0.02))
    outcome = compare(base, read(write(tmp_path / "b.json", head)), THRESHOLDS)
    assert found(outcome) == {("tests/y.py::test_sort", "latency"): "regressed"}
    assert outcome.exit_code == 1
    head["machine_info"]["cpu"] = {"brand_raw": "Another CPU"}
    other = dataclasses.replace(base, machine_info={"cpu": {"brand_raw": "Some CPU"}})
    (finding,) = compare(other, read(write(tmp_path / "c.json", head)), THRESHOLDS).findings
    assert (finding.kind, finding.note) == ("incomparable", "cpu differs: Some CPU in the baseline, Another CPU here")


def test_a_foreign_median_of_zero_is_no_value(tmp_path):
    base = read(write(tmp_path / "a.json", foreign(plain())))
    head = read(write(tmp_path / "b.json", foreign(plain(median=0.0))))
    assert found(compare(base, head, LATENCY)) == {("tests/y.py::test_sort", "latency"): "missing"}
