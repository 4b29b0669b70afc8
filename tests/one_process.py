"""What tests need that run the frameworks in pytest's own process; to be imported before any of them.

The conftest.py of each folder with such tests takes all of it, and one run may have tests of both folders.
"""

import functools
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fwbench.machine import machine
from fwbench.models import CATALOG
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
    _begin(tmp_path_factory.getbasetemp())
    yield
    # Or libraries in C take all that is left at the end for leaks.
    gc.unfreeze()


def free_programs() -> None:
    """Give back the memory of compiled programs that nobody will call again, and of other garbage."""
    import jax

    from fwbench.meters.memory import trim_heap

    jax.clear_caches()
    gc.collect()
    trim_heap()


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Frees a module's programs at its end."""
    yield
    free_programs()


# Once, though it is a fixture of two folders.
@functools.cache
def _begin(folder: Path) -> None:
    import jax
    import torch

    jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    # With its plugins, which tests/correctness/test_target.py needs: the adapter leaves out those not loaded yet.
    jax.devices()
    # Inductor's may be shared by processes; JAX does not lock its own.
    run = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(run / "inductor")
    # OpenMP's threads spin while they wait, so parallel test processes that each take all cores hardly move.
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes))
    # A collection of garbage, of which a measurement begins with one, takes half a second over the frameworks' modules.
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config, log):
    """Under `-n`, one process has all of a model's proofs, and all of any other file, where much is computed once.

    No two processes hold ViT-B/16. What comes first in the command begins first, however few tests it has.
    """
    from xdist.scheduler import LoadScopeScheduling

    models = list(CATALOG)

    class ByModel(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            if "correctness" not in file:
                return file
            return next((model for model in models if f"[{model}-" in nodeid), file)

    config.option.loadscopereorder = False
    return ByModel(config, log)
