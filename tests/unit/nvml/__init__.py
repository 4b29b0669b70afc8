"""A stand-in for NVIDIA's NVML library: the real Python bindings and fwbench run on it as on a machine with two H100s.

Ask for the fixture `nvml_stub`, name a state, and run fwbench in a process of its own with the variables it returns:

    variables = nvml_stub(power_limit=500)
    subprocess.run([sys.executable, "-m", "fwbench", "doctor"], env=os.environ | variables)

Of name, memory, cores, used_memory, power_limit, default_power_limit, utilisation, processes and graphics the second
GPU has its own under `KEY.1`. What is not named is as on an H100 that nobody else uses. Calling it again changes the
machine at once, also for processes that run: a neighbour may arrive, a GPU may get hot while it is measured.

gpus                    how many there are, 2 at most
name, memory, cores     of the GPUs: bytes; 16896 cores
driver, cuda            version of the driver (text); of the CUDA that it supports, 1000 x major + 10 x minor
slices                  the first GPU is cut into slices (MIG), of which it has so many: 0 or 1
slice_index             the slice's number: 0
near                    bits of the CPUs near the GPU; without it the driver does not tell
held_N                  seconds for which the clocks were held down, by field N of NVML; without it not counted
used_memory             in bytes, without the 600 MiB that the driver keeps for itself
power_limit             in watts, and default_power_limit: 700
clock, temperature      MHz (1980 is the most), degrees Celsius
clock_event_reasons     NVML's bits; 1: idle
utilisation             in percent
persistent, ecc         0 or 1
compute_mode            NVML's number; 3: one process alone
power                   that the GPU draws, in watts
energy_step             seconds after which the energy counter moves
energy_wrap             joules after which it starts again from 0
processes               "pid:bytes pid:bytes"; "own" is the process that asks, "na": memory that is not known
graphics                processes that draw, likewise
contexts                a folder of files `GPU-PID` with three doubles: bytes that a process has on that GPU, joules
                        that the GPU has drawn by that process's clock, and when it last computed there, by the
                        monotonic clock
foreign                 what is added to their numbers: the host's, where a container counts others
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


# The loader looks at its path when a process starts, so one that has the stub on it forks all that ask; it has imported
# what most of them need.
_SERVER = """
import json, os, sys, tempfile, traceback
from fwbench.commands import cli, doctor
from fwbench.worker.client import workers

answers = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    variables, code = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.environ.clear()
            os.environ.update(variables)
            status = 1
            try:
                exec(code, {"__name__": "__main__"})
                status = 0
            except SystemExit as end:
                status = end.code or 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    print(json.dumps([status, *said]), file=answers, flush=True)
"""
_SERVERS: dict[str, subprocess.Popen[str]] = {}


def told(variables: Mapping[str, str], code: str) -> Any:
    """What Python code prints as JSON, in a process of its own with these variables of a stub."""
    folder = variables["LD_LIBRARY_PATH"]
    if folder not in _SERVERS:
        environment = os.environ | variables | {"OPENBLAS_NUM_THREADS": "1"}
        _SERVERS[folder] = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    server = _SERVERS[folder]
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps([os.environ | variables, code]) + "\n")
    server.stdin.flush()
    status, out, err = json.loads(server.stdout.readline())
    assert status == 0, err
    return json.loads(out)


def close() -> None:
    """End the processes that answered."""
    while _SERVERS:
        _, server = _SERVERS.popitem()
        server.communicate()


def compiler() -> str | None:
    """The system's C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
