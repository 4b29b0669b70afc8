"""What tests need if they run the frameworks in pytest's own process. Import this module before any framework.

The conftest.py of each folder with such tests imports all of it. One run may have tests of several folders.
"""

import functools
import gc
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.record.lanes import OWN

# JAX must leave PyTorch some of a GPU's memory. It reads this variable when it first runs.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

if machine().device == "cpu":
    # Otherwise Inductor starts processes that each import PyTorch to compile Triton's kernels, of which a CPU has none.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # As in workers: JAX's plugin for CUDA must not look for a GPU. Beside PyTorch's CUDA libraries and without a driver
    # that can end the process. The plugin only compiles for a GPU (tests/correctness/test_target.py).
    for variable in ("JAX_PLATFORMS", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"):
        os.environ.setdefault(variable, OWN["jax"].variables(1, "cpu")[variable])


@pytest.fixture(autouse=True)
def quickly_compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let XLA optimise little: tests check what a program computes, and run it only a few times.

    The marker `optimised` keeps what is measured as it is measured.
    """
    import jax

    jax.config.update("jax_disable_most_optimizations", not request.node.get_closest_marker("optimised"))
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session", autouse=True)
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile each program once in a run, however many tests use it, and take none from another run.

    Test processes do not wait for each other, and do not collect garbage among the frameworks' modules again and again.
    """
    _begin(tmp_path_factory.getbasetemp())
    yield
    # Otherwise libraries in C take all objects that are left at the end for leaks.
    gc.unfreeze()


def free_programs() -> None:
    """Give back the memory of compiled programs that nobody will call again, and of other garbage."""
    import jax

    from fwbench.meters.memory import trim_heap

    jax.clear_caches()
    # The last weights that a proof has drawn.
    if case := sys.modules.get("fwbench.ext.proofs.case"):
        case._weights.cache_clear()
    gc.collect()
    trim_heap()


@pytest.fixture
def two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give PyTorch's ViT-B/16 two blocks: twelve with their gradients and Adam's moments take 1.3 GB."""
    import torchvision

    sizes = {"patch_size": 16, "num_layers": 2, "num_heads": 12, "hidden_dim": 768, "mlp_dim": 3072}
    few_blocks = functools.partial(torchvision.models.VisionTransformer, **sizes)
    monkeypatch.setattr(torchvision.models, "vit_b_16", few_blocks)


@pytest.fixture
def freed() -> Iterator[None]:
    """Free a large test's programs at its end instead of its module's."""
    yield
    free_programs()


# Bytes of memory. A smaller process keeps what it has compiled: other tests run the same operators.
_LARGE = 2 << 30


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Free the programs of a test module at its end, once the process has been large."""
    yield
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > _LARGE:
        free_programs()


# Cached, so that it runs once, though the fixtures of several folders call it.
@functools.cache
def _begin(folder: Path) -> None:
    import jax
    import torch
    import torchvision  # noqa: F401 (before TensorFlow, whose LLVM its compiler's would clash with)

    jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    # Load JAX's plugins now: tests/correctness/test_target.py needs them, and the adapter leaves out those not loaded.
    jax.devices()
    # Processes may share Inductor's cache. JAX does not lock its own, so that each process has one.
    run = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(run / "inductor")
    # OpenMP's threads spin while they wait, so parallel test processes that each take all cores hardly move.
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes))
    # A measurement begins with a garbage collection, which takes half a second over the frameworks' modules.
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config, log):
    """Under `-n`, one process runs all proofs of a model, or all tests of another file, which share computed results.

    So no two processes hold ViT-B/16. Files of many tests begin first, so that no process waits for one at the end.
    """
    from xdist.scheduler import LoadScopeScheduling

    models = list(CATALOG)

    class ByModel(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            if "correctness" not in file:
                return file
            return next((model for model in models if f"[{model}-" in nodeid), file)

    return ByModel(config, log)
