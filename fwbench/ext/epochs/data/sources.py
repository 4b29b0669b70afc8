"""The sources by name."""

import sys

from fwbench.errors import hint
from fwbench.ext.epochs.data.contract import Data, DataError
from fwbench.ext.epochs.data.synthetic import Synthetic
from fwbench.models import Model
from fwbench.record.workload import DATA

# The extra of fwbench's that installs what a source needs.
_EXTRAS = {"digits": "data", "mnist": "data", "imagenet-100": "imagenet"}


def open_data(
    name: str, model: Model, *, path: str | None = None, seed: int = 0, processes: int | None = None, prefetch: int = 3
) -> Data:
    """Open a source, named as in `fwbench.record.workload.DATA`, for a model.

    Args:
        model: its input shape is that of the samples; its classes must cover the data's.
        path: `mnist`: folder of the IDX files; `imagenet-100`: local folder or a name on the Hugging Face hub,
            clane9/imagenet-100 unless given.
        seed: of the split, the order and whatever is random about a sample.
        processes: `imagenet-100` alone decodes images: in so many processes, 0 for none, None for as many as there
            are CPUs but one. It changes no batch.
        prefetch: `imagenet-100`: batches that those processes decode ahead.

    Raises:
        DataError: there is no such source, it cannot serve this model, or what reads it is not installed; one sentence.
    """
    if name not in DATA:
        raise DataError(f"unknown data {name!r}: {hint(name, DATA)}")
    if path is not None and name not in ("mnist", "imagenet-100"):
        raise DataError(f"{name} takes no data_path, but was given {path!r}: leave it out")
    if not 0 <= seed < 2**32:
        raise DataError(f"seed {seed} is out of range 0 to {2**32 - 1}")
    # Imported on demand: they need scikit-learn or Pillow, and a worker's memory is measured.
    try:
        if name == "digits":
            from fwbench.ext.epochs.data.grey import digits

            data: Data = digits(model, seed)
        elif name == "mnist":
            from fwbench.ext.epochs.data.grey import mnist

            if path is None:
                raise DataError("mnist needs data_path: name the folder that holds its four IDX files")
            data = mnist(path, model, seed)
        elif name == "imagenet-100":
            from fwbench.ext.epochs.data.imagenet import HUB, ImageNet100

            data = ImageNet100(path or HUB, model, seed, processes, prefetch)
        else:
            data = Synthetic(model, seed)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{name} needs {error.name}, which is not installed in {sys.executable}: "
            f"pip install 'fwbench[{_EXTRAS[name]}]'"
        ) from error
    if data.classes > model.classes:
        raise DataError(
            f"{name} has {data.classes} classes and {model.name} only {model.classes}: "
            "choose a model with at least as many"
        )
    return data
