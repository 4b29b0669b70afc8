"""What a benchmark takes over from an earlier one, and what it must find out itself."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from fwbench import frameworks
from fwbench.machine import nvml
from fwbench.machine.facts import Facts, asked
from fwbench.meters import ceilings as meter
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import CEILING, Metric
from fwbench.record.metrics import CEILINGS
from fwbench.record.workload import Workload
from fwbench.worker.process import facts, passes
from fwbench.worker.process.job import Job
from fwbench.worker.process.run import Measuring
from tests.unit.fakes import FakeFramework, FakeGpu, FakeProgram
from tests.unit.recorded import MACHINE

H100 = dataclasses.replace(MACHINE, device="gpu", accelerator="NVIDIA H100 80GB HBM3", driver="580")
VERSIONS = {"torch": "2", "jax": "1"}
CALM = AcceleratorState()
NEIGHBOUR, HEAT = (
    AcceleratorState(processes=(AcceleratorProcess(7, None),)),
    AcceleratorState(throttle_reasons=("heat",)),
)


class Metered(FakeProgram):
    """Its device draws 20 W idle, and `load` W more while it computes."""

    def __init__(self, clock, load=80.0):
        super().__init__(clock, duration=0.1)
        self.load = load

    def counter(self):
        return SimpleNamespace(name="a counter", fault="", read=self._joules)

    def _joules(self):
        return 20.0 * self.clock.now + self.load * 0.1 * (self.calls - len(self.pending))


class Lane(FakeFramework):
    """Says which settings are in force, and counts its probes."""

    def __init__(self, program, offered=None):
        super().__init__(program, offered=offered)
        self.settings, self.probes = {"matmul": "highest"}, 0

    def in_force(self, workload):
        return self.settings

    def probe(self, workload, operands):
        self.probes += 1
        return super().probe(workload, operands)


def zeros(*shape):
    """An array that takes no memory."""
    return np.broadcast_to(np.float32(0), shape)


@pytest.fixture
def bench(monkeypatch, clock, protocol, tmp_path):
    """Measure a lane's program in a process of its own, with the facts of earlier ones."""
    monkeypatch.setattr(facts, "WORTH", 0.0)
    # The largest would take a gigabyte.
    monkeypatch.setattr(meter, "matrices", lambda side: (zeros(side, side),) * 2)
    monkeypatch.setattr(meter, "images_and_kernel", lambda images: (zeros(images, 28, 28, 256), zeros(256, 256, 3, 3)))
    monkeypatch.setattr(Job, "counter", lambda job: job.program_.counter())
    monkeypatch.setattr("fwbench.meters.energy.time", clock)

    def measure(lane, name="torch", run="first", machine=H100, versions=VERSIONS, state=CALM, **fields):
        failing = fields.pop("failing", None)
        monkeypatch.setattr(frameworks, "load", lambda adapter: lane)
        monkeypatch.setattr("fwbench.worker.process.building.versions", lambda names: dict(versions))
        monkeypatch.setattr(passes.OtherLoad, "read", lambda self: Metric(0.0, "a test"))
        monkeypatch.setattr(Job, "program_", lane.program, raising=False)
        monkeypatch.setattr(nvml, "find", lambda number=0: FakeGpu(states=[state]))
        workload = Workload(name, "noop", device=machine.device, **fields)
        told = Facts(asked(tmp_path, run, machine), workload.id)
        model, amounts = CATALOG["noop"], dataclasses.replace(protocol, energy_time=2.0)
        found = Measuring(workload, LANES[name], model, amounts, lambda _: None, clock, told).run()
        assert (found.failure and found.failure.stage) == failing
        return found

    return measure


def test_the_arithmetic_is_probed_again_where_anything_differs_that_it_depends_on(bench, clock):
    lane = Lane(Metered(clock))
    first, second = bench(lane), bench(lane, batch_size=8, run="second")
    assert lane.probes == 1
    assert "found" not in first.parity["probe"]["matmul"]
    for name, verdict in second.parity["probe"].items():
        assert verdict["found"].startswith(f"in {first.workload.id} on ")
        assert {key: verdict[key] for key in ("error", "arithmetic")} == first.parity["probe"][name]
    another = dataclasses.replace(H100, driver="581")
    for probes, fields in enumerate(
        ({"machine": another}, {"versions": {"torch": "3"}}, {"name": "jax"}, {"name": "torch-compile"}), start=2
    ):
        bench(lane, **fields)
        assert lane.probes == probes
    # As a network's own code may do.
    lane.settings = {"matmul": "high"}
    bench(lane)
    assert lane.probes == 6


def test_a_variable_that_changes_programs_has_the_arithmetic_probed_again(bench, clock, monkeypatch):
    lane = Lane(Metered(clock))
    bench(lane, name="jax")
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    bench(lane, name="jax")
    assert lane.probes == 2
    # Each process has folders of its own.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    bench(lane, name="jax")
    assert lane.probes == 2


def test_another_precision_has_a_probe_of_its_own(bench, clock):
    lane = Lane(Metered(clock))
    bench(lane)
    # The lane computes in fp32 alone, which nobody notices without a probe.
    assert bench(lane, precision="bf16", failing="probe").samples == ()
    assert lane.probes == 2


