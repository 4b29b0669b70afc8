"""What CUDA graphs and a GPU's arithmetic ask of the compiled lane, as far as a machine without a GPU can tell."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from fwbench.frameworks.torch import graphs
from fwbench.frameworks.torch.program import Placed, set_precision
from fwbench.record.workload import Workload
from tests import programs


def built(workload):
    return programs.built(workload)[0]


@pytest.mark.parametrize(
    ("lane", "device", "mode"),
    [
        ("torch", "cuda", None),
        ("torch-compile", "cuda", "reduce-overhead"),
        ("torch-compile", "cpu", "default"),
        ("torch-compile-max", "cuda", "max-autotune"),
        ("torch-compile-max", "cpu", "max-autotune-no-cudagraphs"),
    ],
)
def test_each_lane_compiles_in_its_mode_and_counts_on_graphs_on_a_gpu_alone(monkeypatch, lane, device, mode):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda call, mode: asked.append(mode) or call)
    program = built(Workload("torch", "mlp"))
    program.lane, program.device = lane, torch.device(device)
    program._compiled(program.module)
    assert asked == [mode] * bool(mode)
    assert (program.settings.get("compile_mode"), program.compiles) == (mode, bool(mode))
    assert program.may_replay == (device == "cuda" and lane != "torch")


@pytest.fixture
def replaying(monkeypatch):
    monkeypatch.setattr(Placed, "may_replay", True)


def test_parts_are_added_to_gradients_that_no_replay_overwrites(monkeypatch):
    workload = Workload("torch", "mlp", "train_step", 8, accumulate=4)
    expected = programs.outputs(built(workload), 3)
    monkeypatch.setattr(Placed, "may_replay", True)
    program = built(workload)
    own = [parameter.grad.data_ptr() for parameter in program.module.parameters()]
    np.testing.assert_array_equal(programs.outputs(program, 3), expected)
    assert [parameter.grad.data_ptr() for parameter in program.module.parameters()] == own
    # They were emptied after each step, or the next one would add to them.
    assert not any(parameter.grad.any() for parameter in program.module.parameters())


def test_without_parts_gradients_are_thrown_away(replaying):
    program = built(Workload("torch", "mlp", "train_step", 8))
    program.step()
    assert all(parameter.grad is None for parameter in program.module.parameters())


@pytest.fixture
def allocator(monkeypatch):
    """PyTorch's accounts of a GPU: 1 byte allocated, 2 at most, 3 reserved, 4 at most; and what was asked of it."""
    asked = []
    for number, name in enumerate(
        ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 1
    ):
        monkeypatch.setattr(torch.cuda, name, lambda device, number=number: number)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append("empty"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: asked.append("reset"))
    return asked


@pytest.fixture
def inductor(monkeypatch):
    """Sets how many CUDA graphs Inductor has recorded, one to run after the other, and how many it has skipped."""
    # Here, as each process that collects these tests would import Inductor.
    from torch._dynamo.utils import counters
    from torch._inductor import cudagraph_trees

    def set_to(recorded, skipped):
        manager = object.__new__(cudagraph_trees.CUDAGraphTreeManager)
        manager.roots = {}
        for number in range(recorded):
            node = object.__new__(cudagraph_trees.CUDAGraphNode)
            node.children = manager.roots
            manager.roots = {number: [node]}

        # As older versions have it: they do not choose the device themselves.
        def get_manager(device_index, create_if_none_exists=True):
            assert (device_index, create_if_none_exists) == (0, False)
            return manager if recorded else None

        monkeypatch.setattr(cudagraph_trees, "get_manager", get_manager)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setitem(counters["inductor"], "cudagraph_skips", skipped)

    return set_to


@pytest.mark.parametrize(
    ("mode", "recorded", "numbers", "asked"),
    [
        (None, 0, (1, 2), ["reset"]),
        ("default", 0, (1, 2), ["reset"]),
        ("reduce-overhead", 2, (3, 4), ["empty", "reset"]),
        # Inductor was asked for graphs and has skipped them all.
        ("reduce-overhead", 0, (1, 2), ["empty", "reset"]),
    ],
)
def test_a_replay_that_allocates_nothing_is_accounted_by_what_its_pool_reserves(
    allocator, inductor, mode, recorded, numbers, asked
):
    program = built(Workload("torch", "mlp"))
    program.device = torch.device("cuda")
    program.settings["compile_mode"] = mode
    inductor(recorded, 0)
    program.reset_peak_memory()
    assert allocator == asked
    assert (program.memory_in_use().value, program.peak_memory().value) == numbers
    assert ("reserved" in program.peak_memory().source) == (recorded > 0)


@pytest.mark.parametrize(
    ("recorded", "skipped", "told"),
    [
        (1, 0, "replayed (1)"),
        (2, 0, "replayed (2)"),
        (0, 2, "skipped (2)"),
        (1, 1, "replayed (1), skipped (1)"),
        (0, 0, "none recorded"),
    ],
)
def test_the_record_says_what_became_of_the_graphs(inductor, monkeypatch, recorded, skipped, told):
    program = built(Workload("torch-compile", "mlp"))
    program.settings["compile_mode"] = "reduce-overhead"
    inductor(recorded, skipped)
    program.fingerprint()
    assert program.settings["cudagraphs"] == told


def test_without_a_gpu_inductor_has_recorded_nothing():
    assert graphs.recorded() == 0


def test_compiling_is_timed_without_the_step(monkeypatch):
    program = built(Workload("torch-compile", "mlp"))
    monkeypatch.setattr(program, "step", lambda: None)
    spent = {"entire_frame_compile": 5.0, "backend_compile": 3.0, "total_wall_time": 9.0}
    monkeypatch.setattr("torch._dynamo.utils.calculate_time_spent", lambda: spent)
    times = program.compile()
    # Of nine seconds, the backward pass's compilation among them, two went into tracing.
    assert (times.trace, times.compile) == (2.0, 7.0)


@pytest.fixture
def precision():
    yield
    set_precision("fp32")


@pytest.mark.parametrize("name", ["fp32", "bf16", "tf32"])
def test_the_older_settings_of_the_arithmetic_can_be_read_and_say_the_same(precision, name):
    """Inductor of some versions reads them, and PyTorch refuses where the two differ."""
    set_precision(name)
    tf32 = name == "tf32"
    assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
    assert torch.backends.cuda.matmul.allow_tf32 is tf32
    assert torch.backends.cuda.matmul.fp32_precision == ("tf32" if tf32 else "ieee")
    assert torch.backends.cudnn.conv.fp32_precision == ("tf32" if tf32 else "ieee")
    assert torch.backends.mkldnn.fp32_precision == "ieee"


@pytest.mark.slow
def test_cudnns_older_setting_can_be_read_and_says_the_same():
    """In processes of their own: what was once set through the older setting alone can be read ever after."""
    script = """
import os, torch
from fwbench.frameworks.torch import graphs
from fwbench.frameworks.torch.program import set_precision
for name in ("fp32", "bf16", "tf32"):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, name
        continue
    set_precision(name)
    found = [torch.backends.cudnn.allow_tf32, torch.backends.cudnn.conv.fp32_precision]
    with torch.backends.cudnn.flags(enabled=True):
        pass
    assert found == [torch.backends.cudnn.allow_tf32, torch.backends.cudnn.conv.fp32_precision]
    print(name, *found, flush=True)
    # Not by taking down all of PyTorch.
    os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    told = ["fp32 False ieee", "bf16 False ieee", "tf32 True tf32"]
    assert done.stdout.splitlines() == told, done.stderr
