"""Whose fault the frameworks' own exceptions are: the memory's, the compiler's, or the user's network's."""

import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed, Unsupported
from torch._inductor import config as inductor
from torch._inductor.exc import InductorError

from fwbench import frameworks
from fwbench.frameworks.faults import faults, is_out_of_memory, memory_asked
from fwbench.models import CATALOG, ModelError
from fwbench.models.inputs import image, tokens, too_large
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from tests.programs import built
from tests.tensorflow import needs_tensorflow

XlaError = jax.errors.JaxRuntimeError


def caused(error, cause):
    error.__cause__ = cause
    return error


def handled(error, before, *, hidden=False):
    """An error that was raised while another one was handled."""
    error.__context__, error.__suppress_context__ = before, hidden
    return error


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


GIB = 2**30


# What is said when memory runs out, as PyTorch 2.15, JAX 0.12 and NumPy 2.5 say it, and how much was asked for.
@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (MemoryError("no room"), None),
        (np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype("float32")), 4096 * GIB),
        (FULL, 2 * GIB),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                "to allocate 4503599627370496 bytes. Error code 12 (Cannot allocate memory)"
            ),
            2**52,
        ),
        (RuntimeError("std::bad_alloc"), None),
        (RuntimeError("CUDA error: out of memory"), None),
        (
            torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
            None,
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), None),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), None),
        (InductorError(FULL, None), 2 * GIB),
        (InductorError(RuntimeError("CUDA error: out of memory"), None), None),
        (BackendCompilerFailed(print, FULL, None), 2 * GIB),
        (XlaError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."), 16 * GIB),
        (XlaError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3.50GiB."), 3.5 * GIB),
        (XlaError("RESOURCE_EXHAUSTED: Out of memory allocating 281474976710656 bytes."), 2**48),
        (XlaError("INTERNAL: CUDA_ERROR_OUT_OF_MEMORY: out of memory"), None),
        (caused(ValueError("the network failed"), FULL), 2 * GIB),
        (handled(ValueError("the network failed"), FULL), 2 * GIB),
        (caused(RuntimeError("outer"), InductorError(caused(RuntimeError("inner"), FULL), None)), 2 * GIB),
    ],
)
def test_memory_that_ran_out_is_nobodys_fault(error, asked):
    assert is_out_of_memory(error)
    assert memory_asked(error) == asked
    for lane in ("torch", "jax", "noop"):
        framework = frameworks.load(LANES[lane].adapter)
        assert framework.is_out_of_memory(error)
        assert not framework.is_compilers_fault(error)
    with pytest.raises(type(error)), faults("the network"):
        raise error


class OpError(Exception):
    """TensorFlow's exceptions are known by the name of the class that they come of."""


class ResourceExhaustedError(OpError):
    pass


# As TensorFlow 2.21 says it on a CPU, operator by operator and compiled by XLA, and its GPU allocator.
@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (
            "{{function_node __wrapped__Fill_device_/job:localhost/replica:0/task:0/device:CPU:0}} OOM when allocating "
            "tensor with shape[1048576,4194304] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by "
            "allocator mklcpu [Op:Fill] name: ",
            2**44,
        ),
        (
            "OOM when allocating tensor with shape[64,32] and type bfloat16 on /device:GPU:0 by allocator GPU_0_bfc",
            4096,
        ),
        ("OOM when allocating tensor with shape[8] and type double on /device:GPU:0 by allocator GPU_0_bfc", 64),
        ("OOM when allocating tensor with shape[8] and type resource on /device:GPU:0 by allocator GPU_0_bfc", None),
        ("Out of memory while trying to allocate 128.00TiB. [Op:__inference_<lambda>_14]", 2**47),
        ("failed to allocate memory [Op:AddV2]", None),
    ],
)
def test_tensorflows_memory_too(message, asked):
    error = ResourceExhaustedError(message)
    assert is_out_of_memory(error)
    assert memory_asked(error) == asked
    assert not is_out_of_memory(ResourceExhaustedError("RESOURCE_EXHAUSTED: Shared memory size limit exceeded"))


