"""The suite's axes: which tests spread over the frameworks, models and batch sizes that the options select."""

from pathlib import Path

import pytest

from fwbench.plugin import parametrize, selection

pytest_plugins = ["fwbench.plugin"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("workloads")
    if marker:
        parametrize(metafunc, selection(metafunc.config).workloads(**marker.kwargs))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # Correctness tests import frameworks; a process that waits for measurements must not hold their memory and threads.
    if config.getoption("benchmark_only") and collection_path.name in ("correctness", "training", "unit"):
        return True
    return None
