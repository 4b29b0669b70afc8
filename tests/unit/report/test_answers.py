"""What the answer may claim: one process shows little, several show what their ratios show."""

import dataclasses
import re

import pytest

from fwbench import units
from fwbench.compare.cases import cases, settings
from fwbench.compare.parity import doubts
from fwbench.compare.weighing import weigh
from fwbench.report import calls, summary
from fwbench.report.answers import answers, headline, in_short, table
from tests.unit.recorded import measured, metric, proof
from tests.unit.report.parsing import texts, values
from tests.unit.report.test_cases import measurement, record
from tests.unit.shared import needs


def one_run(torch, jax, load=0.0):
    given = {"other_load": metric(load)}
    (answer,) = answers(cases([measured("torch", throughput=torch), measured("jax", throughput=jax, metrics=given)]))
    return answer


def turns(call):
    """Six rounds of turns, in which a call takes about so many seconds."""
    jitters = (1.0, 1.002, 0.998, 1.001, 0.999, 1.0)
    return tuple({"begun": float(n), "call": [call * jitter] * 4} for n, jitter in enumerate(jitters))


def runs(*pairs):
    given = [record(measurement("torch", throughput=t), measurement("jax", throughput=j)) for t, j in pairs]
    (answer,) = answers(settings(given)[0].cases)
    return answer


@pytest.mark.parametrize("of", [table, in_short])
def test_rows_that_differ_in_an_option_alone_say_so(of):
    """Otherwise two answers of `--fwbench-set call=program,module` look alike."""
    given = [measured(lane, call=call) for call in ("program", "module") for lane in ("torch", "jax")]
    shown = of(answers(cases(given)))
    assert [row["options"] for row in texts(shown)] == ["", "module"]
    alike = of(answers(cases(given[:2])))
    assert "options" not in [column.name for column in alike.columns]


@pytest.mark.parametrize(
    ("jax", "load", "confidence"),
    [(120.0, 0.0, "undecided"), (199.0, 0.0, "undecided"), (201.0, 0.0, "likely"), (300.0, 0.2, "likely")],
)
def test_one_process_each_is_never_clear(jax, load, confidence):
    answer = one_run(100.0, jax, load)
    assert (answer.fastest, answer.second, answer.confidence) == ("jax", "torch", confidence)
    assert answer.shown == jax / 100
    assert answer.reason.startswith("one process each")


@pytest.mark.parametrize(
    ("jax", "load", "confidence", "told"),
    [
        # 8 % can make the slower lane 1.5 times as slow, 30 % 5.9 times; with a factor of two on top.
        (32.0, 0.08, "likely", "beyond 2x and what comes of other load (8%)"),
        (34.0, 0.08, "undecided", "other load (8%)"),
        (8.0, 0.3, "likely", "beyond 2x and what comes of other load (30%)"),
        (9.0, 0.3, "undecided", "other load (30%)"),
        (90.0, 0.3, "undecided", "within 2x; other load (30%)"),
    ],
)
def test_other_load_explains_as_much_of_a_lanes_slowness_as_it_can(jax, load, confidence, told):
    answer = one_run(100.0, jax, load)
    assert (answer.fastest, answer.confidence, answer.reason) == ("torch", confidence, f"one process each; {told}")


