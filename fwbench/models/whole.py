"""Whether a checkpoint is whole, before a number of it is read: none gives a network numbers that nobody wrote."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from fwbench.models import Model, ModelError
from fwbench.models.checkpoint import find
from fwbench.record import files
from fwbench.text import line

# Bytes of a number, by the format's names of numbers of floating point.
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def require_whole(model: Model) -> None:
    """Hold the model's checkpoint, if it has one, to the format safetensors.

    The format (https://github.com/huggingface/safetensors): the header's length in 8 bytes, the header in JSON, and the
    numbers, at the offsets that the header names, without holes.

    Raises:
        ModelError: there is no such file, it cannot be read, or it is damaged.
    """
    if not model.checkpoint:
        return
    place = find(model)
    try:
        data = files.read(place)
        _check(data)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"the checkpoint {model.checkpoint!r} cannot be read as safetensors ({line(str(error), 300)}): write it "
            "with safetensors.numpy.save_file or safetensors.torch.save_file"
        ) from None


def _check(data: bytes) -> None:
    start = 8 + int.from_bytes(data[:8], "little")
    if start > len(data):
        raise ValueError(f"it has {len(data)} bytes, and its header would end at byte {start}")
    header = json.loads(data[8:start], object_pairs_hook=_once)
    if not isinstance(header, dict):
        raise ValueError(f"its header is a {type(header).__name__}, not an object")
    header.pop("__metadata__", None)
    place = 0
    for name, begin, end, shape, kind in _tensors(header):
        if not all(type(number) is int and number >= 0 for number in (begin, end, *shape)) or not place == begin <= end:
            raise ValueError(f"{name!r} has the offsets {begin} and {end} and the shape {shape} after byte {place}")
        place = end
        if kind in _BYTES and end - begin != math.prod(shape) * _BYTES[kind]:
            raise ValueError(f"{name!r} has {end - begin} bytes for the shape {shape} in {kind}")
    if start + place != len(data):
        raise ValueError(f"its tensors have {place} bytes, and {len(data) - start} are there")


def _tensors(header: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, Any, Any]]:
    """Name, offsets, shape and type of each tensor, in the order of their places."""
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = tensor["data_offsets"]
        yield name, begin, end, tensor["shape"], tensor["dtype"]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, of which a reader must not take one value for another."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"its header has two values under one name, of {len(pairs)}")
    return made
