"""Weights that a user names: a file in the format safetensors, under the reference's names and in its shapes."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.models.importing import ModelError
from fwbench.models.model import Model

# The format's names of numbers of floating point. bfloat16 is the upper half of a float32.
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def find(model: Model) -> Path:
    """Where the model's checkpoint lies: its path below the first folder of `sys.path` that has it.

    The project's root is one of these folders wherever its modules are imported.

    Raises:
        ModelError: none of them has it.
    """
    places = [Path(folder, model.checkpoint or "") for folder in sys.path]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ModelError(f"there is no checkpoint {model.checkpoint!r}: name it by its path from the project's root")
    return path


def load(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """The weights in the model's checkpoint as float32. What else the file holds is passed over.

    Args:
        shapes: canonical name to canonical shape of every weight of the reference's network.

    Raises:
        ModelError: there is no such file, it cannot be read, or a weight is missing or of another shape.
    """
    place = find(model)
    try:
        stored = dict(_read(place.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"the checkpoint {model.checkpoint!r} cannot be read as safetensors ({error}): write it with "
            "safetensors.numpy.save_file or safetensors.torch.save_file"
        ) from None
    for name, shape in shapes.items():
        if name not in stored:
            raise ModelError(
                f"the checkpoint {model.checkpoint!r} has no {name!r}, which the network in {model.reference} has: "
                "name its tensors as that network does"
            )
        if stored[name].shape != tuple(shape):
            raise ModelError(
                f"{name!r} has the shape {stored[name].shape} in the checkpoint {model.checkpoint!r}, and "
                f"{tuple(shape)} in {model.reference}'s network"
            )
    return {name: stored[name] for name in shapes}


def _read(data: bytes) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Name and numbers of each tensor of floating point.

    By hand, as safetensors.numpy has no bfloat16. The format (https://github.com/huggingface/safetensors): the header's
    length in 8 bytes, the header in JSON, and the numbers, at the offsets that the header names.
    """
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:start])
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] not in _TYPES:
            continue
        begin, end = tensor["data_offsets"]
        array = np.frombuffer(data[start + begin : start + end], _TYPES[tensor["dtype"]])
        if tensor["dtype"] == "BF16":
            array = (array.astype("<u4") << 16).view("<f4")
        yield name, array.astype(np.float32).reshape(tensor["shape"])
