"""The file of `fwbench doctor --json FILE`: all that a maintainer needs who cannot reach the machine."""

import contextlib
import getpass
import json
import os
import platform
import re
import socket
from collections.abc import Mapping, Sequence
from ctypes import Array
from pathlib import Path
from typing import Any

import fwbench
from fwbench.commands.doctor.findings import Finding, as_json
from fwbench.commands.doctor.looks import public_lanes
from fwbench.machine import Machine, versions
from fwbench.machine.nvml import QUERIES
from fwbench.record.lanes import recorded
from fwbench.record.measurement import Measurement

# All but the last part of a path from the root.
_FOLDERS = r"(?<![\w.~/])~?/(?:[^\s/\"'`:;,()\[\]{}<>=]+/)*(?=[^\s/])"


def report(here: Machine, findings: Sequence[Finding], measured: Sequence[Measurement]) -> str:
    """The text of the file; measurements of `--check` state the number of their samples, failures their output."""
    lanes = public_lanes()
    named = [name for lane in lanes for name in (*lane.distributions, *lane.libraries)]
    content = {
        "fwbench": fwbench.__version__,
        "python": platform.python_version(),
        **as_json(findings),
        "machine": here.to_json(),
        "versions": versions((*named, "nvidia-ml-py", "numpy")),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(recorded(lanes))},
        "nvml": answers(),
        "measured": [{**one.to_json(), "samples": len(one.samples)} for one in measured],
    }
    return json.dumps(_scrubbed(content, {_FOLDERS: ".../"} | _identities()), indent=1)


def answers() -> dict[str, Any]:
    """NVML's answers to all queries of fwbench, errors included, as text: for readers without this machine."""
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except Exception as error:  # pynvml's own, or that of its import
        return {"error": str(error)}

    def told(name: str, *given: Any) -> str:
        try:
            answer = getattr(pynvml, f"nvml{name}")(*given)
        except Exception as error:  # also if an older pynvml lacks the function
            return f"{type(error).__name__}: {error}"
        return str([str(each) for each in answer] if isinstance(answer, list | Array) else answer)

    texts: dict[str, Any] = {name: told(f"System{name}") for name in ("GetDriverVersion", "GetCudaDriverVersion_v2")}
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            texts[f"GPU {index}"] = str(error)
        else:
            texts[f"GPU {index}"] = {name: told(f"DeviceGet{name}", handle, *of) for name, of in QUERIES.items()}
    return texts


def _identities() -> dict[str, str]:
    """Patterns of the words that name this machine or its user, and their stand-ins."""
    host = socket.gethostname()
    users = {os.environ.get("USER"), os.environ.get("LOGNAME"), Path(os.environ.get("HOME", "/")).name}
    # Nobody may have given this process's user a name.
    with contextlib.suppress(KeyError, OSError):
        users.add(getpass.getuser())
    words = dict.fromkeys((host, host.partition(".")[0]), "HOST") | dict.fromkeys(filter(None, users), "USER")
    return {rf"\b{re.escape(word)}\b": stand_in for word, stand_in in words.items()}


def _scrubbed(content: Any, stand_ins: Mapping[str, str]) -> Any:
    """The content with each pattern's stand-in in its place."""
    if isinstance(content, Mapping):
        return {name: _scrubbed(value, stand_ins) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_scrubbed(value, stand_ins) for value in content]
    for pattern, stand_in in stand_ins.items() if isinstance(content, str) else ():
        content = re.sub(pattern, stand_in, content)
    return content
