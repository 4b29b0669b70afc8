"""The contract of all sources: the same batches in the same order, in every process and for every framework."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

SPLITS = ("train", "validation", "test")

# Label of the zero samples that fill up an incomplete batch; evaluators leave them out.
PADDING = -1

# The purpose of a stream of random numbers. It is part of the stream's seed, so that no two streams are the same.
ORDER, SAMPLE = 1, 2

Indices = NDArray[np.int64]
Images = NDArray[np.float32]
Labels = NDArray[np.int32]
Batch = tuple[Images, Labels]
# The indices of each batch of a pass, and the samples of each.
Plan = Sequence[Indices]
Samples = Generator[Images, None, None]

T = TypeVar("T", bound=np.generic)


class DataError(ValueError):
    """Data that cannot be had or trusted: one sentence that names the file or row and says what to do."""


class Data(AbstractContextManager["Data"], ABC):
    """Labelled samples in splits, shaped as a model takes them.

    Use it as a context manager, or call `close`, so that no loader process outlives it.

    Attributes:
        name: of the source.
        classes: labels are 0 to classes - 1.
        sizes: samples in each split that the source has.
    """

    def __init__(self, name: str, classes: int, labels: Mapping[str, Labels], seed: int) -> None:
        self.name = name
        self.classes = classes
        self.sizes = {split: len(of_split) for split, of_split in labels.items()}
        self._labels = labels
        self._seed = seed

    def batches(self, split: str, batch_size: int, epoch: int = 0) -> Iterator[Batch]:
        """One pass over a split; the same arguments give the same bits, in any process.

        `train` is shuffled by seed and epoch and its last incomplete batch dropped: programs are compiled for one
        shape. The other splits come in order, the last batch filled up with zero samples whose label is -1.

        Returns:
            Pairs of samples, float32 of shape (batch_size, *model.input_shape), and labels, int32 of (batch_size,).

        Raises:
            DataError: at once for arguments that no pass could serve; while iterating for a sample that cannot be read
                or a loader process that died.
        """
        if split not in self.sizes:
            raise DataError(f"{self.name} has no split {split!r}: choose from {', '.join(self.sizes)}")
        if batch_size < 1 or epoch < 0:
            raise DataError(f"batch size {batch_size} must be at least 1 and epoch {epoch} at least 0")
        if split == "train" and self.sizes[split] < batch_size:
            raise DataError(
                f"{self.name} has {self.sizes[split]} training samples, which make no batch of {batch_size}: "
                "choose a smaller batch size"
            )
        return self._batches(split, batch_size, epoch)

    def close(self) -> None:
        """End the loader processes, whether or not an iterator is still open; sources in memory have none."""
        return

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _images(self, split: str, batch_size: int, epoch: int, plan: Plan) -> Samples:
        """For each entry of the plan, the samples with these indices: float32 (len(entry), *model.input_shape)."""

    def _batches(self, split: str, batch_size: int, epoch: int) -> Iterator[Batch]:
        plan = self._plan(split, batch_size, epoch)
        labels = self._labels[split]
        # Closed here rather than by the garbage collector, as closing may wait for processes.
        with closing(self._images(split, batch_size, epoch, plan)) as images:
            for indices, x in zip(plan, images, strict=True):
                yield _filled(x, 0, batch_size), _filled(labels[indices], PADDING, batch_size)

    def _plan(self, split: str, batch_size: int, epoch: int) -> Plan:
        size = self.sizes[split]
        if split != "train":
            return [np.arange(start, min(start + batch_size, size)) for start in range(0, size, batch_size)]
        order = np.random.default_rng([self._seed, ORDER, epoch]).permutation(size)
        return list(order[: size - size % batch_size].reshape(-1, batch_size))


def digest(batches: Iterable[Batch]) -> str:
    """A short digest of types, shapes and bits, by which two lanes prove that they saw the same batches."""
    sha = hashlib.sha256()
    for batch in batches:
        for array in batch:
            sha.update(f"{array.dtype.str}{array.shape}".encode())
            sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()[:16]


def check_labels(labels: NDArray[np.integer], classes: int, source: str) -> Labels:
    """Labels as int32; if one is out of range, a DataError names `source` and the label's position."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(
            f"{source}: label {labels[wrong[0]]} of sample {wrong[0]} is out of range 0 to {classes - 1}; "
            "get the file anew or correct its labels"
        )
    return labels.astype(np.int32)


def _filled(array: NDArray[T], value: int, length: int) -> NDArray[T]:
    if len(array) == length:
        return array
    return np.concatenate([array, np.full((length - len(array), *array.shape[1:]), value, array.dtype)])
