"""Plain tests: they use the fixture `benchmark` and name no model of fwbench's. In a duet they take turns, too."""

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from fwbench import git
from fwbench.errors import Absent
from fwbench.gates import Gate
from fwbench.gates.options import of_test
from fwbench.models.importing import INSTALLED
from fwbench.plugin.items import is_kept_from_running
from fwbench.record.plain import PlainTest
from fwbench.worker.turns.plain import Invocation


def announce(config: pytest.Config, gate: Gate, items: Iterable[pytest.Item], tell: Callable[[str], None]) -> bool:
    """Announce plain tests to a duet, which judges them instead of running them; return whether there are any."""
    found = {item: test for item, test in plain_tests(items).items() if not is_kept_from_running(item)}
    expected = {test: of_test(item, "duet") for item, test in found.items()}
    gate.expect_plain(expected, invocation(config))
    for item, test in found.items():
        equip(item, functools.partial(gate.judge_plain, test, tell))
    return bool(found)


def plain_tests(items: Iterable[pytest.Item]) -> dict[pytest.Item, PlainTest]:
    """The plain tests among these."""
    plain: dict[pytest.Item, PlainTest] = {}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if isinstance(item, pytest.Function) and "benchmark" in fixtures and "fwbench_measure" not in fixtures:
            plain[item] = PlainTest(item.nodeid)
    return plain


def invocation(config: pytest.Config) -> Invocation:
    """The call of pytest, which each side repeats."""
    repository, called = git.top(config.rootpath), config.invocation_params
    top = config.rootpath if isinstance(repository, Absent) else repository
    options, places = list(map(str, called.args)), list[str]()
    # Searched from the end, as an option's value may look like a place: `-k tests tests`.
    for place in reversed(config.known_args_namespace.file_or_dir):
        for index in range(len(options) - 1, -1, -1):
            if options[index] == place:
                places.insert(0, options.pop(index))
                break
    return Invocation(top, called.dir, options, places, list(dict.fromkeys(_imported(top))))


def _imported(top: Path) -> Iterator[Path]:
    """Folders of the user's repository from which modules were imported, or would be."""
    environments = tuple(map(os.path.realpath, (sys.prefix, sys.base_prefix)))

    def own(place: str) -> bool:
        path = Path(os.path.realpath(place))
        inside = path.is_relative_to(top) and INSTALLED.isdisjoint(path.parts)
        return inside and not any(path.is_relative_to(each) and Path(each) != top for each in environments)

    yield from (Path(os.path.realpath(entry)) for entry in sys.path if entry and own(entry))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." not in name and isinstance(file, str) and os.path.isabs(file) and own(file):
            path = Path(os.path.realpath(file))
            yield path.parent.parent if path.stem == "__init__" else path.parent


def equip(item: pytest.Item, judge: Callable[[], bool]) -> None:
    """Make a test call `judge`, which may fail or skip it; only if `judge` returns True, its own function runs."""
    setup, runtest = item.setup, item.runtest

    def run() -> None:
        if judge():
            setup()
            runtest()

    # The test's fixtures are needed only if it runs in the usual way.
    item.setup = lambda: None  # type: ignore[method-assign]
    item.runtest = run  # type: ignore[method-assign]
