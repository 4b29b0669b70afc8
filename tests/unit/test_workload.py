import dataclasses
import json

import pytest

from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import Failure, Measurement, Metric, Moment, unavailable
from fwbench.record.workload import Workload


def test_id_names_what_identifies_and_no_default_precision():
    assert Workload("jax", "resnet50", batch_size=8).id == "jax-resnet50-inference-b8"
    assert Workload("jax", "resnet50", batch_size=8, precision="bf16").id == "jax-resnet50-inference-b8-bf16"
    assert Workload("jax", "mlp", call="module").id == "jax-mlp-inference-b1-module"


def test_id_does_not_depend_on_the_device():
    assert Workload("torch", "mlp", device="gpu").id == Workload("torch", "mlp", device="cpu").id


@pytest.mark.parametrize(
    ("fields", "subject"),
    [
        ({}, "mlp"),
        ({"devices": 2}, "mlp on 2 devices"),
        ({"axes": (("length", 128), ("width", 64)), "devices": 4}, "mlp length 128 width 64 on 4 devices"),
    ],
)
def test_the_subject_names_axes_and_several_devices(fields, subject):
    assert Workload("torch", "mlp", batch_size=8, **fields).subject == subject


@pytest.mark.parametrize(
    ("field", "value"),
    [("batch_size", 0), ("batch_size", True), ("batch_size", 1.5), ("device", "tpu")],
)
def test_an_impossible_field_is_one_sentence(field, value):
    with pytest.raises(ValueError, match=repr(value)):
        dataclasses.replace(Workload("torch", "mlp"), **{field: value})


def test_a_bound_survives_json():
    bound = Metric(8.0, "here", at_most=True)
    record = json.loads(json.dumps(bound.to_json("device_peak_memory")))
    assert Metric.from_json(record) == bound


def test_a_measurement_survives_json():
    crowded = AcceleratorState(throttle_reasons=(), processes=(AcceleratorProcess(7, None),))
    hot = AcceleratorState(used_memory=8, throttle_reasons=("thermal limit",))
    measurement = Measurement(
        Workload("torch", "mlp", batch_size=8),
        samples=(0.1 + 0.2, 1e-9),
        processes=({"latency": 0.1}, {"latency": 1 / 3}),
        training={"epochs": [{"seconds": 0.1}], "losses": [0.3]},
        metrics={
            "throughput": Metric(4.0, "here"),
            "energy_per_sample": unavailable("there", "no meter"),
        },
        accelerator=(Moment("before", crowded), Moment("after", hot)),
        settings={"layout": "NHWC", "cpus": [0, 1], "z": None, "a": 1},
        stages={"build": 0.5},
        overhead_s=0.01,
        start_s=0.001,
        versions={"torch": "2"},
        failure=Failure("crashed", "killed", "latency", "tail"),
    )
    record = json.loads(json.dumps(measurement.to_json()))
    assert Measurement.from_json(record) == measurement
    assert json.dumps(Measurement.from_json(record).to_json()) == json.dumps(measurement.to_json())
    assert measurement.to_json()["samples"] is measurement.samples, "thousands of them are copied"
    assert record["metrics"] == {
        "throughput": {"value": 4.0, "unit": "1/s", "direction": "higher", "source": "here", "reason": None},
        "energy_per_sample": record["metrics"]["energy_per_sample"] | {"value": None, "reason": "no meter"},
    }


def test_a_metric_that_the_table_does_not_list_cannot_be_written():
    with pytest.raises(ValueError, match=r"metric 'latency' is not in METRICS"):
        Measurement(Workload("torch", "mlp"), metrics={"latency": Metric(0.1, "here")}).to_json()


def test_a_metric_has_a_value_or_a_reason():
    with pytest.raises(ValueError, match="either"):
        Metric(None, "nowhere")
    with pytest.raises(ValueError, match="either"):
        Metric(0.0, "here", reason="none")


def test_a_record_from_before_there_were_targets_is_for_the_device_at_hand():
    fields = Workload("jax", "mlp").to_json()
    assert fields.pop("target") is None
    workload = Workload.from_json(fields)
    assert (workload, workload.id) == (Workload("jax", "mlp"), "jax-mlp-inference-b1")
    there = dataclasses.replace(workload, target="h100")
    assert there != workload
    assert there.id == "jax-mlp-inference-b1-h100"
    assert Workload.from_json(json.loads(json.dumps(there.to_json()))) == there


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("samples", [0.1, "fast"], "samples"),
        ("samples", {"a": 1}, "samples"),
        ("overhead_s", True, "overhead_s"),
        ("ranks", [{"rank": 0.5, "host": "a", "device": "b"}], "ranks: rank"),
        ("failure", {"kind": "splendid", "message": "x"}, "failure: kind"),
        ("processes", [{"latency": None}], "processes"),
        ("wings", 2, "wings"),
    ],
)
def test_json_that_is_no_measurement_is_refused_by_its_place(field, value, place):
    with pytest.raises(TypeError, match=place):
        Measurement.from_json({**Measurement(Workload("jax", "mlp")).to_json(), field: value})


def test_a_failure_that_was_written_before_it_had_a_signal_is_read():
    old = {"kind": "crashed", "message": "the worker was killed by SIGKILL", "stage": "latency", "detail": "last words"}
    found = Measurement.from_json({"workload": {"lane": "jax", "model": "mlp"}, "failure": old})
    assert (found.failure.message, found.failure.signal) == (old["message"], None)
