"""What the harness's tests share."""

import dataclasses
import functools
import gc
import sys
from importlib.metadata import entry_points

import pytest

from fwbench.frameworks import precision
from fwbench.machine import machine
from fwbench.meters import memory
from fwbench.record import lanes
from fwbench.suite.profiles import PROFILES
from fwbench.worker.process import facts
from tests.unit import fakes, nvml
from tests.unit.fakes import FakeClock


@pytest.fixture(scope="module", autouse=True)
def imported():
    """A collection of garbage, with which a measurement begins, takes half a second over all that tests have imported.

    What is there at the end of a module stays: the next one's collections need not walk it.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def without_waiting():
    """Measurements of fakes in this process compute the probe's products once, and wait for no framework's thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "reference", fakes.products)
        patch.setattr(facts, "operands", fakes.operands)
        patch.setattr(memory, "_GIVEN_BACK", 0.0)
        yield


# Packages with lanes that the environment has, as `make test` installs those of lanes/.
INSTALLED = {point.value for point in entry_points(group=lanes.GROUP)}


@functools.cache
def not_installed(group, path):
    """What distributions in these folders offer, less what the environment has; reading all of them takes a while."""
    return [each for each in entry_points(group=group) if each.value not in INSTALLED]


@pytest.fixture(autouse=True)
def own_lanes(monkeypatch):
    """fwbench's own lanes alone: those of installed packages are hidden from this process."""
    monkeypatch.setattr(lanes, "entry_points", lambda group: not_installed(group, tuple(sys.path)))
    known = lanes.LANES
    vars(known).pop("_all", None)
    yield
    vars(known).pop("_all", None)


@pytest.fixture
def without_gpu(monkeypatch):
    """A GPU that this machine may have is not there; this process may have looked for it before."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("fwbench.plugin.run.machine", machine.__wrapped__)


@pytest.fixture(scope="session")
def suites(request):
    """How many suites a simulation has: as many as show small errors where slow tests run, too, otherwise a fifth."""
    return 300 if "slow" in request.config.option.markexpr else 60


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def protocol():
    """Amounts that a fake clock counts easily; tests change what they are about."""
    return dataclasses.replace(
        PROFILES["quick"], warmup_iterations=3, warmup_time=0.0, min_rounds=5, max_time=0.0, percentile_time=0.0
    )


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory):
    """NVIDIA's NVML as a machine with two H100s shows it; tests/unit/nvml says how to use it."""
    found = nvml.compiler()
    if sys.platform != "linux" or not found:
        pytest.skip("the stand-in for NVIDIA's NVML is compiled by a C compiler on Linux, and there is none here")
    yield nvml.Stub(tmp_path_factory.mktemp("nvml"), found)
    nvml.close()
