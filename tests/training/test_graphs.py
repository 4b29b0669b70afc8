"""What CUDA graphs and a GPU's arithmetic ask of the compiled lane, as far as a machine without a GPU can tell."""

import pytest
import torch

from fwbench import frameworks
from fwbench.frameworks.torch.program import Placed, set_precision
from fwbench.models import CATALOG
from fwbench.models.weights import canonical
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload


def built(workload):
    framework = frameworks.load(OWN[workload.lane].adapter)
    model = CATALOG[workload.model]
    weights = canonical("drawn", model, framework.weight_shapes(model, model.sizes()), workload.seed)
    return framework.build(workload, model, weights)


@pytest.fixture
def replaying(monkeypatch):
    monkeypatch.setattr(Placed, "replays", True)


def losses(program, steps=3):
    found = []
    for _ in range(steps):
        program.step()
        found.append(program.output().item())
    return found


def test_parts_are_added_to_gradients_that_no_replay_overwrites(monkeypatch):
    workload = Workload("torch", "mlp", "train_step", 8, accumulate=4)
    expected = losses(built(workload))
    monkeypatch.setattr(Placed, "replays", True)
    program = built(workload)
    own = [parameter.grad.data_ptr() for parameter in program.module.parameters()]
    assert losses(program) == expected
    assert [parameter.grad.data_ptr() for parameter in program.module.parameters()] == own
    # They were emptied after each step, or the next one would add to them.
    assert not any(parameter.grad.any() for parameter in program.module.parameters())


def test_without_parts_gradients_are_thrown_away(replaying):
    program = built(Workload("torch", "mlp", "train_step", 8))
    losses(program)
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


@pytest.mark.parametrize(
    ("mode", "numbers", "asked"), [(None, (1, 2), ["reset"]), ("reduce-overhead", (3, 4), ["empty", "reset"])]
)
def test_a_replay_that_allocates_nothing_is_accounted_by_what_its_pool_reserves(allocator, mode, numbers, asked):
    program = built(Workload("torch", "mlp"))
    program.device = torch.device("cuda")
    program.settings["compile_mode"] = mode
    program.reset_peak_memory()
    assert allocator == asked
    assert (program.memory_in_use().value, program.peak_memory().value) == numbers
    assert ("reserved" in program.peak_memory().source) == (mode is not None)


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
