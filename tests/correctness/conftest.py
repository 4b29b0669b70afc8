"""The models and modes that every proof runs over, on the device at hand."""

import gc
import os
from collections.abc import Iterator

import pytest

# isort: off
import tests.one_process  # noqa: F401 (before the frameworks, which read variables when they are imported)

# isort: on
import jax
import torch

from fwbench.meters.memory import trim_heap
from fwbench.models import CATALOG
from fwbench.parity.case import MODELS
from fwbench.parity.float32 import SuiteProof, device_at_hand
from fwbench.parity.proof import modes

# With its plugins, which test_target.py needs: the adapter leaves out those that are not loaded yet.
jax.devices()

# OpenMP's threads spin while they wait, so parallel test processes that each take all cores hardly move.
torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))


# Of session scope, so that pytest runs all that concerns one model and mode in one go and each result is computed once.
@pytest.fixture(
    scope="session",
    params=[pytest.param((model, mode), id=f"{model}-{mode}") for model in MODELS for mode in modes(CATALOG[model])],
)
def proof(request: pytest.FixtureRequest) -> Iterator[SuiteProof]:
    model, mode = request.param
    yield SuiteProof(CATALOG[model], mode, device_at_hand())
    # ViT-B/16's gradients in float64 take gigabytes, and so do compiled programs that nobody will call again.
    jax.clear_caches()
    gc.collect()
    trim_heap()


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """JAX compiles a program once a run, however many tests come to it."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("jax")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def pytest_xdist_make_scheduler(config, log):
    """Under `-n`, one process has all of a model: results are computed once, and no two processes hold ViT-B/16."""
    from xdist.scheduler import LoadScopeScheduling

    class ByModel(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((model for model in MODELS if f"[{model}-" in nodeid), super()._split_scope(nodeid))

    return ByModel(config, log)
