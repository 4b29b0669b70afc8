"""Of JAX's plugins, what the program does not run on is not loaded."""

import os
import subprocess
import sys

from fwbench.record.lanes import OWN

# Beside the lane's adapter, as a worker starts; a plugin that must not be loaded says so.
CODE = """
import pathlib, sys, tempfile
folder = tempfile.mkdtemp()
package = pathlib.Path(folder, "jax_plugins", "other")
package.mkdir(parents=True)
package.joinpath("__init__.py").write_text("def initialize():\\n    print('loaded')\\n")
sys.path.insert(0, folder)
from fwbench.frameworks.jax.adapter import FRAMEWORK
from fwbench.models import CATALOG
from fwbench.record.workload import Workload
workload = Workload("jax", "mlp", target=TARGET)
assert FRAMEWORK.unavailable(workload, CATALOG["mlp"]) is None
import jax
print(jax.devices()[0].platform)
"""


def printed(target):
    code = CODE.replace("TARGET", repr(target))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | OWN["jax"].variables(1, "cpu"),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_program_on_the_cpu_loads_no_plugin():
    assert printed(None) == ["cpu"]


def test_a_program_for_a_gpu_that_is_not_here_does():
    assert printed("h100") == ["loaded", "cpu"]