@pytest.mark.parametrize(
    ("torch", "jax", "shown", "of_latency"),
    [
        # Two fifths of the speed are what a share of 17 % can explain: which lane it was decides to which side.
        ((100.0, 0.0), (40.0, 0.17), "0.98x to 2.50x", "-"),
        ((100.0, 0.17), (40.0, 0.0), "2.50x to 6.35x", "2.50x to 6.35x"),
        ((100.0, 0.17), (40.0, 0.17), "0.98x to 6.35x", "-"),
        ((100.0, 0.0), (40.0, 1.0), "<= 2.50x", "-"),
        ((100.0, 1.0), (40.0, 0.0), ">= 2.50x", ">= 2.50x"),
        ((100.0, 1.0), (40.0, 1.0), "unknown", "-"),
        ((100.0, 0.05), (40.0, 0.05), "2.50x", "2.50x"),
    ],
)
def test_the_ratio_of_disturbed_lanes_is_where_it_can_lie(torch, jax, shown, of_latency):
    lanes = [
        measured(lane, throughput=speed, metrics={"other_load": metric(load), "latency_p50": metric(1 / speed)})
        for lane, (speed, load) in (("torch", torch), ("jax", jax))
    ]
    (answer,) = answers(cases(lanes))
    (row,) = texts(table([answer]))
    assert row["ratio"] == shown
    # The terminal's speed-up is over PyTorch.
    of = {case.workload.lane: case for case in (answer.case, answer.beside)}
    assert units.ratio(weigh(of["torch"], of["jax"]).shown) == shown
    # Of latencies, too; and where it can be the other way round, no lane has the least.
    assert row["by, of latency"] == of_latency


@pytest.mark.parametrize(("jax", "confidence"), [(50.0, "undecided"), (10.0, "clear")])
def test_pairs_of_processes_under_load_must_differ_by_more_than_it_explains(jax, confidence):
    given = {"other_load": metric(0.3)}
    several = [
        record(measurement("torch", throughput=100.0 + n), measurement("jax", throughput=jax, metrics=given))
        for n in range(6)
    ]
    (answer,) = answers(settings(several)[0].cases)
    assert (answer.fastest, answer.confidence) == ("torch", confidence)
    assert answer.reason.endswith("at 97%; other load (30%)")


@pytest.mark.parametrize(
    ("speeds", "confidence", "said"),
    [
        ((104.0, 105.0, 106.0, 107.0, 108.0, 109.0), "clear", "6 pairs of processes: 1.04x to 1.09x at 97%"),
        ((104.0, 105.0, 106.0), "likely", " at 75%"),
        # They disagree, however large one difference is.
        ((300.0, 99.0, 98.0, 97.0, 310.0, 98.0), "undecided", ""),
        ((104.0, 105.0), "undecided", "says too little"),
    ],
)
def test_runs_that_agree_are_the_surer_the_more_there_are(speeds, confidence, said):
    answer = runs(*((100.0, speed) for speed in speeds))
    assert (answer.confidence, said in answer.reason) == (confidence, True)
    if confidence == "clear":
        assert answer.fastest == "jax"
        assert 1.04 < answer.shown < 1.09


def test_processes_of_one_run_are_pairs_too():
    def several(lane, *speeds):
        return measured(lane, throughput=speeds[0], processes=tuple({"throughput": speed} for speed in speeds))

    (answer,) = answers(cases([several("torch", *[100.0] * 6), several("jax", *(104.0 + n for n in range(6)))]))
    assert (answer.confidence, answer.reason) == ("clear", "6 pairs of processes: 1.04x to 1.09x at 97%")


def test_the_lanes_of_an_answer_may_all_be_compared_with_each_other(monkeypatch):
    """JAX and compiled PyTorch are both near enough to PyTorch, but not to each other."""
    far = {"jax", "torch-compile"}
    apart = lambda *cases: "different" if {case.workload.lane for case in cases} == far else ""  # noqa: E731
    for module in ("fwbench.report.answers", "fwbench.compare.parity"):
        monkeypatch.setattr(f"{module}.apart", apart)
    speeds = {"torch": 100.0, "jax": 300.0, "torch-compile": 250.0}
    given = [measured(lane, metrics={"throughput": metric(speed)}) for lane, speed in speeds.items()]
    (answer,) = answers(cases(given))
    assert {answer.fastest, answer.second} in ({"torch", "jax"}, {"torch", "torch-compile"})
    assert answer.reason.endswith("(different)")


def test_lanes_of_different_runs_make_no_pair():
    given = [record(measurement("torch", throughput=100.0)), record(measurement("jax", throughput=201.0))]
    (answer,) = answers(settings(given)[0].cases)
    assert (answer.confidence, answer.reason) == ("likely", "processes of different runs; beyond 2x")


