"""What a server imports before it forks workers."""

import os
import subprocess
import sys

import pytest

from fwbench.record.lanes import OWN

ASKS_AND_FORKS = """
import importlib, os, torch
from fwbench.frameworks import load
from fwbench.record.lanes import OWN

torch.cuda._device_count_nvml = lambda: 1
imported = importlib.import_module

def asking(name):
    assert torch.cuda.is_available()
    return imported(name)

framework = load(OWN["torch-compile"].adapter)
importlib.import_module = asking
framework.preload("torch-compile")
if not (child := os.fork()):
    os._exit(torch.cuda._is_in_bad_fork())
assert os.waitpid(child, 0)[1] == 0, "CUDA has begun before the fork"
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="where forking is unsafe, nothing is forked")
def test_a_module_that_asks_for_a_gpu_when_imported_leaves_cuda_to_the_workers():
    """PyTorch 2.11's Inductor does: on an H200 no worker of `torch-compile` could use the GPU."""
    environment = {**os.environ, **OWN["torch-compile"].variables(1, "gpu")}
    subprocess.run([sys.executable, "-c", ASKS_AND_FORKS], env=environment, check=True)
