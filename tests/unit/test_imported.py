"""Which frameworks a process holds besides its lane's own, and what becomes of its memory."""

import dataclasses

import pytest

from fwbench.meters import imported
from fwbench.meters.imported import also_imported, with_others
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Metric, unavailable
from tests.unit.recorded import metric
from tests.unit.shared import needs

JAXS = {"numpy", "jax", "jaxlib", "flax"}


@pytest.mark.parametrize(
    ("lane", "before", "now", "found"),
    [
        ("jax", JAXS, JAXS, []),
        ("jax", JAXS, JAXS | {"torch", "torch.nn"}, ["torch"]),
        pytest.param("jax", JAXS, JAXS | {"torch", "tensorflow"}, ["torch", "tensorflow"], marks=needs("tensorflow")),
        # What its own framework brings, as TensorFlow JAX, and what it imports late.
        pytest.param("tensorflow", *[{"tensorflow", "jax"}] * 2, [], marks=needs("tensorflow")),
        ("torch-compile", {"numpy"}, {"numpy", "torch"}, []),
        # No framework: it stands behind the lane that prices the harness.
        ("torch", {"torch"}, {"torch", "numpy"}, []),
    ],
)
def test_a_framework_that_was_imported_beside_the_lanes_own_is_named(lane, before, now, found):
    assert also_imported(LANES[lane], before, now) == found


def test_a_framework_of_another_packages_lane_is_named(monkeypatch):
    other = dataclasses.replace(
        LANES["jax"], name="ort", framework="ort", distributions=("onnx-runtime", "onnx"), package="ort"
    )
    monkeypatch.setattr(imported, "LANES", {**LANES, "ort": other})
    assert also_imported(LANES["torch"], {"torch"}, {"torch", "onnx_runtime"}) == ["ort"]
    # Two lanes that need one distribution, as a second one for JAX would.
    second = dataclasses.replace(LANES["jax"], name="linen", framework="linen", package="linen")
    assert also_imported(second, {"numpy"}, JAXS | {"linen"}) == []


def test_the_hosts_memory_is_then_at_most_what_was_read_and_a_devices_is_its_own():
    metrics = {name: metric(2.0) for name in ("host_initial_memory", "host_peak_memory", "device_peak_memory")}
    found = with_others(metrics, ["torch"])
    assert {name for name, of in found.items() if of.at_most} == {"host_initial_memory", "host_peak_memory"}
    assert found["host_peak_memory"] == Metric(2.0, "a test, torch among them", at_most=True)
    none = {"host_peak_memory": unavailable("VmHWM", "no counter")}
    assert with_others(none, ["torch"]) == none
