"""Small grey images in memory, digits and MNIST: split by class, scaled to [0, 1], fitted to the model's input.

MNIST is read from its four IDX files, as http://yann.lecun.com/exdb/mnist describes them.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.epochs.data.contract import Data, DataError, Images, Indices, Plan, Samples, check_labels
from fwbench.models import Model

# With 10 samples of a class, each part of an 80/10/10 split gets at least one.
_LEAST = 10

_IMAGE = (28, 28)
_UNSIGNED_BYTE = 0x08
_ANEW = "get the file anew"


class Grey(Data):
    """Grey images of ten digits, split 80/10/10 with each class in the same shares.

    The model gets them enlarged bilinearly to its height and width and repeated over its channels; a flat input of n
    numbers gets them at sqrt(n) x sqrt(n). That happens batch by batch: at 224 x 224 x 3 MNIST would not fit memory.

    Args:
        images: uint8 of shape (samples, height, width).
        labels: whole numbers of shape (samples,).
        brightest: the pixel value that becomes 1.
        source: the samples' origin, for error messages.

    Raises:
        DataError: the model cannot take such images, a label is out of range, or a class has too few samples.
    """

    CLASSES = 10

    def __init__(
        self,
        name: str,
        images: NDArray[np.uint8],
        labels: NDArray[np.integer],
        model: Model,
        seed: int,
        *,
        brightest: int,
        source: str,
    ) -> None:
        self._shape = model.input_shape
        self._side = _sides(name, model)
        checked = check_labels(labels, self.CLASSES, source)
        parts = stratified(checked, self.CLASSES, seed, source)
        self._pixels = {split: images[part] for split, part in parts.items()}
        self._brightest = np.float32(brightest)
        super().__init__(name, self.CLASSES, {split: checked[part] for split, part in parts.items()}, seed)

    def _images(self, split: str, batch_size: int, epoch: int, plan: Plan) -> Samples:
        pixels = self._pixels[split]
        for indices in plan:
            x = enlarged(pixels[indices].astype(np.float32) / self._brightest, *self._side)
            if len(self._shape) == 1:
                yield x.reshape(len(indices), -1)
            else:
                yield np.repeat(x[..., None], self._shape[2], axis=3)


def digits(model: Model, seed: int) -> Grey:
    """1,797 images of 8 x 8 pixels with 17 levels (E. Alpaydin and C. Kaynak, UCI, 1998; its test set)."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = bunch.images.astype(np.uint8)
    return Grey("digits", pixels, bunch.target, model, seed, brightest=16, source="scikit-learn's digits")


def mnist(folder: str, model: Model, seed: int) -> Grey:
    """The 70,000 images of both parts, pooled and split anew 80/10/10 by class, as the course report did.

    Args:
        folder: holds train-images-idx3-ubyte, train-labels-idx1-ubyte and the same for t10k, plain or as .gz.

    Raises:
        DataError: a file is missing, is no whole IDX file or holds something else; or a class has too few samples.
    """
    parts = [_part(Path(folder), part) for part in ("train", "t10k")]
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    return Grey("mnist", images, labels, model, seed, brightest=255, source=folder)


def stratified(labels: NDArray[np.integer], classes: int, seed: int, source: str) -> dict[str, Indices]:
    """Indices of an 80/10/10 split in which every class has the same share (scikit-learn's `train_test_split`).

    A DataError names `source` if a class has too few samples.
    """
    # Imported here, as most benchmarks need no split and scikit-learn takes a second.
    from sklearn.model_selection import train_test_split

    counts = np.bincount(labels, minlength=classes)
    rarest = int(np.argmin(counts))
    if counts[rarest] < _LEAST:
        raise DataError(
            f"{source}: class {rarest} has {counts[rarest]} samples, and a stratified 80/10/10 split needs at least "
            f"{_LEAST} of each of {classes} classes; give the whole data set"
        )
    everything = np.arange(len(labels))
    train, rest = train_test_split(everything, test_size=0.2, stratify=labels, random_state=seed)
    validation, test = train_test_split(rest, test_size=0.5, stratify=labels[rest], random_state=seed)
    return {"train": train, "validation": validation, "test": test}


def enlarged(images: Images, height: int, width: int) -> Images:
    """Bilinear interpolation between pixel centres, edges held, as Pillow and torchvision enlarge.

    Element-wise NumPy, whose bits do not depend on the batch, the threads or the BLAS at hand. Making images smaller
    works too, but without the antialiasing that those two would do.

    Args:
        images: float32 of shape (batch, h, w), h and w at least 2.

    Returns:
        float32 of shape (batch, height, width).
    """
    if images.shape[1:] == (height, width):
        return images
    low, weight = _neighbours(images.shape[1], height)
    rows = images[:, low] + (images[:, low + 1] - images[:, low]) * weight[:, None]
    low, weight = _neighbours(images.shape[2], width)
    return rows[:, :, low] + (rows[:, :, low + 1] - rows[:, :, low]) * weight


def _neighbours(source: int, target: int) -> tuple[Indices, NDArray[np.float32]]:
    """For each target pixel, the source pixel before it, and its share of the way from there to the next one."""
    position = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    low = np.minimum(position.astype(np.int64), source - 2)
    return low, (position - low).astype(np.float32)


def _sides(name: str, model: Model) -> tuple[int, int]:
    shape = model.input_shape
    if len(shape) == 3:
        return shape[0], shape[1]
    side = math.isqrt(shape[0])
    if len(shape) == 1 and side * side == shape[0]:
        return side, side
    raise DataError(
        f"{name} cannot be fitted to {model.name}'s input of shape {shape}: "
        "choose a model that takes (height, width, channels) or a square image as one row of numbers"
    )


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of unsigned bytes that an IDX file holds.

    The format: two zero bytes, the element type, the number of dimensions, each length as four bytes, big end first,
    then the elements.

    Args:
        path: a plain file, or a gzip file named .gz.
        dimensions: that the array must have.

    Raises:
        DataError: the file is not exactly that; the sentence names it.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is no whole gzip file ({error}): {_ANEW}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): check the path and its permissions") from error
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)):
        raise DataError(f"{path} does not begin as an IDX file of bytes in {dimensions} dimensions: {_ANEW}")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - head != math.prod(shape):
        raise DataError(
            f"{path} holds {len(content) - head} bytes where its header promises {math.prod(shape)}: {_ANEW}"
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _part(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    images_file, labels_file = _find(folder, f"{part}-images-idx3-ubyte"), _find(folder, f"{part}-labels-idx1-ubyte")
    images, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
    if images.shape[1:] != _IMAGE:
        raise DataError(f"{images_file} holds images of {images.shape[1:]} pixels, MNIST's are {_IMAGE}: {_ANEW}")
    if len(images) != len(labels):
        raise DataError(
            f"{images_file} holds {len(images)} images but {labels_file} {len(labels)} labels: get both anew"
        )
    return images, check_labels(labels, Grey.CLASSES, str(labels_file))


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder / name} is missing, and so is its .gz: name the folder that holds MNIST's four IDX files")