FRAMEWORKS = {
    "torch": lambda: torch.empty(1 << 50),
    "jax": lambda: jnp.zeros((1 << 50,)),
    "tensorflow": lambda: tensorflow().zeros([1 << 50]),
    "tensorflow-xla": lambda: tensorflow().function(lambda: tensorflow().zeros([1 << 50]), jit_compile=True)(),
    "numpy": lambda: np.empty(1 << 50, np.float32),
}


def tensorflow():
    from fwbench.ext.tensorflow.imported import tf

    return tf


@pytest.mark.parametrize(
    "name",
    [
        # TensorFlow tries again for ten seconds; its words are held in the test above.
        pytest.param(name, marks=[needs_tensorflow, pytest.mark.slow] if name.startswith("tensorflow") else ())
        for name in FRAMEWORKS
    ],
)
def test_each_framework_says_itself_how_much_it_asked_for(name):
    """In their own words of today, whatever these are."""
    with pytest.raises(
        (RuntimeError, MemoryError, *([tensorflow().errors.OpError] if "tensor" in name else []))
    ) as raised:
        FRAMEWORKS[name]()
    assert is_out_of_memory(raised.value)
    assert memory_asked(raised.value) == 1 << 52
    said = frameworks.load(LANES[name if name in LANES else "noop"].adapter).said(raised.value)
    assert said.startswith(f"{type(raised.value).__name__}: ")
    assert "{{" not in said


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
    jax_lane, torch_lane = (frameworks.load(LANES[lane].adapter) for lane in ("jax", "torch"))
    assert jax_lane.is_compilers_fault(error)
    assert not jax_lane.is_out_of_memory(error)
    assert not torch_lane.is_compilers_fault(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("CUDA error: out of memory, says the user's own check"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        handled(ValueError("the network failed"), FULL, hidden=True),
    ],
)
def test_every_other_error_is_the_networks(error):
    for lane in ("torch", "jax"):
        framework = frameworks.load(LANES[lane].adapter)
        assert not framework.is_out_of_memory(error)
        assert not framework.is_compilers_fault(error)
    with pytest.raises(ModelError, match="the network raised"), faults("the network"):
        raise error


def test_an_error_that_refers_to_itself_is_read_to_its_end():
    error, other = ValueError("one"), ValueError("other")
    error.__context__, other.__cause__ = other, error
    assert not is_out_of_memory(error)


class CppCompileError(RuntimeError):
    output = "In file included from x.cpp:1:\nx.cpp:2:10: fatal error: Python.h: No such file or directory\ncut off\n"


# What says why `torch.compile` failed, and what is to be told of it.
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InductorError(NotImplementedError("no such kernel\nmore"), None), "NotImplementedError: no such kernel"),
        (BackendCompilerFailed(print, ValueError("no such layout"), None), "ValueError: no such layout"),
        (
            BackendCompilerFailed(print, InductorError(CppCompileError("C++ compile error"), None), None),
            "CppCompileError: x.cpp:2:10: fatal error: Python.h: No such file or directory",
        ),
        (
            Unsupported("Data-dependent branching\n  Explanation: Detected `if x > 0`.\n  Hint: another\n"),
            "Unsupported: Data-dependent branching (Detected `if x > 0`)",
        ),
        (
            caused(RuntimeError("outer"), InductorError(RuntimeError("g++ is not found"), None)),
            "RuntimeError: g++ is not found",
        ),
    ],
)
def test_a_failure_of_torch_compile_is_told_by_the_innermost_compiler(error, told):
    framework = frameworks.load(LANES["torch-compile"].adapter)
    assert framework.is_compilers_fault(error)
    assert framework.said(error) == f"torch.compile failed with {told}"


