"""The models and modes that every proof runs over, on the device at hand, and which of them need no repeating.

No framework is imported before tests are collected: a process that only hands out tests to others needs none.
"""

import functools
from collections.abc import Callable, Iterator

import pytest

from fwbench.models import CATALOG
from tests.one_process import (  # noqa: F401 (fixtures and a hook are for pytest)
    free_programs,
    nothing_left,
    one_process,
    pytest_xdist_make_scheduler,
    quickly_compiled,
    two_blocks,
)
from tests.proving import records


@pytest.fixture(scope="session")
def unless_recorded(request: pytest.FixtureRequest) -> Callable[[str, str, Callable[[records.Full], bool]], None]:
    """Skips a test of a model where a full proof is recorded that states what the test is about.

    Made of the same networks, by the same proofs, with the same versions and on the same device, it would come out the
    same again.
    """
    full = functools.cache(records.full)

    def check(model: str, what: str, states: Callable[[records.Full], bool], framework: str = "jax") -> None:
        found = None if request.config.getoption("reprove") else full(model, framework)
        if found and states(found):
            pytest.skip(f"{what}: recorded in tests/proving/records for these sources and versions (--reprove repeats)")

    return check


# Of session scope, so that pytest runs all that concerns one model and mode in one go and each result is computed once.
@pytest.fixture(scope="session")
def proof(request: pytest.FixtureRequest, unless_recorded: Callable[..., None]) -> Iterator[object]:
    """The proof of a model in a framework and a mode, all of them parameters."""
    model, framework, mode = request.param

    def states(full: records.Full) -> bool:
        return any(row.mode == mode and row.holds for row in full.rows)

    unless_recorded(model, f"all of {model} in {framework} in mode {mode}", states, framework)
    import torchvision  # noqa: F401 (before TensorFlow, whose LLVM its compiler's would clash with)

    from tests.proving.float32 import SuiteProof, device_at_hand

    yield SuiteProof(CATALOG[model], mode, device_at_hand(), framework)
    # ViT-B/16's gradients in float64 take gigabytes.
    free_programs()


@pytest.fixture
def own_x64():
    """fp64 switches JAX's float64 on for the whole process."""
    import jax

    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
