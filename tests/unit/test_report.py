import dataclasses
import re
from contextlib import nullcontext

import pytest

from fwbench import units
from fwbench.plugin.plan import Estimate, Plan
from fwbench.plugin.progress import Progress
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Failure, Measurement, Metric, unavailable
from fwbench.record.workload import Workload
from fwbench.report import summary
from tests.unit import recorded
from tests.unit.recorded import proof


def measured(framework, throughput=100.0, **metrics):
    values = {"throughput": Metric(throughput, "test"), **metrics}
    parity = {"proof": proof(framework)}
    return Measurement(Workload(framework, "mlp", batch_size=8), samples=(0.01,) * 5, metrics=values, parity=parity)


def rows(measurements):
    header, *lines = summary.table(measurements)
    # Columns are at least two spaces apart.
    return header, [line.split() for line in lines]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.seconds(0.0123), "12.3 ms"),
        (units.seconds(999.9e-6), "1.00 ms"),
        (units.joules(0.9999), "1.00 J"),
        (units.seconds(4.5e-8), "45.0 ns"),
        (units.seconds(61.0), "61.0 s"),
        (units.size(1536.0), "1.50 KiB"),
        (units.size(3 * 2**30), "3.00 GiB"),
        (units.joules(0.0456), "45.6 mJ"),
        (units.rate(1_234_567.0), "1.23 M"),
        (units.rate(45.67), "45.7"),
    ],
)
def test_units_are_humane(text, expected):
    assert text == expected


def test_without_eager_pytorch_the_speed_up_is_relative_to_the_first_lane_and_says_so():
    measurements = [measured("jax", 100.0), measured("tensorflow", 150.0)]
    _, (jax, other) = rows(measurements)
    assert (jax[-1], other[-2:]) == ("1.00x", ["1.50x", "proved"])
    assert summary.every_note(measurements) == ["speed-up is relative to JAX (jit)"]
    assert summary.every_note([measured("torch"), *measurements]) == []


def test_a_failed_workload_keeps_its_row_and_its_kind():
    failed = Measurement(Workload("jax", "mlp"), failure=Failure("timed_out", "too long"))
    _, (row,) = rows([failed])
    assert "timed_out" in row


def test_a_run_ends_with_five_notes_of_one_line_each_and_the_report_has_the_rest():
    retried = [dataclasses.replace(measured("torch"), after_crash=f"crash {n}\nof many") for n in range(8)]
    notes = [f"torch-mlp-inference-b8: crash {n} of many" for n in range(5)]
    assert summary.notes(retried) == [*notes[:-1], f"{notes[-1]} (and 3 more notes in the report)"]
    assert summary.notes(retried[:6])[-1].endswith(" (and 1 more note in the report)")
    assert summary.notes(retried[:5]) == notes
    (note,) = summary.notes([dataclasses.replace(measured("torch"), after_crash="x" * 300)])
    assert (len(note), note[-3:]) == (200, "...")


def test_a_run_ends_with_an_answer_for_each_workload():
    rounds = {"torch": [0.02] * 4, "jax": [0.01, 0.0101, 0.0099, 0.01]}

    def lanes(model, batch, factor, played=True):
        for lane, seconds in rounds.items():
            slower = factor if lane == "jax" else 1.0
            turns = tuple({"begun": float(n), "call": [call * slower]} for n, call in enumerate(seconds))
            yield recorded.measured(lane, model, batch_size=batch, turns=turns if played else ())

    given = [*lanes("mlp", 1, 1.0), *lanes("mlp", 8, 2.0), *lanes("cnn", 1, 2.05), *lanes("cnn", 8, 1.0, False)]
    names, *rows = (re.split(r"  +", line) for line in summary.answered(given))
    assert names == ["model", "mode", "batch", "answer", "against", "evidence"]
    answers = {(model, int(batch)): answer for model, _, batch, answer, *_ in rows}
    low, high = map(float, re.fullmatch(r"jax 2.00 \((1\.9\d) to (2\.0\d)\) times as fast", answers["mlp", 1]).groups())
    assert low < 2 < high
    assert answers["mlp", 8].startswith("equal within 5 %: ")
    assert answers["cnn", 1] == "torch 1.02 (1.01 to 1.04) times as fast"
    assert answers["cnn", 8] == "open: torch 1.00 (0.50 to 2.00)"
    assert summary.answered(given[:1]) == []
    # Epochs take no turns, and have a table of their own.
    assert summary.answered([recorded.fitted("torch"), recorded.fitted("jax")]) == []