def test_what_is_probed_in_no_time_is_probed_in_each_process(bench, clock, monkeypatch):
    monkeypatch.setattr(facts, "WORTH", 60.0)
    lane = Lane(Metered(clock))
    bench(lane)
    bench(lane)
    assert lane.probes == 2


def test_idle_power_is_measured_once_a_lane_and_run(bench, clock):
    def rests(found):
        assert found.metrics["power_idle"].value == pytest.approx(20.0)
        assert found.metrics["power_load"].value == pytest.approx(100.0, rel=0.01)
        assert found.metrics["energy_period"].value is not None
        return " in " not in found.metrics["power_idle"].source

    lane = Lane(Metered(clock))
    assert rests(bench(lane))
    begun = clock.now
    assert not rests(bench(lane, batch_size=8))
    # Latency, compiling and 2 s of load; no 3 s of rest.
    assert rests(bench(lane, run="second"))
    assert clock.now - begun > 3.0
    assert rests(bench(lane, name="jax"))
    assert not rests(bench(lane, run="second"))


def test_a_disturbed_idle_power_is_nobody_elses(bench, clock):
    lane = Lane(Metered(clock))
    bench(lane, state=NEIGHBOUR)
    assert " in " not in bench(lane).metrics["power_idle"].source


def test_a_program_that_draws_little_is_held_against_its_own_idle_power(bench, clock):
    bench(Lane(Metered(clock)))
    found = bench(Lane(Metered(clock, load=8.0)))
    assert " in " not in found.metrics["power_idle"].source
    assert found.metrics["energy_per_sample_net"].value == pytest.approx(8.0 * 0.1, rel=0.02)


def fast(clock, product=6e13):
    def offer(rate):
        return lambda amount: clock.advance(amount / rate)

    return {"product": offer(product), "convolution": offer(1e14), "copy": offer(4e12)}


def test_on_a_gpu_one_lane_measures_the_ceilings_and_the_others_a_product(bench, clock):
    first = bench(Lane(Metered(clock), fast(clock)))
    assert first.metrics.keys() >= set(CEILINGS)
    assert not bench(Lane(Metered(clock), fast(clock)), batch_size=8).metrics.keys() & set(CEILINGS)
    second = bench(Lane(Metered(clock), fast(clock, 5e13)), name="jax")
    assert second.metrics.keys() & set(CEILINGS) == {"matrix_product_rate"}
    assert second.value("matrix_product_rate") == pytest.approx(5e13)
    # In the next run nobody measures them, as long as nothing has changed.
    for name, expected in (("torch", set(CEILINGS)), ("jax", {"matrix_product_rate"})):
        found = bench(Lane(Metered(clock), fast(clock)), name=name, run="second")
        assert found.metrics.keys() & set(CEILINGS) == expected
        assert CEILING not in found.stages
        assert " on " in found.metrics["matrix_product_rate"].source
    assert CEILING in bench(Lane(Metered(clock), fast(clock)), run="third", versions={"torch": "3"}).stages
    # A lane that is alone in its run needs all of them.
    assert bench(Lane(Metered(clock), fast(clock)), name="jax", run="fourth").metrics.keys() >= set(CEILINGS)


def test_on_a_cpu_each_lane_measures_its_ceilings(bench, clock):
    for name in ("torch", "jax"):
        offered = {kind: lambda amount: clock.advance(amount / 1e11) for kind in ("product", "convolution", "copy")}
        found = bench(Lane(Metered(clock), offered), name=name, machine=MACHINE)
        assert found.metrics.keys() >= set(CEILINGS)


@pytest.mark.parametrize("by", [NEIGHBOUR, HEAT], ids=["neighbour", "heat"])
def test_ceilings_that_were_disturbed_hold_for_their_run_alone(bench, clock, by):
    stages = [
        bench(Lane(Metered(clock), fast(clock)), run=run, state=state).stages
        for state, run in ((by, "first"), (CALM, "first"), (CALM, "second"), (CALM, "third"))
    ]
    assert [CEILING in each for each in stages] == [True, False, True, False]


def test_ceilings_with_gaps_are_not_kept(bench, clock):
    offered = {**fast(clock), "copy": MemoryError("no room")}
    for run in ("first", "second"):
        found = bench(Lane(Metered(clock), offered), run=run)
        assert CEILING in found.stages
        assert found.metrics["memory_bandwidth"].value is None


@pytest.mark.parametrize(("device", "hold"), [("gpu", True), ("cpu", False)])
def test_ceilings_of_inference_hold_for_training_on_a_gpu(clock, protocol, device, hold):
    def conditions(**fields):
        workload = dataclasses.replace(Workload("jax", "mlp", device=device), **fields)
        return facts.conditions(Job(workload, LANES["jax"], CATALOG["mlp"], protocol, print), Lane(Metered(clock)))

    for other in ({"mode": "train_step"}, {"plain": True}):
        assert (conditions() == conditions(**other)) is hold
    assert conditions() == conditions(batch_size=8) != conditions(precision="bf16")
