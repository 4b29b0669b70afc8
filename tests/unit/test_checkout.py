"""What plain `pytest --benchmark-only` takes up in a checkout."""

import os
import sys
from pathlib import Path

from tests.unit.shared import finish

ROOT = Path(__file__).parents[2]
COLLECT = """
import pytest, sys
code = pytest.main(["--benchmark-only", "--collect-only", "-q"])
print(sorted({"jax", "tensorflow", "torch"} & sys.modules.keys()))
sys.exit(code)
"""


def test_it_takes_up_the_benchmarks_alone_and_imports_no_framework():
    """The tests of derived lanes need packages that only `make test` installs."""
    # Without what a parallel run of the tests tells its own workers.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = finish(sys.executable, "-c", COLLECT, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    *items, modules = done.stdout.splitlines()
    assert modules == "[]"
    assert {item.rpartition("/")[0] for item in items if "::" in item} == {"tests/benchmarks"}