@pytest.mark.parametrize(
    ("load", "answer"), [(0.0, "jax likely 4.00 (2.00 to 8.00) times"), (1.0, "jax likely at least 2.00 times")]
)
def test_the_ratio_of_a_disturbed_workload_is_told_by_its_bounds_alone(load, answer):
    disturbed = measured("jax", 400.0, other_load=Metric(load, "test"))
    (_, row) = summary.answered([measured("torch"), disturbed])
    assert f"  {answer} as fast" in row


def test_notes_say_why_a_column_is_empty():
    missing = unavailable("counter", "this machine has no counter")
    assert "no energy: this machine has no counter" in summary.every_note(
        [measured("torch", energy_per_sample=missing)]
    )


def test_notes_tell_what_a_crash_led_to():
    retried = dataclasses.replace(measured("jax"), after_crash="the worker was killed, so run again with --mild")
    (note,) = summary.every_note([retried, measured("torch")])
    assert note == f"jax-mlp-inference-b8: {retried.after_crash}"


def test_a_row_that_ran_with_fallback_flags_is_marked():
    retried = dataclasses.replace(measured("jax"), settings={"fallback_flags": "XLA_FLAGS=--mild"})
    _, (torch, jax) = rows([measured("torch"), retried])
    assert jax[3:5] == ["jax", "(fallback)"]
    assert "(fallback)" not in torch


def test_a_row_is_that_of_the_batch_that_was_measured_and_says_which_was_asked_for():
    halved = dataclasses.replace(measured("jax"), unfit=(32, 16))
    _, (jax,) = rows([halved])
    assert jax[2:6] == ["8", "jax", "(32", "asked)"]
    assert summary.every_note([halved]) == [
        "jax-mlp-inference-b8: batch 32 was asked for, and 32 and 16 did not fit into memory (fit_batch=true)"
    ]


def test_a_lanes_caution_is_told_once_for_all_that_it_is_true_of():
    said = dataclasses.replace(measured("torch"), settings={"caution": "one thread"})
    larger = dataclasses.replace(said, workload=dataclasses.replace(said.workload, batch_size=32))
    (note,) = [note for note in summary.every_note([said, measured("jax"), larger]) if "one thread" in note]
    assert note == "torch-mlp-inference-b8 and 1 more: one thread"


def test_notes_tell_of_another_framework_that_a_process_holds():
    said = dataclasses.replace(measured("jax"), settings={"also_imported": ["torch", "tensorflow"]})
    larger = dataclasses.replace(said, workload=dataclasses.replace(said.workload, batch_size=32))
    (note,) = [note for note in summary.every_note([measured("torch"), said, larger]) if "imported" in note]
    assert note == (
        "jax-mlp-inference-b8 and 1 more: the process of jax also imported torch and tensorflow, whose memory is in "
        "the host memory shown, so no lane is said to have the least"
    )


def test_notes_tell_of_recompilation_while_measuring():
    steady, unsteady = (
        dataclasses.replace(measured(lane), program=Fingerprint(digest="d").counted(1, times))
        for lane, times in (("torch-compile", 0), ("jax", 3))
    )
    (note,) = [note for note in summary.every_note([steady, unsteady, measured("torch")]) if "recompiled" in note]
    assert note.startswith("jax-mlp-inference-b8: recompiled while it was measured (3x)")


