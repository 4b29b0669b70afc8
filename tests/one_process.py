"""What tests need that run both frameworks in pytest's own process; to be imported before either of them."""

import gc
import os
from collections.abc import Iterator

import pytest

from fwbench.machine import machine
from fwbench.record.lanes import OWN

# JAX must leave PyTorch some of a GPU's memory. Read when JAX first runs.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

if machine().device == "cpu":
    # Or Inductor starts processes that each import PyTorch, to compile kernels of Triton's, which a CPU has none of.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # As workers have it: JAX's plugin for CUDA is there to compile for a GPU (tests/correctness/test_target.py), not to
    # look for one; beside PyTorch's CUDA libraries and without a driver, that can end the process.
    for variable in ("JAX_PLATFORMS", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"):
        os.environ.setdefault(variable, OWN["jax"].variables(1, "cpu")[variable])


@pytest.fixture
def quickly_compiled() -> Iterator[None]:
    """XLA hardly optimises what it compiles: for tests of what a program computes that runs a few times."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session", autouse=True)
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing compiled is left of another run, and in this one a program is compiled once, however many tests have it.

    Nor does a process wait for what is another's, or look again and again through all that the frameworks consist of.
    """
    import jax
    import torch

    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("jax")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    # With its plugins, which tests/correctness/test_target.py needs: the adapter leaves out those not loaded yet.
    jax.devices()
    # Inductor's may be shared by processes; JAX does not lock its own.
    run = tmp_path_factory.getbasetemp()
    run = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(run / "inductor")
    # OpenMP's threads spin while they wait, so parallel test processes that each take all cores hardly move.
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes))
    # A collection of garbage, of which a measurement begins with one, takes half a second over the frameworks' modules.
    gc.collect()
    gc.freeze()
    yield
    # Or libraries in C take all that is left at the end for leaks.
    gc.unfreeze()
