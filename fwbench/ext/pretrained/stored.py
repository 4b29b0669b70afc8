"""torchvision's published weights, kept on this machine as safetensors under canonical names.

PyTorch downloads and converts them once (`python -m fwbench.ext.pretrained.fetch`); from then on every framework
reads the same file, whether or not it has PyTorch beside it.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.errors import UserError
from fwbench.models.model import Model
from fwbench.record import files

_FETCH = Path(__file__).with_name("fetch.py")


def path(model: Model) -> Path:
    """The file of the model's weights: under `FWBENCH_CACHE`, else under the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = os.environ.get("FWBENCH_CACHE") or Path(cache) / "fwbench"
    return Path(folder) / "pretrained" / f"{model.name}.safetensors"


def load(model: Model) -> dict[str, NDArray[np.float32]]:
    """Read the weights in canonical form; a FileNotFoundError says how they are fetched."""
    from safetensors.numpy import load_file

    if not path(model).is_file():
        raise FileNotFoundError(
            f"the pretrained weights of {model.name} are not on this machine: "
            f"`python -m fwbench.ext.pretrained.fetch {model.name}` fetches them"
        )
    weights: dict[str, NDArray[np.float32]] = load_file(path(model))
    return weights


def save(model: Model, weights: Mapping[str, NDArray[Any]]) -> Path:
    """Store the weights in their file, which appears whole or not at all."""
    from safetensors import numpy as safetensors

    target = path(model)
    target.parent.mkdir(parents=True, exist_ok=True)
    files.write(target, safetensors.save({name: np.ascontiguousarray(array) for name, array in weights.items()}))
    return target


def fetch(models: Iterable[Model], python: str) -> None:
    """Let PyTorch fetch the published weights that are missing on this machine.

    Args:
        python: the interpreter that has PyTorch.

    Raises:
        UserError: some cannot be had.
    """
    # Not in workers, which read weights alone.
    from fwbench.worker.client.asking import DOWNLOAD_DEADLINE, SilentError, run
    from fwbench.worker.client.starting import command

    missing = [model.name for model in models if not path(model).is_file()]
    if missing:
        try:
            done = run(command(python, _FETCH, *missing), DOWNLOAD_DEADLINE)
        except (SilentError, OSError) as error:
            raise UserError(f"--fwbench-set weights=pretrained: {error}.") from None
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2]
            raise UserError(f"--fwbench-set weights=pretrained: {reason}.")
