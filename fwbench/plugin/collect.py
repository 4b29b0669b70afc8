"""Collects the project's tests and reports the models that they name. Run by `start`, with pytest's arguments.

On what was standard output it writes one JSON object: `root`, `path` (the folders of the user's modules), `models` as
JSON primitives, `trained` (the names of those that a test trains or proves), `suite` (whether a test measures the
suite's own models by naming none), `pythons` (the values of `--fwbench-python` in pytest's settings), `plain` (the ids
of plain tests), and `imported` (the folders of the user's repository from which something was imported). All that
pytest and the user's tests print goes to standard error.
"""

import os
import sys
from typing import Any

import pytest

from fwbench.models import CATALOG, Model
from fwbench.plugin import marked
from fwbench.plugin.plain import invocation, plain_tests
from fwbench.record.workload import TRAINING
from fwbench.worker.process.pipes import Pipes


class Collector:
    """A plugin that reads the marks of `@fwbench.benchmark` and `@fwbench.proof`, before any test is deselected."""

    def __init__(self) -> None:
        self.config: pytest.Config | None = None
        self.named: dict[str, Model] = {}
        self.trained: set[str] = set()
        self.suite = False
        self.plain: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember the plain tests, and the configuration, which knows the project's folder."""
        self.config = session.config
        self.plain = [test.name for test in plain_tests(session.items).values()]

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Remember the models that the test names."""
        marked.adopt(item)
        for mark in item.iter_markers():
            if mark.name not in ("fwbench", "fwbench_proof"):
                continue
            self.suite |= not mark.args
            for model in mark.args:
                named = CATALOG.get(model) if isinstance(model, str) else model
                if isinstance(named, Model):
                    self.named[named.name] = named
                    if mark.name == "fwbench_proof" or {*TRAINING} & {*mark.kwargs.get("modes", ())}:
                        self.trained.add(named.name)


def collect(arguments: list[str]) -> dict[str, Any]:
    """The models and plain tests of the project, and its folders, as JSON; a SystemExit if they cannot be collected."""
    collector = Collector()
    # Without capturing, so that the stacks of tests that hang are printed.
    code = pytest.main(["--collect-only", "-q", "--capture=no", *arguments], plugins=[collector])
    if collector.config is None or code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(int(code) or 1)
    config = collector.config
    return {
        # As bytes, as a path may not be UTF-8, and texts are made fit for records on their way.
        "root": list(os.fsencode(config.rootpath)),
        "path": [list(os.fsencode(folder)) for folder in (*config.getini("pythonpath"), config.rootpath)],
        "imported": [list(os.fsencode(folder)) for folder in invocation(config).imported],
        "plain": collector.plain,
        "models": [model.to_json() for model in collector.named.values()],
        "trained": sorted(collector.trained),
        "suite": collector.suite,
        "pythons": config.getoption("fwbench_python"),
    }


if __name__ == "__main__":
    Pipes().send(collect(sys.argv[1:]))
