"""MNIST from its four IDX files, as http://yann.lecun.com/exdb/mnist describes them."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fwbench.data.contract import DataError, check_labels
from fwbench.data.grey import Grey
from fwbench.models import Model

_IMAGE = (28, 28)
_UNSIGNED_BYTE = 0x08
_ANEW = "get the file anew"


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
