"""How an engine is found among the installed packages."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from fwbench.errors import UserError
from fwbench.ext.cluster import engine as engines
from tests.ext.cluster.fake import FakeEngine


@pytest.fixture
def installed(monkeypatch):
    """Two packages, of which one is broken."""
    points = [
        EntryPoint("fake", "tests.ext.cluster.fake:FakeEngine", engines.GROUP),
        EntryPoint("broken", "tests.ext.cluster.no_such_module:Engine", engines.GROUP),
    ]
    monkeypatch.setattr(engines, "entry_points", lambda group: [point for point in points if point.group == group])


def test_an_installed_engine_is_made(installed):
    assert isinstance(engines.load("fake"), FakeEngine)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fakr", r"'fakr' is not installed here: `pip install fwbench-fakr` .*; .* the nearest is 'fake'$"),
        ("broken", r"'broken' cannot be loaded from 'tests.ext.cluster.no_such_module:Engine' \(No module named"),
    ],
)
def test_what_is_wrong_with_an_engine_is_one_sentence(installed, name, sentence):
    with pytest.raises(UserError, match=sentence):
        engines.load(name)


def test_a_run_that_is_not_spread_imports_no_engine():
    """Where `None` stands for a module, importing it raises."""
    code = "import sys; sys.modules['ray'] = sys.modules['fwbench_ray'] = None; import fwbench.plugin.run"
    subprocess.run([sys.executable, "-c", code], check=True)
