"""The precision probe on the real lanes, on the device at hand."""

import functools
import platform
import re
from importlib.util import find_spec

import jax
import numpy as np
import pytest
import torch

from fwbench.frameworks import load
from fwbench.frameworks.precision import check, operands
from fwbench.machine import machine
from fwbench.meters.ceilings import images_and_kernel, matrices
from fwbench.models import CATALOG
from fwbench.models.project import complete
from fwbench.models.weights import draw
from fwbench.record.lanes import LANES
from fwbench.record.workload import PRECISIONS, Workload
from tests.programs import built
from tests.tensorflow import TENSORFLOW, XLA
from tests.unit.fakes import round_mantissa
from tests.unit.shared import extension

EVERY = ("torch", "torch-compile", "jax", TENSORFLOW, XLA)

pytestmark = [pytest.mark.optimised, pytest.mark.usefixtures("own_x64")]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("lane", EVERY)
def test_the_arithmetic_asked_for_is_in_force(lane, precision):
    workload = Workload(lane, "mlp", precision=precision, device=machine().device)
    framework = load(LANES[lane].adapter)
    model = complete(CATALOG["mlp"])
    reason = framework.unavailable(workload, model)
    if reason and "cannot use it" in reason:
        # One environment holds one CUDA, which is TensorFlow's or that of the others.
        pytest.skip(reason)
    if machine().device == "cpu" and precision == "tf32":
        assert reason == "a CPU has no TF32 arithmetic: ask for fp32 or bf16"
        return
    assert reason is None
    framework.build(workload, model, draw(model, framework.weight_shapes(model, model.sizes()), 0))
    given = operands()
    result = check(precision, given, framework.probe(workload, given))
    assert {name: verdict["arithmetic"] for name, verdict in result.items()} == dict.fromkeys(
        ("matmul", "convolution", "attention"), precision
    )


def test_a_kernel_of_attention_in_another_arithmetic_is_refused(monkeypatch):
    """PyTorch chooses it by itself, whatever is set for products and convolutions."""
    framework, given, workload = load(LANES["torch"].adapter), operands(), Workload("torch", "mlp")
    built(workload)
    whole = torch.nn.functional.scaled_dot_product_attention

    def rounding(*factors):
        return whole(*(torch.from_numpy(round_mantissa(factor.numpy(), 10)) for factor in factors))

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", rounding)
    with pytest.raises(ArithmeticError, match="the attention runs in tf32"):
        check("fp32", given, framework.probe(workload, given))


class FakeGpu:
    """A GPU as each framework describes it: of a compute capability, and no more."""

    platform, device_kind = "gpu", "Tesla T4"

    def __init__(self, capability):
        self.compute_capability = ".".join(map(str, capability))


