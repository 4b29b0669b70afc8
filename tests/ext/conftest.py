"""What the tests of extensions share with each other, and with those of the core."""

import pytest

from fwbench.commands.cli import main
from fwbench.commands.collecting import Collected
from fwbench.ext.causes import searching
from fwbench.models import Model
from fwbench.models.inputs import normal
from fwbench.models.project import Project
from tests.unit.conftest import clock, imported, nvml_stub, own_lanes, protocol, without_gpu  # noqa: F401 (fixtures)
from tests.unit.faults.conftest import fault  # noqa: F401 (fixtures)
from tests.unit.report.conftest import golden, hostile, report, reported  # noqa: F401 (fixtures)


@pytest.fixture
def command(capsys):
    """Runs fwbench; returns what it printed, or where it ended with 4 the one sentence that it wrote."""

    def run(*arguments, code=0):
        assert main([*arguments]) == code
        said = capsys.readouterr()
        if code == 4:
            assert said.err.count("\n") == 1
        return said.err if code == 4 else said.out

    return run


@pytest.fixture
def searches(monkeypatch):
    """Let `bisect` and `explain` begin in a folder, whose project has a model `tiny`."""

    def begin(folder):
        model = Model("tiny", inputs=normal(4), torch="mine.net:Net")
        project = Project(folder, (folder,))
        project.add([model])
        monkeypatch.chdir(folder)
        monkeypatch.setattr(searching, "collected", lambda collecting: Collected(project, [model], frozenset(), []))
        monkeypatch.setattr(searching, "has_framework", lambda framework: True)

    return begin
