"""ImageNet-100 and data sets of its schema, through Hugging Face `datasets`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.epochs.data import transforms
from fwbench.ext.epochs.data.contract import SAMPLE, Data, DataError, Labels, Plan, Samples, check_labels
from fwbench.ext.epochs.data.loaders import Loaders
from fwbench.machine.host import affinity
from fwbench.models import Model

NAME = "imagenet-100"
HUB = "clane9/imagenet-100"

# The data set has no other labelled images; a "test" that repeats the validation images would be false.
_SPLITS = ("train", "validation")

# With more processes, decoding is faster than one accelerator consumes.
_MOST_PROCESSES = 16


class ImageNet100(Data):
    """JPEG images with labels, decoded and transformed as torchvision's reference does, ahead of the consumer.

    Splits are `train` (random crop and mirroring, by seed, epoch and sample) and `validation` (centre crop); there is
    no `test`. The number of processes that decode changes no bit.

    Args:
        path: a name on the Hugging Face hub, or a local folder in a layout that `datasets.load_dataset` reads.
        processes: the number that decode; 0 decodes in the consumer, None leaves one of the available CPUs to it.
        prefetch: batches decoded ahead.

    Raises:
        DataError: `datasets` is not installed, the data cannot be loaded or has another schema, a label is out of
            range, or the model does not take square colour images.
    """

    def __init__(self, path: str, model: Model, seed: int, processes: int | None, prefetch: int) -> None:
        self._shape = model.input_shape
        height, *rest = self._shape
        if rest != [height, 3]:
            raise DataError(
                f"{NAME} cannot be fitted to {model.name}'s input of shape {self._shape}: "
                "choose a model that takes square colour images"
            )
        splits = _load(path)
        classes, labels = _labels(path, splits)
        self._read = ImageReader(
            path, {split: rows.select_columns(["image"]) for split, rows in splits.items()}, height, seed
        )
        self._processes = default_processes() if processes is None else processes
        self._prefetch = prefetch
        # An open iterator owns its loaders; between iterators they wait here.
        self._busy: set[Loaders] = set()
        self._idle: set[Loaders] = set()
        super().__init__(NAME, classes, labels, seed)

    def close(self) -> None:
        """End the loader processes; an iterator that is still open raises DataError at its next batch."""
        for some in (self._busy, self._idle):
            while some:
                some.pop().close()

    def _images(self, split: str, batch_size: int, epoch: int, plan: Plan) -> Samples:
        if self._processes == 0:
            for indices in plan:
                yield np.stack([self._read(split, epoch, index) for index in indices.tolist()])
            return
        loaders = self._take(batch_size)
        try:
            yield from loaders.images(split, epoch, plan)
        finally:
            self._busy.discard(loaders)
            if not loaders.closed:
                self._idle.add(loaders)

    def _take(self, batch_size: int) -> Loaders:
        while self._idle:
            loaders = self._idle.pop()
            if loaders.batch_size == batch_size:
                break
            loaders.close()
        else:
            loaders = Loaders(NAME, self._read, self._processes, (batch_size, *self._shape), self._prefetch)
        self._busy.add(loaders)
        return loaders


@dataclass(frozen=True)
class ImageReader:
    """Reads one image of a split: float32 of shape (size, size, 3)."""

    path: str
    splits: Mapping[str, Any]
    size: int
    seed: int

    def __call__(self, split: str, epoch: int, index: int) -> NDArray[np.float32]:
        """Decode and transform it, or raise a DataError; what is random depends on seed, epoch and index alone."""
        try:
            image = self.splits[split][index]["image"].convert("RGB")
        except Exception as error:  # each decoder raises its own
            raise DataError(
                f"{self.path}: the image in row {index} of split {split!r} cannot be decoded "
                f"({type(error).__name__}: {error}); get the data anew or remove the row"
            ) from error
        if split == "train":
            return transforms.train(image, self.size, np.random.default_rng([self.seed, SAMPLE, epoch, index]))
        return transforms.evaluation(image, self.size)


def _load(path: str) -> dict[str, Any]:
    """The two splits as `datasets.Dataset`; from the hub this downloads what its cache lacks."""
    # Imported here, as no other source needs it and not everyone has it.
    import datasets

    try:
        loaded = datasets.load_dataset(path)
        return {
            # Parquet files of others may hold the bytes without declaring them as images.
            split: loaded[split].select_columns(["image", "label"]).cast_column("image", datasets.Image())
            for split in _SPLITS
        }
    except Exception as error:  # raised by the file system, the network, Arrow or `datasets`
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{_unreadable(path) or path} cannot be loaded ({type(error).__name__}: {reason}): name a folder of "
            f"parquet files or a data set on the Hugging Face hub, such as {HUB}, with splits {' and '.join(_SPLITS)} "
            "and columns image and label"
        ) from error


def _unreadable(path: str) -> Path | None:
    """The first parquet file in a folder that Arrow cannot open; `datasets` does not name it."""
    import pyarrow
    import pyarrow.parquet

    for file in sorted(Path(path).rglob("*.parquet")):
        try:
            pyarrow.parquet.read_metadata(file)
        except (pyarrow.ArrowException, OSError):
            return file
    return None


def _labels(path: str, splits: Mapping[str, Any]) -> tuple[int, dict[str, Labels]]:
    """The number of classes, and each split's labels, all within them."""
    columns = {split: np.asarray(rows.with_format("numpy")["label"][:]) for split, rows in splits.items()}
    for split, column in columns.items():
        if column.dtype.kind not in "iu" or not len(column):
            raise DataError(f"{path}: split {split!r} lacks whole numbers in column 'label': {NAME} needs one a row")
    declared = getattr(splits["train"].features["label"], "num_classes", None)
    classes = int(columns["train"].max()) + 1 if declared is None else int(declared)
    return classes, {
        split: check_labels(column, classes, f"{path}, split {split!r}") for split, column in columns.items()
    }


def default_processes() -> int:
    """The default number of loader processes: one CPU is left for the consumer; 1 to 16."""
    return min(max(len(affinity()) - 1, 1), _MOST_PROCESSES)