def test_the_median_over_runs_decides_who_is_ahead_even_where_pairs_point_the_other_way():
    # Medians 100 and 101, yet the ratios' estimate is below 1.
    answer = runs((100.0, 101.0), (100.0, 90.0), (100.0, 102.0), (200.0, 101.0), (150.0, 101.0))
    assert answer.shown >= 1
    assert (answer.fastest, answer.confidence) == ("torch", "undecided")


def test_a_lane_alone_has_no_answer():
    assert answers(cases([measured("jax")])) == []
    assert "nothing to compare" in headline([])[0]


def test_least_memory_and_energy():
    lanes = [
        measured(name, metrics={"host_peak_memory": metric(m), "energy_per_sample": metric(e)})
        for name, m, e in (("torch", 300.0, 2.0), ("jax", 200.0, 7.0), ("torch-compile", 260.0, 5.0))
    ]
    (answer,) = answers(cases(lanes))
    assert answer.least == {"memory": ("jax", 1.3), "energy": ("torch", 2.5)}


@pytest.mark.parametrize(("ratio", "known"), [(1.99, False), (2.0, False), (2.01, True)])
def test_one_process_each_names_the_least_latency_and_energy_only_beyond_a_factor_of_two(ratio, known):
    values = ("latency_p50", "energy_per_sample", "host_peak_memory")
    both = [
        measured(lane, metrics={name: metric(value) for name in values})
        for lane, value in (("torch", 1.0), ("jax", ratio))
    ]
    (answer,) = answers(cases(both))
    assert ("latency" in answer.least, "energy" in answer.least) == (known, known)
    # Memory is no time, which other processes change.
    assert answer.least["memory"] == ("torch", ratio)


def lanes(batch_size=1, model="mlp", mode="inference", **throughputs):
    given = {"batch_size": batch_size, "model": model, "mode": mode}
    found = [measured(lane.replace("_", "-"), throughput=speed, **given) for lane, speed in throughputs.items()]
    (answer,) = answers(cases(found))
    return answer


def test_the_headline_counts_and_does_not_claim_more_than_likely():
    found = [
        lanes(torch=100.0, jax=250.0),
        lanes(8, torch=300.0, jax=100.0),
        lanes(16, torch=100.0, jax=101.0),
        lanes(8, "vit_b_16", torch=100.0, jax=400.0),
    ]
    assert headline(found) == [
        "Inference: JAX is likely faster than PyTorch, by a common factor of 2.00 to 5.00, by one process each, in 2 "
        "of 4 workloads (mlp b1, vit_b_16 b8).",
        "Inference: PyTorch is likely 1.50 to 6.00 times as fast as JAX, by one process each, in 1 of 4 workloads "
        "(mlp b8).",
        "Inference: between JAX and PyTorch nothing is decided by one process each (JAX is 0.51 to 2.02 times as "
        "fast), in 1 of 4 workloads "
        "(mlp b16).",
    ]
    assert headline([runs(*((100.0, 104.0 + n) for n in range(6)))]) == [
        "Inference: JAX is 1.04 to 1.09 times as fast as PyTorch, in 1 of 1 workloads (mlp b1)."
    ]


def test_each_mode_has_its_own_sentences():
    found = [lanes(torch=100.0, jax=201.0), lanes(mode="train_step", torch=201.0, jax=100.0)]
    assert [line.partition(" is ")[0] for line in headline(found)] == ["Inference: JAX", "Training steps: PyTorch"]


def test_each_question_has_its_own_sentence():
    def lane(name, p50, memory):
        return measured(name, metrics={"latency_p50": metric(p50), "host_peak_memory": metric(memory)})

    (answer,) = answers(cases([lane("torch", 0.1, 300.0), lane("jax", 0.25, 100.0)]))
    assert headline([answer])[1:] == [
        "Lowest latency (p50), inference: PyTorch in 1 of 1, in one by 2.50x or more.",
        "Least memory, inference: JAX in 1 of 1, in one by 3.00x or more.",
    ]


