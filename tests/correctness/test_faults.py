"""Whose fault the frameworks' own exceptions are: the memory's, the compiler's, or the user's network's."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch
from torch._inductor.exc import InductorError

from fwbench import frameworks
from fwbench.frameworks.faults import faults, is_out_of_memory
from fwbench.models import CATALOG, ModelError
from fwbench.models.weights import canonical
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload

XlaError = jax.errors.JaxRuntimeError


def caused(error, cause):
    error.__cause__ = cause
    return error


def handled(error, before, *, hidden=False):
    """An error that was raised while another one was handled."""
    error.__context__, error.__suppress_context__ = before, hidden
    return error


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype("float32")),
        FULL,
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to ..."
        ),
        RuntimeError("CUDA error: out of memory"),
        torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        InductorError(FULL, None),
        InductorError(RuntimeError("CUDA error: out of memory"), None),
        XlaError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."),
        XlaError("INTERNAL: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        caused(ValueError("the network failed"), FULL),
        handled(ValueError("the network failed"), FULL),
        caused(RuntimeError("outer"), InductorError(caused(RuntimeError("inner"), FULL), None)),
    ],
)
def test_memory_that_ran_out_is_nobodys_fault(error):
    assert is_out_of_memory(error)
    for lane in ("torch", "jax", "noop"):
        framework = frameworks.load(OWN[lane].adapter)
        assert framework.is_out_of_memory(error)
        assert not framework.is_compilers_fault(error)
    with pytest.raises(type(error)), faults("the network"):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        XlaError("INTERNAL: an illegal memory access was encountered"),
        # Of a multiprocessor's memory: a kernel with smaller tiles would run.
        XlaError("RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 245760, available: 232448"),
        XlaError("NOT_FOUND: No valid config found!"),
    ],
)
def test_what_xla_raises_is_its_own_fault(error):
    jax_lane, torch_lane = (frameworks.load(OWN[lane].adapter) for lane in ("jax", "torch"))
    assert jax_lane.is_compilers_fault(error)
    assert not jax_lane.is_out_of_memory(error)
    assert not torch_lane.is_compilers_fault(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("CUDA error: out of memory, says the user's own check"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        InductorError(NotImplementedError("no such kernel"), None),
        handled(ValueError("the network failed"), FULL, hidden=True),
    ],
)
def test_every_other_error_is_the_networks(error):
    for lane in ("torch", "jax"):
        framework = frameworks.load(OWN[lane].adapter)
        assert not framework.is_out_of_memory(error)
        assert not framework.is_compilers_fault(error)
    with pytest.raises(ModelError, match="the network raised"), faults("the network"):
        raise error


def test_an_error_that_refers_to_itself_is_read_to_its_end():
    error, other = ValueError("one"), ValueError("other")
    error.__context__, other.__cause__ = other, error
    assert not is_out_of_memory(error)


@pytest.mark.parametrize("lane", ["torch", "torch-compile"])
@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_a_failure_of_cuda_is_not_blamed_on_the_network(lane, mode, monkeypatch):
    """It comes back with every call: made once more, without the compiler, the network would seem to have raised it."""
    framework = frameworks.load(OWN[lane].adapter)
    model = CATALOG["mlp"]
    workload = Workload(lane, "mlp", mode)
    program = framework.build(
        workload, model, canonical("drawn", model, framework.weight_shapes(model, model.sizes()), 0)
    )

    def fail(*_, **__):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    program.call = fail
    with pytest.raises(torch.AcceleratorError):
        program.step()


def reason(lane):
    return frameworks.load(OWN[lane].adapter).unavailable(Workload(lane, "mlp", device="gpu"), CATALOG["mlp"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch is for CPUs alone")
def test_torch_says_itself_why_it_cannot_use_a_gpu():
    assert "no NVIDIA driver" in reason("torch")
    assert "install a CUDA build" not in reason("torch")


def test_a_cuda_build_of_torch_is_advised_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "a build for CPUs alone; install a CUDA build of torch" in reason("torch")


@pytest.mark.parametrize(
    "error", [RuntimeError("Unable to initialize backend 'cuda': too old\nmore"), AssertionError()]
)
@pytest.mark.parametrize("installed", [True, False])
def test_jax_says_itself_why_it_cannot_use_a_gpu(monkeypatch, tmp_path, installed, error):
    def devices(platform):
        raise error

    plugins = tmp_path / "jax_plugins" / ("xla_cuda13" if installed else "other")
    plugins.mkdir(parents=True)
    (plugins / "__init__.py").touch()
    monkeypatch.setattr(jax, "devices", devices)
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: SimpleNamespace(submodule_search_locations=[tmp_path / name])
    )
    monkeypatch.setattr("fwbench.frameworks.jax.plugins.entry_points", lambda group: [])
    own = str(error).partition("\n")[0] or "AssertionError"
    told = own if installed else "it has no CUDA plugin; install fwbench[cuda]"
    assert reason("jax") == f"this machine has a GPU, but jax {jax.__version__} cannot use it: {told}"
