"""The frameworks in this process."""

import gc
from collections.abc import Iterator

import pytest

from tests.one_process import one_process, pytest_xdist_make_scheduler, quickly_compiled  # noqa: F401 (for pytest)


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Gives back the memory of a module's compiled programs, which nobody will call again."""
    yield
    import jax

    from fwbench.meters.memory import trim_heap

    jax.clear_caches()
    gc.collect()
    trim_heap()
