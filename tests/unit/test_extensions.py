"""The core without its extensions."""

import ast
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import fwbench
from tests.unit.recorded import measured, saved, write
from tests.unit.shared import ALONE, finish

PACKAGE = Path(fwbench.__file__).parent
TESTS = Path(__file__).parents[1]
HELP = """
import json
from fwbench.commands.cli import commands
from fwbench.commands.report import _writers
print(json.dumps([sorted(commands()), sorted(_writers())]))
"""


def extensions(path):
    """The modules of extensions, and of their tests, that a file imports, wherever in it."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{name.name}" for name in node.names]
    return [module for module in modules if f"{module}.".startswith(("fwbench.ext.", "tests.ext."))]


def test_no_test_of_the_core_imports_one():
    files = [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] != "ext"]
    assert Path(__file__) in files
    assert {str(path): extensions(path) for path in files if extensions(path)} == {}


@pytest.mark.parametrize("line", ["import fwbench.ext.ci", "from fwbench import ext", "from fwbench.ext import ci"])
def test_each_way_to_import_one_is_seen(tmp_path, line):
    (tmp_path / "module.py").write_text(f"def late():\n    {line}\n")
    assert extensions(tmp_path / "module.py")


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Runs Python on a copy of the package that has no folder `ext`; returns what it prints."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(PACKAGE, folder / "fwbench", ignore=shutil.ignore_patterns("ext", "__pycache__"))

    def run(*words, cwd=folder):
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = finish(sys.executable, *words, cwd=cwd, env={**variables, "PYTHONPATH": str(folder)})
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