def test_notes_warn_when_the_mean_lies_above_p95():
    p95 = Metric(0.001, "test")
    assert any(
        "mean latency lies above p95" in note for note in summary.every_note([measured("torch", latency_p95=p95)])
    )


def rated(lane, gflops, load=0.0):
    rate = Metric(gflops * 1e9, "a test", library=f"{'XLA' if lane == 'jax' else 'MKL'} on AuthenticAMD")
    return measured(lane, matrix_product_rate=rate, other_load=Metric(load, "test"))


def test_notes_tell_of_a_lane_that_multiplies_matrices_slowly():
    every = summary.every_note([rated("torch", 87), rated("torch-compile", 130), rated("jax", 190)])
    (note,) = [note for note in every if "matrix products" in note]
    assert (
        "fp32 are far slower in torch than this machine can: torch 87 GFLOP/s (MKL on AuthenticAMD), torch-compile 130"
        in note
    )


def test_a_rate_of_an_older_record_is_told_without_its_library():
    rates = {"torch": Metric(1e9, "MKL; fp32"), "jax": Metric(4e9, "XLA; fp32")}
    (note,) = summary.every_note([measured(lane, matrix_product_rate=rate) for lane, rate in rates.items()])
    assert "torch 1 GFLOP/s, jax 4 GFLOP/s." in note


@pytest.mark.parametrize(
    "measurements",
    [
        [rated("torch", 115), rated("jax", 190)],  # slower, as libraries differ
        [rated("torch", 87)],  # alone
        [measured("torch"), rated("jax", 190)],
        [rated("torch", 87), rated("torch", 180), rated("jax", 190)],  # in another run it was not
    ],
)
def test_a_rate_that_may_be_the_machines_is_no_news(measurements):
    assert summary.every_note(measurements) == []


def test_a_rate_beside_other_load_tells_nothing():
    notes = summary.every_note([rated("torch", 87, load=0.5), rated("jax", 190)])
    assert not any("matrix" in note for note in notes)


def test_notes_warn_of_other_load():
    busy, calm = (Metric(share, "test") for share in (0.4, 0.02))
    notes = summary.every_note([measured("torch", other_load=busy), measured("jax", other_load=calm)])
    assert any("1 of 2" in note and "40%, torch-mlp-inference-b8" in note for note in notes)
    assert summary.every_note([measured("jax", other_load=calm)]) == []


class Terminal:
    isatty = False

    def __init__(self):
        self.text = ""

    def write(self, content, *, flush=False):
        self.text += content


def test_progress_tells_how_far_which_and_in_which_stage():
    terminal = Terminal()
    plan = Plan({"a": Estimate("torch", 20.0, False), "b": Estimate("torch", 500.0, False)})
    progress = Progress(terminal, nullcontext, 12, plan)
    progress.begin("torch-mlp-inference-b8", "a")
    progress.stage("build")
    progress.end(measured("torch", 100.0, latency_p50=Metric(0.01, "test")))
    assert terminal.text == "\n[ 1/12, 9 min left] torch-mlp-inference-b8: 10.0 ms, 100 samples/s"
    plan.took("b", 500.0)
    progress.begin("torch-mlp-inference-b32", "b")
    assert terminal.text.endswith("\n[ 2/12, 20 s left] torch-mlp-inference-b32: ")


def test_progress_does_without_a_time_that_is_not_known():
    terminal = Terminal()
    Progress(terminal, nullcontext, 1, Plan({"a": None})).begin("torch-resnet50-fit", "a")
    assert terminal.text == "\n[1/1] torch-resnet50-fit: "