def test_two_lanes_that_both_beat_a_third_share_first_place():
    answer = lanes(torch=100.0, torch_compile=202.0, jax=204.0)
    assert (answer.confidence, answer.shared, answer.ahead) == ("undecided", ("jax", "torch-compile"), "likely")
    assert answer.reason == "one process each; within 2x; every other lane is likely slower"
    assert headline([answer])[0] == (
        "Inference: JAX and PyTorch (torch.compile) are likely ahead of all others; between them nothing is decided by "
        "one process each (JAX is 0.50 to 2.02 times as fast), in 1 of 1 workloads (mlp b1)."
    )


def test_of_lanes_that_nothing_tells_apart_none_is_named_the_fastest():
    answer = lanes(torch=190.0, torch_compile=198.0, jax=200.0)
    assert (answer.shared, answer.ahead) == (("jax", "torch-compile", "torch"), "")
    (row,) = values(table([answer]))
    assert (row["first"], row["second"], row["others"]) == ("jax", "torch-compile", "torch")
    # No multiple is told, as it would be that of two of them.
    assert headline([answer])[0] == (
        "Inference: between JAX, PyTorch (torch.compile) and PyTorch (eager) nothing is decided by one process each, "
        "in 1 of 1 workloads (mlp b1)."
    )
    assert "others" not in values(table([lanes(torch=100.0, jax=201.0)]))[0]


def test_a_sentence_names_workloads_with_their_axes_and_devices():
    axes = ((), (), (("length", 64),), (("length", 128),))
    workloads = [{"axes": of, "devices": 2 if number == 1 else 1} for number, of in enumerate(axes)]
    given = [
        measured(lane, batch_size=8, throughput=speed, **fields)
        for fields in workloads
        for lane, speed in (("torch", 100.0), ("jax", 300.0))
    ]
    named = "mlp b8, mlp on 2 devices b8, mlp length 64 b8, mlp length 128 b8"
    assert headline(answers(cases(given)))[0].endswith(f"in 4 of 4 workloads ({named}).")


def test_a_sentence_on_workloads_that_rest_on_different_things_leaves_them_to_the_table():
    several = runs(*((100.0, 104.0 + n) for n in range(3)))
    single = lanes(8, torch=100.0, jax=201.0)
    assert [each.weighed.basis for each in (several, single)] == ["after 3 pairs of processes", "by one process each"]
    (sentence,) = headline([several, single])
    assert sentence.startswith("Inference: JAX is likely ")
    assert sentence.endswith(" by a common factor of 1.04 to 1.06, in 2 of 2 workloads (mlp b1 b8).")
    undecided = [lanes(torch=100.0, jax=101.0), runs(*((100.0, 101.0), (100.0, 90.0), (100.0, 110.0)))]
    assert headline(undecided) == [
        "Inference: between JAX and PyTorch nothing is decided, in 2 of 2 workloads (mlp b1)."
    ]


def test_a_ratio_that_nobody_can_bound_is_told_without_bounds():
    busy = {"metrics": {"other_load": metric(1.0)}}
    open_ = answers(cases([measured("torch", "cnn", **busy), measured("jax", "cnn", throughput=110.0, **busy)]))
    assert headline(open_) == [
        "Inference: between JAX and PyTorch nothing is decided by one process each, as what disturbed them can explain "
        "the difference, in 1 of 1 workloads (cnn b1).",
    ]
    # Nobody knows of several workloads in which bounds the ratio of each lies.
    assert headline([lanes(torch=100.0, jax=110.0), *open_]) == [
        "Inference: between JAX and PyTorch nothing is decided by one process each, in 2 of 2 workloads (mlp b1, cnn "
        "b1)."
    ]
    (row,) = values(table(open_))
    assert (row["ratio"], row["low"], row["high"], row["level"]) == (1.1, None, None, None)