@pytest.mark.slow
@pytest.mark.parametrize("cxx", ["broken", "missing"])
def test_a_cpp_compiler_that_fails_is_quoted(tmp_path, monkeypatch, cxx):
    compiler = tmp_path / "g++"
    if cxx == "broken":
        # Inductor asks for the version first.
        said = "case $* in *--version*) exit 0;; esac; echo 'x.cpp:1: fatal error: no space left' >&2; exit 1"
        compiler.write_text(f"#!/bin/sh\n{said}\n")
        compiler.chmod(0o755)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    factor = 2.0 if cxx == "broken" else 3.0
    with inductor.patch({"cpp.cxx": (str(compiler),)}), pytest.raises(InductorError) as raised:
        torch.compile(lambda x: torch.relu(x) * factor + 1)(torch.ones(64))
    torch._dynamo.reset()
    said = frameworks.load(LANES["torch-compile"].adapter).said(raised.value)
    assert said.startswith("torch.compile failed with ")
    assert ("x.cpp:1: fatal error: no space left" if cxx == "broken" else f"('{compiler}',)") in said


@pytest.mark.parametrize("lane", ["torch", "torch-compile"])
@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_a_failure_of_cuda_is_not_blamed_on_the_network(lane, mode, monkeypatch):
    """It comes back with every call: made once more, without the compiler, the network would seem to have raised it."""
    program, _ = built(Workload(lane, "mlp", mode))

    def fail(*_, **__):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    program.call = fail
    with pytest.raises(torch.AcceleratorError):
        program.step()


def reason(lane):
    return frameworks.load(LANES[lane].adapter).unavailable(Workload(lane, "mlp", device="gpu"), CATALOG["mlp"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch is for CPUs alone")
def test_torch_says_itself_why_it_cannot_use_a_gpu():
    assert "no NVIDIA driver" in reason("torch")
    assert "install a CUDA build" not in reason("torch")


def test_a_cuda_build_of_torch_is_advised_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
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
    monkeypatch.setattr("fwbench.frameworks.jax.plugins.registered", frozenset)
    monkeypatch.setattr("fwbench.frameworks.jax.plugins.ctypes.CDLL", lambda name: None)
    own = str(error).partition("\n")[0] or "AssertionError"
    told = own if installed else "it has no CUDA plugin; install fwbench[cuda]"
    assert reason("jax") == f"this machine has a GPU, but jax {jax.__version__} cannot use it: {told}"


# In a process of its own, as JAX starts its plugins once: one that its log alone tells of, beside those installed here.
_PLUGIN = """
import ctypes, pathlib, sys, tempfile
from types import ModuleType
from fwbench.frameworks.jax import plugins
for name in plugins._names():
    sys.modules[name] = ModuleType(name)
    sys.modules[name].initialize = lambda: None
folder = tempfile.mkdtemp()
package = pathlib.Path(folder, "jax_plugins", "xla_cuda99")
package.mkdir(parents=True)
package.joinpath("__init__.py").write_text("def initialize():\\n    raise RuntimeError('cuDNN is too old')\\n")
sys.path.insert(0, folder)
loaded = ctypes.CDLL
def library(name, *rest, **named):
    if name != "libcuda.so.1":
        return loaded(name, *rest, **named)
    if here:
        return None
    raise OSError(name)
ctypes.CDLL = library
for here in (False, True):
    print(plugins.no_gpu())
"""


def test_what_jax_only_logs_of_its_plugin_is_the_reason():
    """And without libcuda nothing starts it: it would ask NVML for the driver, and end the process by SIGSEGV."""
    done = subprocess.run([sys.executable, "-c", _PLUGIN], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["the driver's libcuda.so.1 is not found", "cuDNN is too old"], done.stderr


def test_a_number_beyond_a_table_is_said_with_the_largest_that_the_inputs_hold():
    no_row = too_large({"words": tokens(6, vocabulary=20), "picture": image(2, 2, 3)})
    with pytest.raises(ModelError) as raised, faults("the network", no_row):
        torch.nn.Embedding(10, 2)(torch.tensor([19]))
    assert str(raised.value).startswith("the network raised IndexError: ")
    assert "; its inputs hold numbers up to 19: " in str(raised.value)
    with pytest.raises(ModelError) as raised, faults("the network", no_row):
        torch.ones(2) @ torch.ones(3)
    assert "inputs hold" not in str(raised.value)
    assert too_large({"picture": image(2, 2, 3)}) == ""
