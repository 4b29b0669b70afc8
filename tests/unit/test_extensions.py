"""The core without its extensions."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fwbench
from tests.unit.recorded import measured, saved, write
from tests.unit.shared import ALONE

PACKAGE = Path(fwbench.__file__).parent
HELP = """
import json
from fwbench.commands.cli import commands
from fwbench.commands.report import _writers
print(json.dumps([sorted(commands()), sorted(_writers())]))
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Runs Python on a copy of the package that has no folder `ext`; returns what it prints."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(PACKAGE, folder / "fwbench", ignore=shutil.ignore_patterns("ext", "__pycache__"))

    def run(*words, cwd=folder):
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=cwd,
            env={**variables, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_it_has_its_own_commands_and_formats(core):
    commands, formats = json.loads(core("-c", HELP))
    assert commands == ["audit", "compare", "doctor", "list", "measure", "prove", "report", "selftest"]
    assert formats == ["csv", "html", "markdown"]


def test_it_reports_in_the_formats_that_it_has(core, tmp_path):
    write(tmp_path / "run.json", saved(measured("torch"), measured("jax")))
    core("-m", "fwbench", "report", "run.json", "--format=markdown,csv", cwd=tmp_path)
    assert "torch" in (tmp_path / "report" / "tables.md").read_text()


def test_it_measures_a_plain_test(core, tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_sum(benchmark):\n    assert benchmark(sum, [1, 2]) == 3\n")
    core("-m", "pytest", *ALONE, "-q", "--benchmark-only", "--benchmark-json=run.json", cwd=tmp_path)
    assert [one["name"] for one in json.loads((tmp_path / "run.json").read_text())["benchmarks"]] == ["test_sum"]