@pytest.mark.parametrize(
    ("ratios", "factor"),
    [
        # Six rounds know each ratio to 2 %.
        ((2.0, 2.01), r"a common factor of 1\.9[6-9] to 2\.0[2-5]"),
        ((1.5, 3.0), r"a factor of 1\.50 \(mlp b1\) to 3\.00 \(mlp b2\)"),
        ((2.0, 3.0, 2.01, 1.2), r"a factor of 1\.20 \(mlp b4\) to 3\.00 \(mlp b2\)"),
    ],
)
def test_a_sentence_on_several_workloads_tells_a_range_only_where_their_intervals_have_it_in_common(ratios, factor):
    found = [in_turns(batch, jax=ratio)[0] for batch, ratio in enumerate(ratios, 1)]
    (said,) = headline(found)
    ((told, low, high),) = re.findall(r"(an? (?:common )?factor of ([\d.]+).* to ([\d.]+).*), in \d of", said)
    assert re.fullmatch(factor, told)
    if "common" in told:
        each = [answer.weighed.reach for answer in found]
        assert float(low) == pytest.approx(max(reach.low for reach in each), abs=0.005)
        assert float(high) == pytest.approx(min(reach.high for reach in each), abs=0.005)
    assert f", in {len(ratios)} of {len(ratios)} workloads (mlp " in said


@pytest.mark.parametrize(("load", "bounded"), [(0.17, True), (1.0, False)])
def test_a_disturbed_workload_has_its_bound_in_a_sentence_on_several(load, bounded):
    disturbed = {"other_load": metric(load)}
    (cnn,) = answers(cases([measured("torch", "cnn"), measured("jax", "cnn", throughput=9000.0, metrics=disturbed)]))
    assert cnn.weighed.shown.low == 90 < cnn.weighed.shown.high
    (said,) = headline([lanes(torch=100.0, jax=250.0), cnn])
    most = f"to {cnn.weighed.shown.high:.2f} (cnn b1)" if bounded else "or more"
    assert f" by a factor of 2.50 (mlp b1) {most}, by one process each, in 2 of 2 workloads (mlp b1, cnn b1)." in said


def test_lanes_that_may_not_be_compared_have_no_fastest():
    answer = answers(cases([beside("torch", 100.0), beside("jax", 300.0, "missing")]))[0]
    (row,) = values(table([answer]))
    numbers = ("ratio", "low", "high", "level", "answer")
    assert ([row[name] for name in numbers], row["evidence"]) == ([None] * 5, "unchecked")


def test_a_lane_that_another_beats_is_not_the_fastest_whatever_its_own_process_found():
    """JAX is the fastest by its own process alone; TensorFlow beats it in turns, and nothing else is decided."""
    given = [
        measured("jax", throughput=110.0, turns=turns(0.2)),
        measured("torch", throughput=105.0),
        measured("tensorflow", throughput=100.0, turns=turns(0.1)),
    ]
    (answer,) = answers(cases(given))
    assert answer.fastest != "jax"
    assert set(answer.shared) == {"torch", "jax", "tensorflow"}


def beside(lane, throughput, state="", weights="abc", **stamp):
    return measured(lane, throughput=throughput, parity={"weights": weights, "proof": proof(lane, state, **stamp)})


def probed(arithmetic):
    found = beside("jax", 300.0)
    probe = {"matmul": {"error": 1e-7, "arithmetic": arithmetic}, "convolution": {"error": 1e-7, "arithmetic": "fp32"}}
    return dataclasses.replace(found, parity={**found.parity, "probe": probe})


def set_to(**settings):
    return dataclasses.replace(beside("jax", 300.0), settings=settings)


@pytest.mark.parametrize(
    "jax",
    [
        probed("fp32"),
        # JAX's own variable, what is a place on this machine, and as many CPUs as the other one's.
        set_to(XLA_FLAGS="--xla", NVIDIA_VISIBLE_DEVICES="1", cpus=[]),
    ],
)
def test_what_changes_no_other_lanes_numbers_keeps_none_apart(jax):
    (answer,) = answers(cases([beside("torch", 100.0), jax]))
    assert (answer.fastest, answer.shown) == ("jax", 3.0)


