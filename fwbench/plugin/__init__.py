"""The pytest plugin: its options, markers and fixtures, and the moment at which it becomes active.

pytest loads it in every project of an environment with fwbench, so it does and imports next to nothing until an
option of fwbench's is given or a test bears a marker of fwbench's. Then `fwbench.plugin.run` takes over. Otherwise only
`fwbench.plugin.waiting` looks at benchmarks, if there are any and a framework is imported.

PYTEST_DONT_REWRITE: a root conftest.py may name this module before or after pytest finds it by its entry point.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from fwbench.plugin import options

if TYPE_CHECKING:
    from fwbench.models.store import Proved
    from fwbench.plugin.run import Run
    from fwbench.plugin.session import Session
    from fwbench.record.measurement import Measurement
    from fwbench.record.workload import Workload

_RUN = pytest.StashKey["Run"]()

_MARKERS = (
    "fwbench(*models, modes, batch_sizes, lanes): measure these models; written by fwbench.benchmark.",
    "fwbench_proof(*models): prove that these models' networks compute the same; written by fwbench.proof.",
    "fwbench_fail(*limits): what fails a gate of this test, each as --fwbench-fail takes it.",
)

_SWITCHED_OFF = "fwbench cannot measure without pytest-benchmark, which -p no:benchmark switches off: leave that out."


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if options.given(config):
        active(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name in ("fwbench", "fwbench_proof"):
        marker = metafunc.definition.get_closest_marker(name)
        if marker and _can_measure(metafunc.config):
            try:
                run = active(metafunc.config)
            except pytest.UsageError as error:
                # A CollectError: pytest takes other errors for the module's fault and shows a traceback.
                raise pytest.Collector.CollectError(str(error)) from None
            run.spread(metafunc, marker)


def pytest_collection_finish(session: pytest.Session) -> None:
    if _can_measure(session.config) and any("benchmark" in getattr(item, "fixturenames", ()) for item in session.items):
        from fwbench.plugin import waiting

        session.config.pluginmanager.register(waiting, waiting.__name__)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_benchmark_compare_machine_info(
    config: pytest.Config, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
) -> None:
    """Add our fingerprint of the machine, as pytest-benchmark compares it with the one that our records hold.

    pytest-benchmark compares while it is configured, before any test that would activate this plugin is collected.
    """
    if "fwbench" in compared_benchmark["machine_info"]:
        from fwbench.plugin import saving

        saving.describe(machine_info, active(config).machine)


def active(config: pytest.Config) -> "Run":
    """The active run; the first call begins it.

    Raises:
        pytest.UsageError: an option cannot be used; one sentence.
    """
    if _RUN not in config.stash:
        if not _can_measure(config):
            raise pytest.UsageError(_SWITCHED_OFF)
        from fwbench.errors import UserError
        from fwbench.plugin.run import Run

        try:
            config.stash[_RUN] = Run(config)
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        config.pluginmanager.register(config.stash[_RUN], "fwbench.run")
    return config.stash[_RUN]


def _can_measure(config: pytest.Config) -> bool:
    """True if pytest-benchmark is installed and `-p no:benchmark` has not switched it off."""
    return config.pluginmanager.hasplugin("benchmark")


@pytest.fixture(scope="session")
def fwbench_session(pytestconfig: pytest.Config) -> "Session":
    """The run's workers and journal."""
    return active(pytestconfig).session


@pytest.fixture
def fwbench_workload(request: pytest.FixtureRequest) -> "Workload":
    """The workload that `fwbench.benchmark` has given to this test."""
    return active(request.config).workload(request.node)


@pytest.fixture
def fwbench_measure(request: pytest.FixtureRequest, benchmark: Any) -> "Callable[[], Measurement]":
    """Measure the test's workload in a fresh process and make its samples this benchmark's rounds.

    With benchmarks disabled it runs one cheap call instead. A workload that cannot run here skips the test; one that
    fails fails it, and its record is kept.
    """
    return active(request.config).measuring(request.node, benchmark)


@pytest.fixture
def fwbench_prove(request: pytest.FixtureRequest) -> "Callable[[], Proved]":
    """Prove in a fresh process that two frameworks' networks of the test's model compute the same thing."""
    if not _can_measure(request.config):
        pytest.fail(_SWITCHED_OFF, pytrace=False)
    from fwbench.plugin.items import proving

    run = active(request.config)
    return proving(request.node, run.project, run.selection.pythons)
