"""How near the limit: shares and limits, from records alone."""

import dataclasses
from pathlib import Path

import pytest

from fwbench.compare.cases import cases
from fwbench.ext.studies import limited as limits
from fwbench.ext.studies.peaks import peaks
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import BEFORE, Moment
from fwbench.record.reading import read
from fwbench.report import summary
from tests.unit.recorded import MACHINE, measured, metric
from tests.unit.report.test_contents import row, setting

BASELINES = Path(__file__).parents[3] / ".benchmarks" / "baselines"
H200 = dataclasses.replace(MACHINE, device="gpu", accelerator="NVIDIA H200")


def counted(lane="torch", *, flops=1e9, moved=1e8, ceiling=None, copy=None, metrics=None, **fields):
    """A call of so many operations and bytes; 100 a second."""
    told = {"model_flops": metric(flops)}
    told |= {"compute_ceiling": metric(ceiling), "matrix_product_rate": metric(ceiling)} if ceiling else {}
    told |= {"memory_bandwidth": metric(copy)} if copy else {}
    program = None if moved is None else Fingerprint(digest="d", bytes_accessed=moved)
    return measured(lane, metrics=told | (metrics or {}), program=program, **fields)


def limited(*measurements, machine=MACHINE):
    return {row.case.workload.lane: row for row in limits.limited(cases(measurements), machine)}


@pytest.mark.parametrize(("device", "share", "binds"), [("gpu", 0.74, "compute"), ("cpu", 0.37, "neither")])
def test_on_a_gpu_no_convolution_by_a_fast_algorithm_is_the_limit(device, share, binds):
    """ViT-B/16 on an H200 reached 74 % of the best product, and 37 % of what a convolution seemed to reach."""
    rates = {"matrix_product_rate": metric(1e11 / 0.74), "compute_ceiling": metric(1e11 / 0.37)}
    (row,) = limited(counted(copy=1e12, metrics=rates, device=device)).values()
    assert (row.share, row.binds) == (pytest.approx(share), binds)
    # What convolves may be faster than any product, and that is no wrong measurement.
    fast = counted("jax", throughput=150.0, device=device)
    assert limits.above(cases([counted(metrics=rates, device=device), fast])) == []
    fast = counted("jax", throughput=300.0, device=device)
    assert len(limits.above(cases([counted(metrics=rates, device=device), fast]))) == 1


def test_vit_on_an_h200_is_bound_by_arithmetic_and_the_mlp_is_not():
    measurements = read(BASELINES / "nvidia-h200.json").measurements
    bound = {(row.workload.lane, row.workload.model): row.binds for row in limits.limited(cases(measurements), H200)}
    assert {bound[lane, "vit_b_16"] for lane in ("torch", "jax")} == {"compute"}
    assert "compute" not in {bound[lane, "mlp"] for lane in ("torch", "jax")}


def test_a_rows_share_is_of_the_best_lanes_ceiling_in_its_precision():
    rows = limited(
        counted("torch", ceiling=2e11),
        counted("jax", ceiling=4e11, batch_size=1),
        counted("torch-compile", ceiling=9e11, precision="bf16"),
    )
    assert rows["torch"].rate == pytest.approx(1e11)
    assert rows["torch"].share == rows["jax"].share == pytest.approx(0.25)
    assert rows["torch-compile"].share == pytest.approx(1 / 9)


def test_throughput_counts_samples_and_operations_calls():
    (row,) = limited(counted(ceiling=4e11, batch_size=8, throughput=100.0)).values()
    assert row.seconds == pytest.approx(0.08)
    assert row.rate == pytest.approx(1e9 / 0.08)


def test_no_lane_gets_credit_for_operations_that_another_one_does_without():
    rows = limited(counted("torch", flops=3e9), counted("jax", flops=1e9), counted("jax", flops=0.5e9, batch_size=2))
    assert rows["torch"].flops == 1e9


@pytest.mark.parametrize(
    ("ceiling", "copy", "moved", "binds"),
    [
        (1.5e11, 1e11, 1e8, "compute"),  # 0.67 and 0.1 of its time
        (4e11, 1.5e10, 1e8, "memory"),  # 0.25 and 0.67
        (4e11, 0.5e10, 1e8, "caches"),  # as long again as it took
        (4e11, 5e10, 1e8, "neither"),  # 0.25 and 0.2
        (4e11, 5e10, None, "unknown"),
        (1.5e11, 5e10, None, "compute"),  # whatever it moves
        (4e11, None, 1e8, "unknown"),
        (None, 5e10, 1e8, "unknown"),
    ],
)
def test_which_limit_binds(ceiling, copy, moved, binds):
    (row,) = limited(counted(ceiling=ceiling, copy=copy, moved=moved)).values()
    assert row.binds == binds


