"""Weights that a user names: a file in the format safetensors, under the reference's names and in its shapes."""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.models.importing import ModelError
from fwbench.models.model import Model
from fwbench.record import files
from fwbench.text import line

# The format's names of floating-point types. bfloat16 is the upper half of a float32.
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def find(model: Model) -> Path:
    """The path of the model's checkpoint, below the first folder of `sys.path` that has it.

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
    """The weights in the model's checkpoint as float32. Other contents of the file are ignored.

    Args:
        shapes: canonical name to canonical shape of every weight of the reference's network.

    Raises:
        ModelError: there is no such file, it cannot be read, or a weight is missing or of another shape.
    """
    place = find(model)
    try:
        stored = dict(_read(files.read(place)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"the checkpoint {model.checkpoint!r} cannot be read as safetensors ({line(str(error), 300)}): write it "
            "with safetensors.numpy.save_file or safetensors.torch.save_file"
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
    """Name and numbers of each floating-point tensor.

    Read by hand, as safetensors.numpy has no bfloat16. The format (https://github.com/huggingface/safetensors): the
    header's length in 8 bytes, the header in JSON, and the numbers, at the offsets in the header, without holes.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: the file is damaged, or in another format.
    """
    start = 8 + int.from_bytes(data[:8], "little")
    if start > len(data):
        raise ValueError(f"it has {len(data)} bytes, and its header would end at byte {start}")
    header = json.loads(data[8:start], object_pairs_hook=_once)
    if not isinstance(header, dict):
        raise ValueError(f"its header is a {type(header).__name__}, not an object")
    header.pop("__metadata__", None)
    place = 0
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        (begin, end), shape = tensor["data_offsets"], tensor["shape"]
        if not all(type(number) is int and number >= 0 for number in (begin, end, *shape)) or not place == begin <= end:
            raise ValueError(f"{name!r} has the offsets {begin} and {end} and the shape {shape} after byte {place}")
        place = end
        if tensor["dtype"] not in _TYPES:
            continue
        kind = np.dtype(_TYPES[tensor["dtype"]])
        if end - begin != math.prod(shape) * kind.itemsize:
            raise ValueError(f"{name!r} has {end - begin} bytes for the shape {shape} in {tensor['dtype']}")
        array = np.frombuffer(data[start + begin : start + end], kind)
        if tensor["dtype"] == "BF16":
            array = (array.astype("<u4") << 16).view("<f4")
        yield name, array.astype(np.float32).reshape(shape)
    if start + place != len(data):
        raise ValueError(f"its tensors have {place} bytes, and {len(data) - start} are there")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON in which each name occurs once, so that its values are unambiguous."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"its header has two values under one name, of {len(pairs)}")
    return made
