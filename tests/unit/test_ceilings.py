"""What a machine can do: found by the lanes, kept between runs."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from fwbench.machine import last_cache
from fwbench.meters import ceilings as meter
from fwbench.meters.ceilings import ceilings, copied
from fwbench.meters.flops import model_flops
from fwbench.models import CATALOG, Model
from fwbench.models.inputs import normal
from fwbench.record.measurement import Metric
from fwbench.record.workload import Workload
from tests.unit.fakes import FakeFramework, FakeProgram

GIB = 2**30
MLP = Workload("torch", "mlp", device="cpu")


@pytest.fixture
def found(clock, monkeypatch):
    """The ceilings of a lane whose calls have these rates, and the amounts of work that were tried, by name."""

    # The largest would take a gigabyte.
    monkeypatch.setattr(meter, "matrices", lambda side: (np.broadcast_to(np.float32(0), (side, side)),) * 2)

    def measure(device="cpu", highest=None, **rates):
        tried = {name: [] for name in rates}

        def offer(name):
            def call(amount):
                tried[name].append(amount)
                clock.advance(amount / (rates[name](amount) if callable(rates[name]) else rates[name]))

            return call

        offered = {name: rate if isinstance(rate, Exception) else offer(name) for name, rate in rates.items()}
        framework = FakeFramework(offered=offered)
        return ceilings(framework, dataclasses.replace(MLP, device=device), clock, highest), tried

    return measure


def test_the_best_of_several_sizes_counts(found):
    """A library may be at its best only with large matrices, or only with those that a cache holds."""
    for best in (512, 1024, 2048):
        metrics, _ = found(product=lambda flops, best=best: 4e11 if flops == 2 * best**3 else 2e11)
        assert metrics["matrix_product_rate"].value == pytest.approx(4e11)
        assert metrics["matrix_product_rate"].operation.startswith(f"fp32 product of {best} x {best}, the best of ")


def test_a_fast_convolution_is_the_ceiling_and_no_rate_of_products(found):
    metrics, tried = found(product=1e11, convolution=1.5e11)
    assert metrics["matrix_product_rate"].value == pytest.approx(1e11)
    assert metrics["compute_ceiling"].value == pytest.approx(1.5e11)
    assert "3x3 convolution of 2 x 28 x 28 x 256" in metrics["compute_ceiling"].source
    # 20 ms at the products' rate.
    assert tried["convolution"][0] == pytest.approx(1e11 * 0.02, rel=0.2)
    assert found(product=1e11, convolution=0.5e11)[0]["compute_ceiling"].value == pytest.approx(1e11)


def test_slow_machines_are_not_kept_long(found, clock):
    _, tried = found(product=1e9, convolution=1e9)
    assert set(tried["product"]) == {2 * 512**3}
    assert tried["convolution"] == []
    begun = clock.now
    found(product=4e10, convolution=4e10, copy=1e10)
    assert clock.now - begun < 1.5
    assert max(found(product=1e14)[1]["product"]) == 2 * 8192**3


def test_a_gpu_is_given_large_products_alone(found):
    assert set(found(device="gpu", product=6e13)[1]["product"]) == {2 * 4096**3, 2 * 8192**3}


def test_a_single_call_in_peace_is_enough(found):
    """Whatever disturbs the others makes them slower."""
    calls = iter([1e9, 1e10, 1e11] + [1e10] * 1000)
    assert found(product=lambda _: next(calls))[0]["compute_ceiling"].value == pytest.approx(1e11)


def test_the_first_call_starts_threads_and_does_not_count(found):
    calls = iter([1e15] + [1e10] * 1000)
    assert found(copy=lambda _: next(calls))[0]["memory_bandwidth"].value == pytest.approx(1e10)


def test_a_copy_reads_and_writes(found):
    metrics, tried = found(copy=1e10)
    assert metrics.keys() == {"memory_bandwidth"}
    assert metrics["memory_bandwidth"].value == pytest.approx(1e10)
    assert f"{tried['copy'][0] / 2**21:.0f} MiB" in metrics["memory_bandwidth"].source


@pytest.mark.parametrize(("memory", "mebibytes"), [(143 * GIB, 4096), (16 * GIB, 1024)])
def test_a_gpu_copies_for_longer_than_a_call_costs(found, monkeypatch, memory, mebibytes):
    monkeypatch.setattr(meter.nvml, "find", lambda: SimpleNamespace(memory=memory))
    metrics, tried = found(device="gpu", copy=4e12)
    assert tried["copy"][0] == 2 * mebibytes * 2**20
    assert f"copy of {mebibytes} MiB" in metrics["memory_bandwidth"].source


@pytest.mark.parametrize(
    ("cache", "memory", "size"),
    [
        (0, 16 * GIB, 2**26),  # nobody tells of a cache
        (2**25, 16 * GIB, 2**27),  # four times
        (2**29, 16 * GIB, 2**28),  # of a whole host
        (2**25, GIB, 2**26),  # of a small machine a sixteenth
    ],
)
def test_no_cache_holds_what_is_copied(cache, memory, size):
    assert copied(cache, memory) == size


def test_the_last_cache_is_the_largest(tmp_path):
    assert last_cache(tmp_path) == 0
    for number, size in enumerate(["48K", "2048K", "32768K", "unknown"]):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n")
    assert last_cache(tmp_path) == 2**25


def test_what_fails_is_absent_with_its_reason_and_loses_nothing_else(found):
    metrics, _ = found(product=1e11, convolution=MemoryError("no room\nfor it"), copy=RuntimeError("no copy"))
    assert metrics["compute_ceiling"].value == pytest.approx(1e11)
    assert metrics["compute_ceiling"].source.endswith("; a convolution failed: MemoryError: no room")
    assert "failed" not in metrics["compute_ceiling"].operation
    assert metrics["memory_bandwidth"].reason == "RuntimeError: no copy"


def test_beside_a_faster_lane_a_lane_has_its_largest_product_alone(found):
    metrics, tried = found(device="gpu", highest=2e14, product=6e13, convolution=1e14, copy=4e12)
    assert metrics.keys() == {"matrix_product_rate"}
    assert metrics["matrix_product_rate"].value == pytest.approx(6e13)
    assert set(tried["product"]) == {2 * 8192**3}
    assert tried["convolution"] == tried["copy"] == []
    # What is faster than the ceiling is the ceiling.
    metrics, _ = found(device="gpu", highest=5e13, product=6e13)
    assert metrics["compute_ceiling"].value == pytest.approx(6e13)


class Counted(FakeProgram):
    def __init__(self, clock, flops) -> None:
        super().__init__(clock)
        self.flops = flops

    def forward_flops(self):
        if isinstance(self.flops, Exception):
            raise self.flops
        return self.flops


def test_operations_are_the_models_own_whatever_a_lane_counts(clock):
    program = Counted(clock, 1.0)
    macs = CATALOG["mlp"].macs
    inference, training = (
        model_flops(
            dataclasses.replace(MLP, mode=mode, batch_size=8, accumulate=2, remat=True), CATALOG["mlp"], program
        )
        for mode in ("inference", "train_step")
    )
    assert inference.value == 2 * macs * 8
    assert training.value == 3 * inference.value


def test_operations_of_a_model_without_a_figure_are_counted_in_the_traced_program(clock):
    own = Model("mlp", inputs=normal("n"), axes={"n": (4, 8)}, torch="a:b")
    assert model_flops(MLP, own, Counted(clock, 100.0)).value == 100.0
    # A rank's program has a slice of the batch alone.
    spread = model_flops(dataclasses.replace(MLP, batch_size=2, devices=2), own, Counted(clock, 100.0))
    assert spread.reason == "a program over several devices is not traced; state the model's macs"
    assert model_flops(dataclasses.replace(MLP, mode="train_step"), own, Counted(clock, 100.0)).value == 300.0
    # A figure is of the first sizes alone.
    stated = Model("mlp", inputs=normal("n"), axes={"n": (4, 8)}, torch="a:b", macs=7)
    assert model_flops(MLP, stated, Counted(clock, 100.0)).value == 14.0
    assert model_flops(dataclasses.replace(MLP, batch_size=2, devices=2), stated, Counted(clock, 100.0)).value == 28.0
    assert model_flops(dataclasses.replace(MLP, axes=(("n", 8),)), stated, Counted(clock, 100.0)).value == 100.0
    for flops, reason in [
        (None, "state the model's macs"),
        (0.0, "state the model's"),
        (ValueError("no"), "ValueError"),
    ]:
        found = model_flops(MLP, own, Counted(clock, flops))
        assert found == Metric(None, found.source, found.reason)
        assert reason in found.reason
