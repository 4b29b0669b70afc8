"""Programs for GPUs that are not here: changes planted in real networks are named, and nothing runs on any device."""

import dataclasses
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import topologies
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from fwbench.compare.programs import changes, compare
from fwbench.frameworks.hlo import libraries, precisions
from fwbench.frameworks.jax.mlp import MLP
from fwbench.frameworks.jax.target import fingerprint as jax_fingerprint
from fwbench.frameworks.torch.target import fingerprint as torch_fingerprint
from fwbench.machine import targets
from fwbench.models import CATALOG
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.process.run import Measuring
from tests import programs

pytestmark = pytest.mark.optimised

compiles = pytest.mark.skipif(
    find_spec("jax_plugins") is None or find_spec("jax_plugins.xla_cuda13") is None, reason="install fwbench[target]"
)

STEP = Workload("jax", "mlp", "train_step", 64, target="h100")
# XLA takes seconds for the step of the optimizer, and less for the forward pass.
FORWARD = dataclasses.replace(STEP, mode="inference")


def built(workload):
    return programs.built(workload)[0]


def told(program, target="h100"):
    """Its fingerprint; the same network compiled again must not be remembered."""
    jax.clear_caches()
    found = program.fingerprint_for(target)
    assert isinstance(found, Fingerprint), found
    return found


def change(base, head):
    """What the gate says of two programs for a GPU, which are compiled on the CPU."""
    return changes(compare(base, head, "cpu"))


@pytest.fixture(scope="module", autouse=True)
def no_compilation_cache(one_process):
    """As in workers: what was compiled for a device that is not here cannot be read back."""
    jax.config.update("jax_enable_compilation_cache", False)
    reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    reset_cache()


@pytest.fixture(scope="module")
def step():
    """The MLP's training step as it is."""
    return told(built(STEP))


@pytest.fixture(scope="module")
def forward():
    """Its forward pass."""
    return told(built(FORWARD))


@compiles
def test_jax_one_program_is_the_same_twice_and_tells_what_the_gpu_will_do(step):
    assert compare(step, told(built(STEP)), "cpu")[0].kind == "same"
    assert step.processor == targets.title("h100") == "NVIDIA H100 80GB HBM3"
    assert step.compiler["options"] == "xla_gpu_enable_triton_gemm=false"
    # Forward, and backward for weights and, but for the first layer, inputs.
    assert (step.libraries, step.precisions) == ({"cublas$lt$matmul": 8}, {"float32 highest": 8})
    # Six parameters, twice as many moments, and the numbers of the step, of Adam's and of the schedule's: all given up.
    assert step.aliased == 3 * 6 + 3
    parts = step.memory_parts
    assert step.memory == parts["arguments"] + parts["outputs"] + parts["temporaries"] - parts["aliased"]
    parameters = CATALOG["mlp"].parameters * 4
    assert 3 * parameters <= parts["aliased"] <= 3 * parameters + 100
    assert step.absent["flops"] == "XLA states no costs for a device that is not here"


@compiles
def test_jax_a_dropped_donation(step):
    program = built(STEP)
    program.function = jax.jit(program._step)
    found = change(step, told(program))
    assert "21 arguments fewer whose buffer an output takes over (21 -> 0): a donation was dropped" in found
    assert "the compiler's memory +" in found
    assert "aliased -100 %" in found


@compiles
def test_jax_more_memory(forward, monkeypatch):
    call = MLP.__call__

    def sorted_first(self, x, **options):
        return call(self, jnp.sort(jnp.concatenate([x, x], 0), 0)[: len(x)], **options)

    monkeypatch.setattr(MLP, "__call__", sorted_first)
    head = told(built(FORWARD))
    assert head.memory > 1.02 * forward.memory
    found = change(forward, head)
    assert f"the compiler's memory {100 * (head.memory / forward.memory - 1):+.3g} % (temporaries +" in found


@compiles
def test_jax_what_the_gpu_would_make_of_float32_is_told(forward):
    found = change(forward, told(built(dataclasses.replace(FORWARD, precision="tf32"))))
    assert "products in float32 highest 3 -> 0" in found


@compiles
@pytest.mark.parametrize(
    "target", [pytest.param(target, marks=pytest.mark.slow if target != "h100" else ()) for target in targets.NAMES]
)
def test_jax_compiles_for_every_device_that_is_described(target):
    found = jax_fingerprint(jax.jit(lambda x: jnp.tanh(x @ x)), (jnp.ones((64, 64)),), target)
    assert found.processor == targets.title(target)
    assert found.libraries == {"cublas$lt$matmul": 1}


def measured(workload):
    protocol = dataclasses.replace(PROFILES["quick"], programs=True)
    lane, model = OWN[workload.lane], CATALOG[workload.model]
    return Measuring(workload, lane, model, protocol, lambda stage: None).run()


@compiles
def test_a_worker_builds_and_compiles_and_runs_nothing(forward):
    found = measured(FORWARD)
    assert found.failure is None
    assert list(found.stages) == ["build", "compile"]
    assert (found.samples, found.metrics) == ((), {})
    assert found.program == forward


def test_without_the_plugin_one_sentence_names_what_to_install(monkeypatch):
    def missing(**_):
        raise NotImplementedError("topology not implemented for cuda")

    monkeypatch.setattr(topologies, "get_topology_desc", missing)
    failure = measured(STEP).failure
    assert failure.kind == "unavailable"
    assert "install fwbench[target]" in failure.message


