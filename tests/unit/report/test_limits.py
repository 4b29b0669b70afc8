"""What a machine can do, and rows that are slower than it can, from records alone."""

from pathlib import Path

from fwbench.record.reading import read
from fwbench.report import limits, summary
from tests.unit.recorded import measured, metric

BASELINES = Path(__file__).parents[3] / ".benchmarks" / "baselines"


def rates(lane, product, ceiling, copy=None, **fields):
    """A measurement of a lane's ceilings."""
    told = {"matrix_product_rate": product, "compute_ceiling": ceiling, **({"memory_bandwidth": copy} if copy else {})}
    return measured(lane, metrics={name: metric(value) for name, value in told.items()}, **fields)


def test_each_lanes_own_stands_beside_the_best():
    given = [rates("torch", 1e11, 2e11), rates("jax", 4e11, 4e11, 1e10), rates("jax", 3e11, 3e11, batch_size=1)]
    table = limits.table(given)
    assert [table.texts(row) for row in table.rows] == [
        ["torch", "fp32", "100 GFLOP/s", "200 GFLOP/s", "50.0%", "-"],
        ["jax", "fp32", "400 GFLOP/s", "400 GFLOP/s", "100.0%", "10.0 GB/s"],
    ]
    assert limits.table([measured()]).rows == ()


def test_rows_that_are_slower_than_their_turns_are_told():
    """On a third H200 those that wait for their host were, and no other."""
    measurements = read(BASELINES / "nvidia-h200-lanes.jsonl").measurements
    (note,) = [note for note in summary.every_note(measurements) if "than their turns" in note]
    assert note.startswith("6 rows are slower than their turns (most: 1.79x, torch-cnn-inference-b32)")
    steady = [m for m in measurements if m.workload.model in ("resnet50", "vit_b_16")]
    assert not any("than their turns" in note for note in summary.every_note(steady))
