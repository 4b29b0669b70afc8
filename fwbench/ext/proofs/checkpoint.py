"""Weights that a user names: a file in the format safetensors, under the reference's names and in its shapes."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.models.importing import ModelError
from fwbench.models.model import Model
from fwbench.models.store import checkpoint_file
from fwbench.record import files
from fwbench.text import line

# The format's names of floating-point types. bfloat16, which NumPy lacks, is the upper half of a float32.
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def load(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """The weights in the model's checkpoint, in the reference's names and shapes, as float32; all else is ignored.

    Raises:
        ModelError: there is no such file, it cannot be read, or a weight is missing or of another shape.
    """
    # Not where pytest runs: there may be no framework, and so no safetensors.
    from safetensors import SafetensorError, deserialize

    place = checkpoint_file(model)
    try:
        data = files.read(place)
        tensors = deserialize(data)  # type: ignore[no-untyped-call, unused-ignore]
        # Of two tensors with one name it has returned the last.
        json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")], object_pairs_hook=_once)
        stored = {name: _numbers(tensor) for name, tensor in tensors if tensor["dtype"] in _TYPES}
    except (OSError, ValueError, SafetensorError) as error:
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


def _numbers(tensor: Mapping[str, Any]) -> NDArray[np.float32]:
    array = np.frombuffer(tensor["data"], _TYPES[tensor["dtype"]])
    if tensor["dtype"] == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    return array.astype(np.float32).reshape(tensor["shape"])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON in which each name occurs once, so that its values are unambiguous."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"its header has two values under one name, of {len(pairs)}")
    return made