@pytest.mark.parametrize(
    ("capability", "told"), [((7, 5), "Tesla T4 has no TF32 arithmetic: ask for fp32 or bf16"), ((8, 0), None)]
)
@pytest.mark.parametrize("lane", EVERY)
def test_a_gpu_without_tf32_is_told_before_anything_is_computed(monkeypatch, lane, capability, told):
    """Its products would be of IEEE float32, and the probe call them a fault."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr("fwbench.frameworks.jax.plugins.no_gpu", lambda: None)
    monkeypatch.setattr(jax, "local_devices", lambda backend: [FakeGpu(capability)])
    if lane.startswith("tensorflow"):
        import tensorflow as tf

        described = {"compute_capability": capability, "device_name": "Tesla T4"}
        monkeypatch.setattr("fwbench.ext.tensorflow.parallel.gpus", lambda: ["GPU:0"])
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: described)
    workload = Workload(lane, "mlp", precision="tf32", device="gpu")
    assert load(LANES[lane].adapter).unavailable(workload, complete(CATALOG["mlp"])) == told


def test_a_rank_of_pytorch_places_operands_on_its_own_gpu(monkeypatch):
    asked = []

    def device_of(workload, ranks=None):
        asked.append(ranks)
        return torch.device("cpu")

    monkeypatch.setattr("fwbench.frameworks.torch.adapter.device_of", device_of)
    framework, workload = load(LANES["torch"].adapter), Workload("torch", "mlp")
    monkeypatch.setattr(framework, "ranks", "the second of two")
    framework.probe(workload, operands())
    framework.matrix_product(workload, *matrices(8))
    framework.convolution(workload, *images_and_kernel(1))
    framework.copy(workload, 8)
    assert len(asked) >= 4
    assert set(asked) == {"the second of two"}


@pytest.fixture
def rehearsed(monkeypatch):
    """A GPU whose work the CPU does, for what asks a lane of its device."""
    monkeypatch.setattr("fwbench.frameworks.torch.adapter.device_of", lambda workload, ranks=None: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr("fwbench.frameworks.jax.adapter._device", lambda workload: jax.local_devices(backend="cpu")[0])
    if extension("tensorflow") and find_spec("tensorflow"):
        monkeypatch.setattr("fwbench.ext.tensorflow.adapter.device_of", lambda workload: "CPU:0")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("lane", EVERY)
def test_ceilings_are_of_a_true_product_convolution_and_copy(rehearsed, lane, device):
    workload = Workload(lane, "mlp", device=device)
    framework = load(LANES[lane].adapter)
    left, right = matrices(512)
    product, library = framework.matrix_product(workload, left, right)
    # By NumPy: pytest.approx takes seconds for a million numbers.
    np.testing.assert_allclose(_array(product()), left @ right, rtol=1e-4, atol=1e-12)
    of_cpu, of_gpu = {"torch": "MKL", "torch-compile": "MKL", "tensorflow": "oneDNN"}, "cuBLAS"
    expected = "XLA" if lane not in of_cpu else of_gpu if device == "gpu" else of_cpu[lane]
    assert library == expected or (device == "cpu" and platform.machine() != "x86_64")

    images, kernel = images_and_kernel(1)
    convolution, library = framework.convolution(workload, images, kernel)
    assert library == "XLA" or (library == "cuDNN") == (device == "gpu")
    found = _array(convolution())
    found = found if found.shape == images.shape else found.transpose(0, 2, 3, 1)
    # One place in the middle, and a corner, of which a border of zeros is a part.
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for row, column in ((9, 5), (0, 0)):
        patch = padded[0, row : row + 3, column : column + 3]
        wanted = np.einsum("hwi,oihw->o", patch, kernel)
        np.testing.assert_allclose(found[0, row, column], wanted, rtol=1e-4)

    copy, _ = framework.copy(workload, 1000)
    assert set(np.abs(_array(copy()))) == {1.0}
    assert _array(copy()).shape == (1000,)


@pytest.mark.parametrize("lane", EVERY)
def test_ceilings_are_of_the_arithmetic_that_is_asked_for(rehearsed, lane):
    workload = Workload(lane, "mlp", precision="bf16")
    product, _ = load(LANES[lane].adapter).matrix_product(workload, *matrices(64))
    assert "bfloat16" in str(product().dtype)


def _array(found):
    return np.asarray(found.cpu() if type(found).__module__ == "torch" else found)


@pytest.mark.parametrize(("precision", "wanted"), [("fp32", "HIGHEST"), ("tf32", "DEFAULT")])
def test_what_jax_asks_xla_for_on_a_gpu(precision, wanted):
    """Triton's kernels make TF32 of XLA's default alone: of HIGH, which JAX calls tensorfloat32, they make IEEE."""
    model, framework = CATALOG["cnn"], load(LANES["jax"].adapter)
    weights = draw(model, framework.weight_shapes(model, model.sizes()), 0)
    program = framework.build(Workload("jax", "cnn", precision=precision), model, weights)
    text = program.function.trace(*program.arguments).lower(lowering_platforms=("cuda",)).as_text()
    asked = set(re.findall(r"precision = \[([^\]]*)\]|precision<(\w+)>", text))
    assert {word for words in asked for word in re.findall(r"\w+", " ".join(words))} == {wanted}


@functools.cache
def trained(lane, precision, model):
    """By how much each weight changes in one step of SGD."""
    program, weights = built(Workload(lane, model, "train_step", 2, precision, optimizer="sgd", learning_rate=1.0))
    with program.session():
        program.compile()
        # Compiling may take a step.
        program.restart(weights)
        program.call_and_wait()
        after = program.weights()
    return np.concatenate([(after[name] - weights[name].astype(np.float64)).ravel() for name in sorted(weights)])


@pytest.mark.parametrize("model", ["mlp", pytest.param("cnn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("lane", ["torch", pytest.param("torch-compile", marks=pytest.mark.slow), *EVERY[2:]])
def test_a_step_in_fp64_is_computed_in_float64(lane, model):
    """In float32 any two lanes are apart by 1e-7 and more."""
    wanted = trained("torch", "fp64", model)
    apart = {
        precision: np.linalg.norm(trained(lane, precision, model) - wanted) / np.linalg.norm(wanted)
        for precision in ("fp64", "fp32")
    }
    assert apart["fp64"] < 1e-12
    assert apart["fp32"] > 1e-8
