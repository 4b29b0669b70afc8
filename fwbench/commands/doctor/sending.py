"""What `fwbench doctor --json FILE` writes: all that a maintainer needs who cannot reach the machine."""

import dataclasses
import getpass
import json
import os
import platform
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fwbench
from fwbench.commands.doctor.advice import Advice, sound
from fwbench.machine import Machine, nvml, versions
from fwbench.record.lanes import LANES, recorded
from fwbench.record.measurement import Measurement

# All but the last part of a path from the root.
_FOLDERS = re.compile(r"(?<![\w.~/])~?/(?:[^\s/\"'`:;,()\[\]{}<>=]+/)*(?=[^\s/])")


def findings(advice: Sequence[Advice]) -> dict[str, Any]:
    """What was found, as JSON primitives."""
    return {"sound": sound(advice), "findings": [dataclasses.asdict(finding) for finding in advice]}


def report(
    here: Machine,
    advice: Sequence[Advice],
    measured: Sequence[Measurement],
    environment: Mapping[str, str] = os.environ,
) -> str:
    """The whole file.

    Args:
        measured: what `--check` has measured, failures with what their processes wrote to standard error; its samples
            are left out.
    """
    lanes = [lane for lane in LANES.values() if not lane.internal]
    named = [name for lane in lanes for name in (*lane.distributions, *lane.libraries)]
    content = {
        "fwbench": fwbench.__version__,
        "python": platform.python_version(),
        **findings(advice),
        "machine": here.to_json(),
        "versions": versions((*named, "nvidia-ml-py", "numpy")),
        "environment": {name: value for name, value in environment.items() if name.startswith(recorded(lanes))},
        "nvml": nvml.answers(),
        "measured": [{**one.to_json(), "samples": len(one.samples)} for one in measured],
    }
    return json.dumps(_scrubbed(content, tuple(_identities(environment))), indent=1)


def _identities(environment: Mapping[str, str]) -> Iterator[tuple[re.Pattern[str], str]]:
    """What tells whose machine this is, and what stands in its place."""
    host = socket.gethostname()
    names = {environment.get("USER"), environment.get("LOGNAME"), Path(environment.get("HOME", "/")).name}
    try:
        names.add(getpass.getuser())
    except (KeyError, OSError):
        names.discard(None)  # nobody has given this process's user a name
    for name in dict.fromkeys((host, host.partition(".")[0])):
        yield re.compile(rf"\b{re.escape(name)}\b"), "HOST"
    for name in filter(None, names):
        yield re.compile(rf"\b{re.escape(name)}\b"), "USER"


def _scrubbed(content: Any, identities: Sequence[tuple[re.Pattern[str], str]]) -> Any:
    """The content without folders, user names and host names; of a path its last part is left."""
    if isinstance(content, Mapping):
        return {name: _scrubbed(value, identities) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_scrubbed(value, identities) for value in content]
    if isinstance(content, str):
        content = _FOLDERS.sub(".../", content)
        for pattern, stand_in in identities:
            content = pattern.sub(stand_in, content)
    return content