@pytest.mark.parametrize(
    ("jax", "why"),
    [
        (beside("jax", 300.0, "missing"), "unchecked"),
        (beside("jax", 300.0, "failed"), "different"),
        (beside("jax", 300.0, "stale"), "unchecked"),
        (beside("jax", 300.0, weights="def"), "other weights"),
        (beside("jax", 300.0, versions={"torch": "2.0"}), "unchecked"),
        (measured("jax", throughput=300.0, parity={"weights": "abc"}), "unchecked"),
        (probed("tf32"), "other arithmetic"),
        (set_to(OMP_NUM_THREADS="64"), "other settings"),
        (set_to(cpus=[0]), "other settings"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lanes_that_may_not_be_compared_have_no_answer(jax, why):
    torch = dataclasses.replace(beside("torch", 100.0), versions={"torch": "2.1"})
    (answer,) = answers(cases([torch, jax]))
    assert (answer.fastest, answer.shown, answer.confidence) == ("jax", why, why)
    assert answer.least == {}
    (row,) = values(table([answer]))
    assert (row["ratio"], row["evidence"]) == (None, why)
    assert headline([answer]) == [
        "1 of 1 workloads cannot be answered (mlp b1): their lanes may not be compared, as the notes say."
    ]


def test_a_lane_that_needs_fallback_flags_is_compared_and_says_so():
    """It is what runs on this machine."""
    (answer,) = answers(cases([beside("torch", 100.0), set_to(fallback_flags="XLA_FLAGS=--mild")]))
    assert (answer.fastest, answer.shown) == ("jax", 3.0)
    assert answer.reason.endswith("; JAX (jit) with fallback flags, as it crashed without")


def test_processes_with_and_without_fallback_flags_are_no_replicates():
    given = [beside("torch", 100.0), beside("torch", 100.0), beside("jax", 300.0), set_to(fallback_flags="--mild")]
    (answer,) = answers(cases(given))
    assert (answer.shown, answer.confidence) == ("mixed flags", "mixed flags")
    flags = "the same fallback flags in all processes in mlp, so their numbers cannot be compared"
    assert doubts(cases(given)) == [f"error: torch and jax did not each run with {flags}"]


def test_a_batch_that_was_halved_is_compared_with_its_like_alone():
    halved = dataclasses.replace(beside("jax", 300.0), unfit=(16, 8))
    larger = dataclasses.replace(beside("torch", 100.0), workload=dataclasses.replace(halved.asked, lane="torch"))
    assert halved.asked.batch_size == 16
    assert not answers(cases([larger, halved]))
    assert answers(cases([beside("torch", 100.0), halved]))[0].shown == 3.0


def test_an_unchecked_lane_is_left_out_of_an_answer_about_others():
    tensorflow = beside("tensorflow", 250.0)
    (answer,) = answers(cases([beside("torch", 100.0), beside("jax", 300.0, "missing"), tensorflow]))
    assert (answer.fastest, answer.second, answer.shown) == ("tensorflow", "torch", 2.5)
    assert answer.reason.endswith("; without JAX (jit) (unchecked)")


def test_one_replicate_without_a_proof_is_enough():
    given = [beside("torch", 100.0), beside("torch", 100.0), beside("jax", 300.0), beside("jax", 300.0, "stale")]
    given = [dataclasses.replace(m, workload=dataclasses.replace(m.workload, seed=n % 2)) for n, m in enumerate(given)]
    (answer,) = answers(cases(given))
    assert answer.confidence == "unchecked"


def test_what_is_the_fastest_by_its_pairs_has_a_speed_up():
    """Also where the medians say otherwise, because one lane was measured in further runs."""
    both = [record(measurement("torch", throughput=100.0), measurement("jax", throughput=105.0 + n)) for n in range(6)]
    alone = [record(measurement("torch", throughput=200.0)) for _ in range(7)]
    given = settings([*both, *alone])[0].cases
    (answer,) = answers(given)
    assert (answer.fastest, answer.confidence) == ("jax", "clear")
    shown = calls.table("inference", "", given, "torch")
    torch, jax = (row["speed-up"] for row in values(shown))
    assert jax == answer.shown
    assert torch == 1.0


def drifting(rate, noise=0.0):
    """Ten runs, of which JAX's are each slower by this rate, less and more by turns."""
    return runs(*((100.0, 140.0 / (1 + rate) ** n * (1 + noise * (-1) ** n)) for n in range(10)))


def test_runs_that_drift_are_no_replicates():
    answer = drifting(0.03)
    assert answer.confidence == "undecided"
    assert "no replicates, as the ratio drifts by 30% from the first run to the last" in answer.reason
    # As much, but to and fro.
    assert drifting(0.0, 0.1).confidence == "clear"


def test_what_drifts_in_both_lanes_alike_or_by_next_to_nothing_is_none():
    both = runs(*((100.0 * 0.97**n, 140.0 * 0.97**n * (1 + 0.01 * (-1) ** n)) for n in range(10)))
    assert both.confidence == "clear"
    assert drifting(0.004).confidence == "clear"


def test_a_drift_leaves_what_is_beyond_dispute():
    answer = runs(*((100.0, 400.0 / 1.03**n) for n in range(10)))
    assert (answer.fastest, answer.confidence) == ("jax", "likely")
    assert "no replicates" in answer.reason


def test_runs_of_several_commits_are_no_replicates():
    def of(*commits):
        given = []
        for n, commit in enumerate(commits):
            run = record(measurement("torch", throughput=100.0), measurement("jax", throughput=110.0 + n / 2))
            given.append(dataclasses.replace(run, commit={"id": commit} if commit else {}))
        (answer,) = answers(settings(given)[0].cases)
        return answer

    assert of(*"aaaaaa").confidence == "clear"
    # A journal does not tell its own.
    assert of("", *"aaaaa").confidence == "clear"
    answer = of(*"aaaabb")
    assert answer.confidence == "undecided"
    assert "no replicates, as the runs are of 2 commits; `fwbench history` shows them apart" in answer.reason


def in_turns(batch_size=1, **ratios):
    """The answer over lanes that found 100 samples/s each, and in six rounds were so many times as fast as PyTorch."""
    found = []
    for lane, ratio in {"torch": 1.0, **ratios}.items():
        found.append(measured(lane.replace("_", "-"), batch_size=batch_size, turns=turns(0.1 / ratio)))
    return answers(cases(found))


def turns_of(quantity, **ratios):
    """An answer over rounds in which each lane takes so many times as much as PyTorch, whose own process took most."""
    jitters = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0)
    found = []
    for lane, ratio in {"torch": 1.0, **ratios}.items():
        rounds = [{"call": [0.1 * jitter], quantity: [0.1 * ratio / jitter] * 4} for jitter in jitters]
        played = tuple({"begun": float(number), **own} for number, own in enumerate(rounds))
        alone = metric(0.3 if lane == "torch" else 0.1)
        values = {"latency_p50": alone, "host_peak_memory": alone}
        found.append(measured(lane.replace("_", "-"), turns=played, metrics=values))
    (answer,) = answers(cases(found))
    return answer.least.get(quantity)


@pytest.mark.parametrize("quantity", ["latency", "memory"])
def test_rounds_of_turns_decide_who_has_least_latency_and_memory(quantity):
    lane, multiple = turns_of(quantity, jax=1.3)
    assert lane == "torch"
    assert 1.2 < multiple.low < 1.3 < multiple.high < 1.45
    assert turns_of(quantity, jax=1.3, torch_compile=0.5)[0] == "torch-compile"
    # Nobody can say where the interval holds 1, whatever their own processes took.
    assert turns_of(quantity, jax=1.005) is None


def test_rounds_of_turns_decide_whatever_processes_of_their_own_found():
    (answer,) = in_turns(jax=1.2)
    assert (answer.fastest, answer.second, answer.confidence) == ("jax", "torch", "clear")
    assert answer.shown == pytest.approx(1.2)
    low, high = answer.weighed.interval.low, answer.weighed.interval.high
    assert 1.1 < low < 1.2 < high < 1.3
    assert answer.reason == f"6 rounds of turns: {low:.2f}x to {high:.2f}x at 99%"
    (line,) = headline([answer])
    assert line == f"Inference: JAX is {low:.2f} to {high:.2f} times as fast as PyTorch, in 1 of 1 workloads (mlp b1)."


@pytest.mark.parametrize(("slow", "factor"), [("jax", 1.33), ("torch", 1.25)])
def test_rounds_that_do_not_count_are_named_with_the_lane_that_was_unusual(slow, factor):
    found = []
    for lane, call in {"torch": 0.2, "jax": 0.1}.items():
        calls = [call * (1 + n / 1000) for n in range(7)]
        calls[2] *= factor if lane == slow else 1.02
        played = ({"begun": float(n), "call": [each] * 4, "latency": [call] * 4} for n, each in enumerate(calls))
        found.append(measured(lane, turns=tuple(played)))
    (answer,) = answers(cases(found))
    assert answer.weighed.ratio == pytest.approx(2, rel=0.01)
    assert answer.weighed.interval.high / answer.weighed.interval.low < 1.06
    said = f"1 of 7 rounds does not count: in it {slow} took {factor:.2f} times as long as in the others"
    assert answer.weighed.apart == said
    assert answer.reason.endswith(said)
    assert [note for note in summary.every_note(found) if said in note] == [f"mlp inference b1: {said}"]


def test_lanes_can_be_equal():
    (answer,) = in_turns(jax=1.005)
    assert (answer.confidence, answer.shared) == ("equal", ("jax", "torch"))
    assert "equal within 5%" in answer.reason
    assert headline([answer]) == ["Inference: JAX and PyTorch are equal within 5 %, in 1 of 1 workloads (mlp b1)."]
    (answer,) = in_turns(jax=1.005, torch_compile=0.5)
    assert " JAX and PyTorch (eager) are equal within 5 %, and ahead of all others, " in headline([answer])[0]


def test_no_lane_is_the_fastest_while_a_third_may_be():
    """Whichever of the others seems the nearer."""
    torch, compiled, jax = (
        measured(lane, throughput=speed, metrics={"other_load": metric(load)})
        for lane, speed, load in (("torch", 100.0, 0.0), ("torch-compile", 250.0, 0.0), ("jax", 40.0, 0.6))
    )
    (answer,) = answers(cases([torch, compiled]))
    assert (answer.fastest, answer.confidence) == ("torch-compile", "likely")
    (answer,) = answers(cases([torch, compiled, jax]))
    assert (answer.confidence, answer.shared) == ("undecided", ("torch-compile", "jax"))


def test_rounds_that_only_one_lane_played_decide_nothing():
    (answer,) = answers(cases([measured("torch", turns=turns(0.1)), measured("jax", throughput=300.0)]))
    assert answer.reason.startswith("one process each")


@needs("tensorflow")
def test_of_lanes_that_are_equal_and_one_that_is_undecided_nothing_is_called_equal():
    three = [*(measured(lane, turns=turns(0.1)) for lane in ("torch", "jax")), measured("tensorflow", throughput=99.0)]
    (answer,) = answers(cases(three))
    named = ("torch", "tensorflow", "jax")
    assert (answer.confidence, answer.shared, answer.ahead) == ("undecided", named, "")
    (answer,) = answers(cases([*three, measured("torch-compile", throughput=10.0)]))
    assert (answer.confidence, answer.shared, answer.ahead) == ("undecided", named, "likely")
    assert " PyTorch (eager), TensorFlow and JAX are likely ahead of all others; " in headline([answer])[0]
