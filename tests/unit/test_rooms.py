"""Which rooms of the package import what."""

import ast
from pathlib import Path

import fwbench

PACKAGE = Path(fwbench.__file__).parent
# The public face makes marks, and imports pytest within the functions that do.
WITH_PYTEST = ("__init__.py", "plugin/", "gates/")


def imported(path):
    """Top-level names of what a module imports, also within its functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


def importing(*names):
    """Modules of the package that import one of these."""
    paths = [path for path in PACKAGE.rglob("*.py") if set(names) & set(imported(path))]
    return [path.relative_to(PACKAGE).as_posix() for path in paths]


def test_pytest_is_imported_by_the_plugin_and_the_gates_alone():
    modules = importing("pytest", "_pytest")
    assert "plugin/collect.py" in modules
    assert [module for module in modules if not module.startswith(WITH_PYTEST)] == []


def test_what_proves_the_suite_to_its_makers_is_imported_by_no_module_of_the_package():
    assert importing("tests", "tools") == []
