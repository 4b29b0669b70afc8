"""What a server imports before it forks workers."""

import os
import subprocess
import sys

import pytest

from fwbench.record.lanes import OWN

ASKS_AND_FORKS = """
import importlib, json, os, torch
from fwbench.record.lanes import OWN
from fwbench.worker.process import lifetime, server

asked = []
imported = importlib.import_module

def asking(name, *package):
    asked.append(torch.cuda.is_available())
    return imported(name, *package)

def ready(message):
    assert "ready" in message, message
    assert asked and all(asked), asked
    assert os.environ["CUDA_VISIBLE_DEVICES"] == VISIBLE, os.environ["CUDA_VISIBLE_DEVICES"]
    if not (child := os.fork()):
        os._exit(torch.cuda._is_in_bad_fork())
    assert os.waitpid(child, 0)[1] == 0, "CUDA has begun before the fork"
    os._exit(0)

# As many GPUs as NVML's library says there are.
torch.cuda._raw_device_count_nvml = lambda: 1
torch.cuda._raw_device_uuid_nvml = lambda: ["GPU-1"]
importlib.import_module = asking
lifetime.end_if_closed = lambda file: None
server.Pipes = lambda: type("", (), {"incoming": None, "send": staticmethod(ready)})
server.serve({"lane": OWN["torch-compile"].to_json(), "cpus": [], "fork": False, "scratch": ""})
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="where forking is unsafe, nothing is forked")
@pytest.mark.parametrize("visible", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("0", "GPU-1")), "MIG-1"])
def test_a_module_that_asks_for_a_gpu_when_imported_leaves_cuda_to_the_workers(visible):
    """PyTorch 2.11's Inductor does: on an H200 no worker of `torch-compile` could use the GPU.

    It asks NVML how many there are, but CUDA where a slice is visible (MIG).
    """
    environment = {**os.environ, **OWN["torch-compile"].variables(1, "gpu"), "CUDA_VISIBLE_DEVICES": visible}
    code = ASKS_AND_FORKS.replace("VISIBLE,", f"{visible!r},")
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
