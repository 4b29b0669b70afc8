"""Of JAX's plugins, what the program does not run on is not loaded."""

import os
import subprocess
import sys

from fwbench.record.lanes import OWN

# Beside the lane's adapter, as a worker starts; a plugin that must not be loaded says so.
CODE = """
import os, pathlib, sys, tempfile
folder = tempfile.mkdtemp()
package = pathlib.Path(folder, "jax_plugins", "other")
package.mkdir(parents=True)
package.joinpath("__init__.py").write_text("def initialize():\\n    print('loaded')\\n")
sys.path.insert(0, folder)
from fwbench.frameworks.jax.adapter import FRAMEWORK
from fwbench.models import CATALOG
from fwbench.record.workload import Workload
import jax
# JAX starts once in a process, so that the program for a GPU is a child's.
child = os.fork()
workload = Workload("jax", "mlp", target=None if child else "h100")
assert FRAMEWORK.unavailable(workload, CATALOG["mlp"]) is None
platform = jax.devices()[0].platform
if child:
    os.waitpid(child, 0)
print(workload.target, platform, flush=True)
os._exit(0)
"""


def test_a_program_for_a_gpu_that_is_not_here_loads_a_plugin_and_one_on_the_cpu_none():
    variables = os.environ | OWN["jax"].variables(1, "cpu")
    done = subprocess.run([sys.executable, "-c", CODE], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["loaded", "h100", "cpu", "None", "cpu"]