def test_a_models_axes_are_columns_and_rows_of_their_own():
    def at(lane, length, throughput):
        found = measured(lane, throughput)
        return dataclasses.replace(found, workload=dataclasses.replace(found.workload, axes=(("length", length),)))

    plain = measured("torch", 7.0)
    header, lines = rows(
        [at("torch", 16, 100.0), at("jax", 16, 200.0), at("torch", 64, 10.0), at("jax", 64, 50.0), plain]
    )
    assert header.split()[:5] == ["model", "mode", "batch", "length", "lane"]
    speed_ups = [next(text for text in line if re.fullmatch(r"[\d.]+x", text)) for line in lines if line[0] == "mlp"]
    assert [(line[3], line[4]) for line in lines if line[0] == "mlp"] == [
        ("16", "torch"),
        ("16", "jax"),
        ("64", "torch"),
        ("64", "jax"),
        ("-", "torch"),
    ]
    assert speed_ups == ["1.00x", "2.00x", "1.00x", "5.00x", "1.00x"]


@pytest.mark.parametrize(
    ("ends", "shown", "said"),
    [
        ((0.0, 53.63), "<= 53.63x", "at most 53.63"),
        ((53.63, float("inf")), ">= 53.63x", "at least 53.63"),
        ((0.0, float("inf")), "unknown", ""),
        ((12.345, 53.63), "12.35x to 53.63x", "12.35 to 53.63"),
        ((0.0043, float("inf")), ">= 0.0043x", "at least 0.0043"),
        ((0.0043, 0.05), "0.0043x to 0.05x", "0.0043 to 0.05"),
    ],
)
def test_an_end_that_nobody_knows_is_not_shown(ends, shown, said):
    assert (units.span(ends), units.times(ends)) == (shown, said)


def test_a_note_explains_disturbed_speed_ups_and_what_helps_where_there_are_some():
    def run(load):
        return [measured("torch"), measured("jax", 300.0, other_load=Metric(load, "test"))]

    load, speed_up = summary.every_note(run(1.0))
    assert load.endswith(
        "Stop the other load, or set OMP_WAIT_POLICY=PASSIVE or --fwbench-threads=1, and measure again."
    )
    assert speed_up.startswith("a speed-up shown as a range, or after <= or >=, lies anywhere within these bounds")
    assert summary.every_note(run(0.0)) == []


@pytest.mark.parametrize(
    ("threads", "policy", "advised"),
    [("2", None, (True, True)), ("2", "passive", (True, False)), ("1", None, (False, False))],
)
def test_a_note_advises_nothing_that_is_set_already(threads, policy, advised):
    settings = {"OMP_NUM_THREADS": threads} | ({"OMP_WAIT_POLICY": policy} if policy else {})
    one = dataclasses.replace(measured("torch", other_load=Metric(1.0, "test")), settings=settings)
    (note,) = summary.every_note([one])
    assert ("--fwbench-threads=1" in note, "OMP_WAIT_POLICY=PASSIVE" in note) == advised


@pytest.mark.parametrize(
    ("seconds", "jit", "told"), [(67e-6, "flax.nnx.jit", True), (67e-6, None, False), (0.01, "x", False)]
)
def test_a_note_says_what_short_calls_of_jax_leave_out(seconds, jit, told):
    settings = {"call_leaves_out": jit} if jit else {}
    one = dataclasses.replace(measured("jax", latency_p50=Metric(seconds, "test")), settings=settings)
    notes = [note for note in summary.cautions([one]) if "left out" in note]
    assert len(notes) == told
    assert all(jit in note and one.workload.id in note for note in notes)


def test_a_note_on_many_rows_keeps_what_it_says_of_them():
    """It is among the first, as it is about what the numbers mean."""
    metrics = {"latency_p50": Metric(1e-4, "test"), "latency_p95": Metric(2e-4, "test")}
    short = {"settings": {"call_leaves_out": "flax.nnx.jit"}, "metrics": metrics, "samples": (1e-4,) * 99 + (1.0,)}
    calls = [recorded.measured("jax", f"a-network-of-mine-{n}", **short) for n in range(8)]
    assert sum("p95" in note for note in summary.every_note(calls)) == 8
    (note,) = [note for note in summary.notes(calls) if "flax.nnx.jit" in note]
    assert "call=program,module" in note
    assert calls[0].workload.id in note
