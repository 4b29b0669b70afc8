"""Published numbers stand beside one's own of the same workload, as printed and under their own name."""

import pytest

from fwbench.compare.cases import cases
from fwbench.ext.studies import presets
from fwbench.ext.studies.published import STUDIES, beside
from tests.unit.recorded import fitted, measured, metric
from tests.unit.report.parsing import values


def tables(*measurements):
    return {table.key: table for table in beside(cases(measurements))}


def own(table, column):
    return [row for row in values(table) if row[column] is not None]


def test_training_on_imagenet_100():
    assert tables(fitted("torch", model="vit_b_16", data="synthetic")) == {}
    table = tables(fitted("torch", model="vit_b_16", data="imagenet-100", epochs=(500.0, 400.0)))
    table = table["published-paper_training_h100"]
    assert len(table.rows) == 21
    (row,) = own(table, "epoch, yours")
    assert (row["model"], row["batch"], row["lane"]) == ("vit_b_16", 64, "torch")
    assert (row["epoch, yours"], row["epoch, published"]) == (400.0, 440.5)
    assert row["energy/epoch, published"] == pytest.approx(123_400)
    assert row["val. top-1, published"] == pytest.approx(0.899)
    assert table.missing == ("20 of 21 published rows have no measurement of yours beside them",)
    assert "another machine (NVIDIA H100)" in table.caption


def test_mnist_asks_for_the_same_optimizer_and_data():
    assert tables(fitted("jax", data="digits", optimizer="sgd"), fitted("jax", data="mnist")) == {}
    (row,) = own(tables(fitted("jax", data="mnist", optimizer="sgd"))["published-mnist_mlp"], "epoch, yours")
    assert (row["lane"], row["batch"]) == ("jax sgd", 64)
    assert (row["first epoch, yours"], row["first epoch, published"]) == (9.0, 29.49099)
    assert row["test top-1, published"] == 0.920857


def test_calls_stand_beside_calls_of_the_same_model_batch_size_and_lane_on_a_gpu():
    memory = {"device_peak_memory": metric(2.0**30), "latency_p50": metric(0.004)}
    given = {"model": "resnet50", "batch_size": 8, "throughput": 2000.0, "metrics": memory}
    assert tables(measured("jax", **given)) == {}
    table = tables(measured("jax", device="gpu", **given))["published-paper_inference_h100"]
    assert len(table.rows) == 32
    (row,) = own(table, "throughput/s, yours")
    assert (row["model"], row["batch"], row["lane"]) == ("resnet50", 8, "jax")
    assert (row["throughput/s, yours"], row["throughput/s, published"]) == (2000.0, 4647)
    assert (row["p50, yours"], row["p50, published"]) == (0.004, pytest.approx(1.7e-3))
    assert (row["memory, yours"], row["memory, published"]) == (2.0**30, pytest.approx(858e6))
    # Each cell keeps the unit that it was printed in.
    (texts,) = [table.texts(row) for row in table.rows if row.values[3] is not None]
    assert texts[-2:] == ["1.00 GiB", "858 MB"]


def test_the_small_cnns_rows_are_those_of_the_study_that_repeats_it():
    """Each of its frameworks stands beside the lane that compiles as it did."""
    (part,) = presets.STUDIES["simple-cnn"].parts
    measurements = [fitted(lane, model="cnn", data=part.settings.get("data", ("synthetic",))[0]) for lane in part.lanes]
    table = tables(*measurements)["published-simple_cnn_l4"]
    found = {row["lane"]: row for row in own(table, "training, yours")}
    assert {lane: (row["training, yours"], row["training, published"]) for lane, row in found.items()} == {
        "tensorflow-xla": (9.0, 90.88),
        "torch-compile": (9.0, 82.86),
        "jax": (9.0, 99.44),
    }
    assert found["torch-compile"]["VRAM peak, published"] == pytest.approx(6.69e9)
    assert table.missing == ()


def test_a_failed_or_another_lanes_workload_is_no_match():
    assert tables(measured("torch-compile", "resnet50", batch_size=8)) == {}
    assert tables(measured("torch", "resnet50", "train_step", batch_size=8)) == {}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.key)
def test_every_study_names_its_machine_and_every_row_reads(study):
    assert study.machine
    for row in study.rows():
        for number in study.numbers:
            assert float(row[number.column]) >= 0
