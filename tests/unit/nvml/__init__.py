"""A stand-in for NVIDIA's NVML library: the real Python bindings and fwbench run on it as on a machine with two H100s.

Ask for the fixture `nvml_stub`, name a state, and run fwbench in a process of its own with the variables it returns:

    variables = nvml_stub(power_limit=500)
    subprocess.run([sys.executable, "-m", "fwbench", "doctor"], env=os.environ | variables)

What is not named is as on an H100 that nobody else uses. Calling it again changes the machine at once, also for
processes that run: a neighbour may arrive, a GPU may get hot while it is measured.

gpus                    how many there are, 2 at most
driver, cuda            version of the driver (text); of the CUDA that it supports, 1000 x major + 10 x minor
slices                  the first GPU is cut into slices (MIG), of which it has so many: 0 or 1
used_memory             in bytes, without the 600 MiB that the driver keeps for itself
power_limit             in watts; the default limit is 700
clock, temperature      MHz (1980 is the most), degrees Celsius
clock_event_reasons     NVML's bits; 1: idle
utilisation             in percent
persistent, ecc         0 or 1
compute_mode            NVML's number; 3: one process alone
power                   that the GPU draws, in watts
energy_step             seconds after which the energy counter moves
energy_wrap             joules after which it starts again from 0
processes               "pid:bytes pid:bytes"; "own" is the process that asks, "na": memory that is not known
nvmlDeviceGetEccMode    and every other function of NVML: the error it returns (a number of nvmlReturn_t)
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GPUS = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111")
SLICE = "MIG-22222222-2222-2222-2222-222222222222"


class Stub:
    """The library, compiled into a folder of its own."""

    def __init__(self, folder: Path, compiler: str) -> None:
        self._folder = folder
        source = Path(__file__).with_name("stub.c")
        library = folder / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)

    def __call__(self, **state: object) -> dict[str, str]:
        """Put the machine into a state; returns the environment variables of a process that sees it."""
        told = self._folder / "state"
        # In one step, for a process may be reading it.
        new = self._folder / "state.new"
        new.write_text("".join(f"{key}={value}\n" for key, value in state.items()))
        new.replace(told)
        return {"LD_LIBRARY_PATH": str(self._folder), "NVML_STUB": str(told), "CUDA_VISIBLE_DEVICES": "0"}


def told(variables: Mapping[str, str], code: str) -> Any:
    """What Python code prints as JSON, in a process of its own with these variables."""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compiler() -> str | None:
    """The system's C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