@pytest.mark.parametrize(("busy", "binds"), [(4e-3, "host"), (6e-3, "compute"), (None, "compute")])
def test_a_gpu_that_is_idle_for_most_of_a_call_waits_for_its_host(busy, binds):
    """Whatever the rest of the call would be bound by."""
    busy = {"device_time": metric(busy)} if busy else {}
    (row,) = limited(counted(ceiling=1.5e11, copy=1e11, moved=1e8, metrics=busy, device="gpu")).values()
    assert row.seconds == pytest.approx(0.01)
    assert row.binds == binds


def test_on_a_second_h200_the_mlp_waits_for_its_host():
    measurements = read(BASELINES / "nvidia-h200-layout.jsonl").measurements
    bound = {(row.workload.lane, row.workload.model): row.binds for row in limits.limited(cases(measurements), H200)}
    assert {bound[lane, "mlp"] for lane in ("torch", "torch-compile")} == {"host"}
    assert "host" not in {bound[lane, "resnet50"] for lane in ("torch", "torch-compile", "jax")}


def test_the_bytes_of_a_loop_are_unknown():
    (row,) = limited(counted(accumulate=2, batch_size=8)).values()
    assert row.moved is None


def test_a_row_above_its_ceiling_is_told_and_not_clipped():
    fine, fast = counted(ceiling=1.5e11), counted("jax", throughput=200.0, ceiling=1.1e11)
    assert not any("ceiling" in note for note in summary.every_note([fine, counted("jax")]))
    assert limited(fine, fast)["jax"].share == pytest.approx(4 / 3)
    (note,) = [note for note in summary.every_note([fine, fast]) if "ceiling" in note]
    assert note.startswith("1 row computes faster than the measured ceiling (133% of it: jax-mlp-inference-b1), so it")


def test_columns_that_nothing_is_known_for_are_absent():
    """Records of older versions have neither operations nor ceilings."""
    assert limits.table(cases([measured()]), MACHINE).rows == ()
    names = [column.name for column in limits.table(cases([counted(moved=None)]), MACHINE).columns]
    assert names == ["model", "mode", "batch", "lane", "FLOP a call", "achieved"]
    table = limits.table(cases([counted(ceiling=4e11, copy=1e10)]), MACHINE)
    assert [column.name for column in table.columns][6:] == ["of ceiling", "bytes a call", "intensity", "limit"]
    assert table.texts(table.rows[0])[4:] == ["1.00 GFLOP", "100 GFLOP/s", "25.0%", "95.4 MiB", "10.0", "memory"]
    assert "no data-sheet peak: a CPU" in table.missing[0]


@pytest.mark.parametrize("by", ["load", "neighbour"])
def test_a_ceiling_that_was_disturbed_is_told(by):
    """One that an earlier run found was not measured beside this row's."""
    others = AcceleratorState(processes=(AcceleratorProcess(7, None),))
    disturbed = {
        "load": {"metrics": {"other_load": metric(0.5)}},
        "neighbour": {"accelerator": (Moment(BEFORE, others),)},
    }
    busy = counted(ceiling=4e11, stages={"ceilings": 1.0}, **disturbed[by])
    (low, _) = limits.table(cases([busy]), MACHINE).missing
    assert low.startswith("a ceiling of fp32 that was measured undisturbed")
    for quiet in (dataclasses.replace(busy, stages={}), counted(ceiling=5e11, batch_size=2, stages={"ceilings": 1.0})):
        assert len(limits.table(cases([busy, quiet] if quiet.stages else [quiet]), MACHINE).missing) == 1


def test_mfu_is_of_the_data_sheet_of_a_known_gpu():
    table = limits.table(cases([counted(flops=6.7e11, precision="fp32", ceiling=9e13)]), H200)
    assert row(table)["MFU"] == pytest.approx(1.0)
    assert "NVIDIA H200 Tensor Core GPU data sheet" in table.caption
    other = dataclasses.replace(H200, accelerator="NVIDIA H200 of another kind")
    table = limits.table(cases([counted(ceiling=9e13)]), other)
    assert "MFU" not in row(table)
    assert table.missing[0].endswith("none of NVIDIA H200 of another kind")


@pytest.mark.parametrize(
    ("name", "precision", "flops"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12),
        ("NVIDIA H100 PCIe", "fp32", 51e12),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.5e12),
        ("Tesla T4", "bf16", None),
        ("NVIDIA GeForce RTX 4090", "tf32", 82.6e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "fp32", None),
    ],
)
def test_peaks_are_dense_and_of_the_very_gpu(name, precision, flops):
    found = peaks(name)
    assert (found.flops.get(precision) if found else None) == flops


def test_ceilings_and_limits_are_in_a_report_of_the_record_alone():
    from fwbench.report import contents

    found = {table.key for table in contents.tables(setting(counted(ceiling=4e11, copy=1e10)), None)}
    assert {"limits", "ceilings"} <= found
