"""The suite's axes: which tests spread over the frameworks, models and batch sizes that the options select."""

import pytest

from fwbench.plugin import parametrize, selection

pytest_plugins = ["fwbench.plugin"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("workloads")
    if marker:
        parametrize(metafunc, selection(metafunc.config).workloads(**marker.kwargs))
