"""What JAX must be asked on a GPU, and what not: the peak of its memory, and when a step is done."""

import jax
import pytest

from fwbench import frameworks
from fwbench.meters.memory import memory
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from tests.programs import built


class Gpu:
    """Holds 10 B, took 100 B to build the program; a step takes 50 B for a while."""

    def __init__(self):
        self.peak = 100

    def step(self):
        self.peak = max(self.peak, 50)

    def memory_stats(self):
        return {"bytes_in_use": 10, "peak_bytes_in_use": self.peak, "bytes_limit": 60 * 2**30}


class NewerGpu(Gpu):
    def clear_memory_stats(self):
        self.peak = 10


class Cpu(NewerGpu):
    def memory_stats(self):
        return None

    def clear_memory_stats(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("device", "peak", "source"),
    [(Gpu(), 100, "of a fresh process"), (NewerGpu(), 50, "since clear_memory_stats"), (Cpu(), None, "allocator")],
)
def test_the_peak_starts_afresh_where_jax_can_do_that_and_says_so(device, peak, source):
    program, _ = built(Workload("jax", "mlp"))
    program.compile()
    program.device, program.devices.local = device, (device,)
    found = memory(program, "cpu", device.step)["device_peak_memory"]
    assert found.value == peak
    assert source in found.source
    # XLA takes no more than three quarters of a GPU, also without preallocation.
    assert ("of a pool of 60.0 GiB at most" in found.source) == (peak is not None)


@pytest.mark.parametrize(
    ("device", "error", "advised"),
    [
        (Gpu(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes"), True),
        (Gpu(), RuntimeError("INTERNAL: no"), False),
        (Cpu(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes"), False),
    ],
)
def test_where_memory_runs_out_the_pools_limit_and_how_to_raise_it_are_told(monkeypatch, device, error, advised):
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    told = frameworks.load(OWN["jax"].adapter).said(error)
    assert told.startswith(f"RuntimeError: {error}")
    advice = "XLA's pool takes 60.0 GiB at most, and XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 lets it take nearly all"
    assert (advice in told) == advised


def test_of_several_devices_the_largest_is_told_and_each_can_be_asked_for():
    program, _ = built(Workload("jax", "mlp"))
    small, large = NewerGpu(), NewerGpu()
    program.device, program.devices.local = small, (small, large)
    program.reset_peak_memory()
    large.peak = 70
    assert [peak.value for peak in program.peak_memories()] == [10, 70]
    assert program.peak_memory().value == 70
    large.memory_stats = lambda: {"bytes_in_use": 20}
    assert program.memory_in_use().value == 20


def test_the_whole_state_is_ready_with_the_loss():
    """A step waits for the loss alone; a bigger batch, so that an update would still be under way."""
    program, _ = built(Workload("jax", "mlp", "train_step", 256))
    program.compile()
    for _ in range(20):
        program.step()
        program.wait()
        assert all(leaf.is_ready() for leaf in program.state)
