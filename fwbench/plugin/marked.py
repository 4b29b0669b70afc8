"""Tests with pytest-codspeed's marker and without the fixture `benchmark`: pytest-codspeed measures them as a whole.

In a duet, where that plugin is installed, their bodies are calls that take turns. Elsewhere the marker is that of
pytest-benchmark, which makes no benchmark of a test.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

# The names of pytest-codspeed's plugin, switched on or not, and of its markers.
_PLUGIN = "codspeed_plugin"
_MARKERS = ("benchmark", "codspeed_benchmark")


def adopt(item: pytest.Item) -> None:
    """Let a test that pytest-codspeed would measure as a whole use the fixture `benchmark`, which calls its body."""
    if not isinstance(item, pytest.Function) or not item.config.pluginmanager.hasplugin(_PLUGIN):
        return
    if {"benchmark", "codspeed_benchmark"} & {*item.fixturenames} or not any(map(item.get_closest_marker, _MARKERS)):
        return
    # Not in place: tests of one function share the list.
    item.fixturenames = [*item.fixturenames, "benchmark"]
    run = item.runtest

    def measure() -> None:
        benchmark: Any = item.funcargs["benchmark"]
        benchmark(_body(item, run))

    item.runtest = measure  # type: ignore[method-assign]


def _body(item: Any, run: Callable[[], None]) -> Callable[[], object]:
    """The test's function, or all of `run` where more than a call of it runs the test."""
    if inspect.iscoroutinefunction(item.obj) or type(item).runtest is not pytest.Function.runtest:
        return run
    return functools.partial(item.obj, **{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
