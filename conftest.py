"""What a checkout needs that is not installed: the plugin, and which tests a run leaves alone."""

from pathlib import Path

import pytest

# Tests that take long. They run where `-m` names their marker.
LONG = ("fuzz", "slow")
# Folders of tests that measure nothing.
OTHERS = ("correctness", "ext", "strangers", "training", "unit")

# pytest's `pytester` is for the tests of the plugin; only a root conftest.py may name it.
pytest_plugins = ["fwbench.plugin", "pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reprove", action="store_true", help="repeat also those proofs of which a valid record is kept")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # Correctness tests import frameworks; a process that waits for measurements must not hold their memory and threads.
    if config.getoption("benchmark_only") and collection_path.name in OTHERS:
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [marker for marker in LONG if marker not in config.option.markexpr]
    long = [item for item in items if any(map(item.get_closest_marker, left_out))]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
