"""The largest batch of each model, and when compiling has paid off."""

import pytest

from fwbench.compare.cases import baseline, cases, settings
from fwbench.ext.studies import largest
from fwbench.ext.studies.compiling import break_evens
from fwbench.report.answers import answers
from tests.unit.recorded import measured, metric, proof, saved
from tests.unit.report.parsing import csv_files
from tests.unit.report.test_cases import measurement, record
from tests.unit.report.test_golden import by, number, raw, tables  # noqa: F401 (fixtures)
from tests.unit.shared import needs


@needs("tensorflow")
def test_a_lane_that_is_missing_at_one_batch_size_keeps_its_column_and_its_baseline():
    given = cases([measured("torch"), measured("jax"), measured("jax", batch_size=8), measured("tensorflow")])
    table = largest.table(given, baseline(given))
    names = [column.name for column in table.columns]
    assert {"PyTorch (eager) /s", "JAX (jit) /s", "TensorFlow (tf.function) /s", "JAX (jit) speed-up"} <= set(names)
    assert table.missing == (
        "no speed-up of mlp at batch 8: PyTorch (eager), which it is relative to, has no number there",
    )


def test_the_summary_is_of_the_largest_batch(tables, raw):
    found = tables["summary"].dicts()
    assert [(row["model"], row["batch"]) for row in found] == [("resnet50", "8"), ("mlp", "8")]
    for row in found:
        torch, jax = (by(raw, row["model"], "inference", 8, lane).value("throughput") for lane in ("torch", "jax"))
        assert float(row["PyTorch (eager) /s [1/s]"]) == torch
        assert float(row["JAX (jit) /s [1/s]"]) == jax
        assert float(row["JAX (jit) speed-up"]) == jax / torch


def test_compiling_pays_off_only_where_the_lanes_may_be_compared():
    extra = {"compile_time": metric(1.0)}
    torch = measured("torch", throughput=100.0)
    proved, unproved = (
        measured("jax", throughput=200.0, metrics=extra, parity={"weights": "abc", "proof": proof("jax", state)})
        for state in ("proved", "missing")
    )
    (found,) = break_evens(cases([torch, proved]), "torch")
    assert found.calls == 1.0 / (1 / 100 - 1 / 200)
    assert break_evens(cases([torch, unproved]), "torch") == []


def test_compiling_pays_off_against_a_baseline_that_compiles_by_what_it_costs_more():
    def lane(name, seconds, throughput):
        return measured(name, throughput=throughput, metrics={"compile_time": metric(seconds)})

    given = cases([lane("jax", 1.0, 100.0), lane("torch-compile", 3.0, 200.0), measured("torch", throughput=50.0)])
    (found,) = break_evens(given, "jax")
    assert (found.case.lane, found.compiling, found.calls) == ("torch-compile", 2.0, 2.0 / (1 / 100 - 1 / 200))


def test_break_even_is_compiling_over_what_a_call_gains(tables, raw):
    found = tables["break-even"].dicts()
    assert len(found) == 6
    for row in found:
        key = (row["model"], row["mode"], int(row["batch"]))
        torch, jax = by(raw, *key, "torch"), by(raw, *key, "jax")
        batch = int(row["batch"])
        gained = batch / torch.value("throughput") - batch / jax.value("throughput")
        assert float(row["compiling [s]"]) == jax.compiling
        expected = pytest.approx(jax.compiling / gained) if gained > 0 else None
        assert number(row["calls to break even"]) == expected
    assert any(row["calls to break even"] for row in found)


def test_times_that_the_clock_could_not_tell_from_none(report):
    none = {"latency_p50": metric(0.0), "compile_time": metric(0.0)}
    out = report(saved(measured("torch"), measured("jax", throughput=200.0, metrics=none)))
    (row,) = csv_files(out / "tables")["break-even"].dicts()
    assert (row["compiling [s]"], row["calls to break even"]) == ("0.0", "0.0")
    report(saved(measured("torch", samples=(0.0, 0.0, 0.0), metrics=none)))


def test_compiling_costs_what_a_lane_is_ready_later(report):
    """Tuning and recording graphs in the first calls are no part of what a compiler tells."""

    def lane(name, start, call, **compiling):
        found = {"time_to_steady": start, **compiling}
        values = {metric_: metric(value) for metric_, value in found.items()}
        return measured(name, throughput=1 / call, metrics=values)

    compiled = lane("jax", 9.0, 0.25, trace_time=1.0, compile_time=2.0)
    (row,) = csv_files(report(saved(lane("torch", 2.0, 0.5), compiled), formats="csv") / "tables")["break-even"].dicts()
    assert (row["compiling [s]"], row["calls to break even"]) == ("7.0", "28.0")


def test_what_is_the_fastest_by_its_pairs_pays_off():
    """Also where the medians say otherwise, because one lane was measured in further runs."""
    compiled = {"compile_time": metric(1.0)}
    both = [
        record(measurement("torch", throughput=100.0), measurement("jax", throughput=105.0 + n, metrics=compiled))
        for n in range(6)
    ]
    alone = [record(measurement("torch", throughput=200.0)) for _ in range(7)]
    given = settings([*both, *alone])[0].cases
    (answer,), (found,) = answers(given), break_evens(given, "torch")
    assert found.calls is not None
    assert found.weighed.ratio == answer.shown


@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_both_are_relative_to_the_lane_that_was_asked_for(lane):
    compiled = {"compile_time": metric(1.0)}
    given = cases(
        measured(each, throughput=speed, metrics=compiled) for each, speed in (("torch", 100.0), ("jax", 200.0))
    )
    (found,) = break_evens(given, lane)
    assert found.case.workload.lane != lane
    names = [column.name for column in largest.table(given, lane).columns]
    assert [name for name in names if name.endswith("speed-up")] == [
        {"torch": "JAX (jit) speed-up", "jax": "PyTorch (eager) speed-up"}[lane]
    ]
