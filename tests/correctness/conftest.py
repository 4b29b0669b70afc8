"""The models and modes that every proof runs over, on the device at hand, and which of them need no repeating.

No framework is imported before tests are collected: a process that only hands out tests to others needs none.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fwbench.models import CATALOG
from fwbench.models.project import complete
from tests.one_process import *  # noqa: F403 (fixtures and a hook are for pytest)
from tests.one_process import free_programs
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

    yield SuiteProof(complete(CATALOG[model]), mode, device_at_hand(), framework)
    # ViT-B/16's gradients in float64 take gigabytes.
    free_programs()


@pytest.fixture
def own_x64():
    """fp64 switches JAX's float64 on for the whole process."""
    import jax

    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own project, in which modules of networks are looked for."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pair(project: Path) -> Callable[..., object]:
    """Writes two networks named `Net` to the project, and returns the model that names them."""
    import fwbench
    from fwbench.models.model import LOSSES
    from tests.correctness.planted import written

    def write(torch: str, port: str, framework: str = "jax", loss: str = "cross_entropy", **fields: object) -> object:
        networks = {name: written(source, project) for name, source in (("torch", torch), (framework, port))}
        losses = loss if loss in LOSSES else {name: path.replace(":Net", f":{loss}") for name, path in networks.items()}
        return fwbench.Model("twins", **{"inputs": fwbench.image(9, 8, 3), "loss": losses, **fields, **networks})

    return write
