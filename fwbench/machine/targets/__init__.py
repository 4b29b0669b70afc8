"""GPUs that programs can be compiled for without having one, with XLA's description of each.

Each device has a file in the text form of XLA's `GpuTargetConfigProto`. The figures are those that XLA publishes for
the device (openxla/xla, xla/backends/gpu/target_config/specs), limited to fields that every version of JAX from 0.9
reads.
The library versions are the least that JAX's plugins for CUDA 13 accept: XLA asks them what it may use of cuDNN.
"""

import re
from importlib.resources import files

_SUFFIX = ".txtpb"

NAMES = tuple(sorted(file.name[: -len(_SUFFIX)] for file in files(__name__).iterdir() if file.name.endswith(_SUFFIX)))


def description(target: str) -> str:
    """The description for XLA of the device of this name, one of `NAMES`."""
    return files(__name__).joinpath(target + _SUFFIX).read_text(encoding="utf-8")


def title(target: str) -> str:
    """The device's name as its driver gives it."""
    match = re.search(r'^device_description_str: "(.+)"$', description(target), re.MULTILINE)
    assert match is not None, target
    return match[1]