# A cuBLAS call, a fused cuDNN convolution with a bias, a product of XLA's own, and a kernel of neither.
OPTIMISED = """
  %x.1 = f32[8,16]{1,0} parameter(0)
  %half = bf16[16,16]{1,0} parameter(1)
  %custom-call.3 = (f32[8,16]{1,0}, s8[4194304]{0}) custom-call(%x.1, %w), custom_call_target="__cublas$lt$matmul", \
backend_config={"gemm_backend_config":{"precision_config":{"operand_precision":["HIGHEST","DEFAULT"]}}}
  %conv.1 = (f32[8,16]{1,0}, u8[0]{0}) custom-call(%x.1, %k, %b), operand_precision={high,high,default}, \
custom_call_target="__cudnn$convBiasActivationForward"
  ROOT %dot.1 = f32[16,16]{1,0} dot(%half, %half), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %sort.1 = f32[8,16]{1,0} custom-call(%x.1), custom_call_target="__gpu$TopK"
""".replace("\\\n", "")


def test_jax_precisions_and_libraries_are_read_from_what_xla_made():
    assert precisions(OPTIMISED) == {"bfloat16 default": 1, "float32 high": 1, "float32 highest/default": 1}
    assert libraries(OPTIMISED) == {"cublas$lt$matmul": 1, "cudnn$convBiasActivationForward": 1, "gpu$TopK": 1}


class Tied(torch.nn.Module):
    """Weights under two names, a buffer, a tensor that is neither, and inputs by name."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("mask", torch.ones(4, dtype=torch.bool))
        self.half = torch.tensor(0.5)

    def forward(self, *, query, key):
        return self.second(self.first(query) * self.mask * self.half) @ key.T


def test_torch_all_that_a_network_holds_is_found_on_the_gpu_that_is_not_here():
    module, inputs = Tied().eval(), {"query": torch.ones(2, 4), "key": torch.ones(3, 4)}
    found = torch_fingerprint(module, inputs, "h100")
    assert (found.operators["addmm"], found.operators["mm"], found.operators["mul"]) == (2, 1, 2)
    assert found.processor == "NVIDIA H100 80GB HBM3"
    # Of what stays on the CPU nothing has been moved or lost.
    assert {tensor.device.type for tensor in (*module.parameters(), *module.buffers())} == {"cpu"}
    assert module(**inputs).isfinite().all()


@pytest.mark.parametrize(
    ("precision", "target", "layout"),
    [
        # Milliseconds a call of ResNet-50 on an H200 in IEEE float32: 11.2, and 13.0 in channels_last.
        ("fp32", "h100", "contiguous"),
        ("fp64", "h100", "contiguous"),
        ("tf32", "h100", "channels_last"),
        ("bf16", "h100", "channels_last"),
        ("fp32", "", "channels_last"),
        ("bf16", "", "channels_last"),
    ],
)
def test_images_and_kernels_lie_as_the_device_computes_them_fastest(precision, target, layout):
    program = built(Workload("torch", "cnn", "inference", 2, precision=precision, target=target or None))
    assert program.settings["memory_format"] == layout
    lying = [*program.inputs.values(), *(weight for weight in program.module.parameters() if weight.ndim == 4)]
    assert len(lying) == 4
    for tensor in lying:
        assert tensor.is_contiguous() == (layout == "contiguous")
        assert tensor.is_contiguous(memory_format=torch.channels_last) == (layout == "channels_last")


def test_the_layout_of_a_gpu_changes_no_output(monkeypatch):
    def output():
        program = built(Workload("torch", "cnn", "inference", 2))
        with program.session():
            program.step()
        return program.output()

    expected = output()
    monkeypatch.setattr("fwbench.frameworks.torch.program.memory_format", lambda workload: torch.contiguous_format)
    np.testing.assert_allclose(output(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lane", ["torch", "torch-compile"])
def test_torch_dispatches_for_cuda_what_it_dispatches_on_the_cpu_of_a_network_without_kernels_of_their_own(lane):
    here = built(Workload("torch", "cnn", "inference", 8))
    with here.session():
        here.step()
        run = here.fingerprint()
    program = built(Workload(lane, "cnn", "inference", 8, target="h100"))
    there = told(program)
    assert (there.operators, there.dtypes, there.flops) == (run.operators, run.dtypes, run.flops)
    assert there.digest != run.digest
    program.module.to(memory_format=torch.channels_last)
    assert told(program).digest != there.digest


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (lambda out: out.t().contiguous().t(), "1 more clone"),
        (lambda out: out.double().float(), "float64 is new: "),
    ],
)
def test_torch_a_change_is_named(plant, sentence):
    program = built(Workload("torch", "mlp", "inference", 2, target="h100"))
    base = told(program)
    program.module.register_forward_hook(lambda module, given, out: plant(out))
    assert sentence in change(base, told(program))


def test_torch_says_what_it_cannot_tell():
    failure = measured(Workload("torch", "mlp", "train_step", 2, target="h100")).failure
    assert (failure.kind, "backward pass" in failure.message) == ("unavailable", True)

    class Reads(torch.nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    sentence = torch_fingerprint(Reads(), {"": torch.ones(3)}, "h100")
    assert sentence.startswith("what the network computes depends on its numbers")
