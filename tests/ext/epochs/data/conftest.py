"""What the data's tests share: models of other shapes, MNIST's files, a small ImageNet-100."""

import gzip
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fwbench.models import Model
from fwbench.models.inputs import normal

# Rows that hold scikit-learn's photographs; the others are generated.
PHOTOGRAPHS = {0: "china.jpg", 5: "flower.jpg"}
CLASSES = 4
ROWS = {"train": 14, "validation": 7}


@pytest.fixture(scope="package", autouse=True)
def offline(tmp_path_factory):
    """Hugging Face's libraries read these when they are first imported: no network, and no one's cache touched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("huggingface")))
        yield


@pytest.fixture
def shaped():
    """A model with another input shape; its classes suffice for any data here."""

    def model(*shape, classes=10):
        return Model("other", inputs=normal(*shape), classes=classes)

    return model


@pytest.fixture
def write_idx():
    """Write an array of bytes as an IDX file, gzipped when its name says so."""

    def write(path, array):
        head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
        content = head + array.astype(np.uint8).tobytes()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)

    return write


@pytest.fixture
def mnist_folder(tmp_path, write_idx):
    """120 training and 80 test images, 20 of each class; each image's first two pixels are its number."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part, numbers in (("train", np.arange(120)), ("t10k", np.arange(120, 200))):
        images = rng.integers(256, size=(len(numbers), 28, 28))
        images[:, 0, 0], images[:, 0, 1] = numbers // 256, numbers % 256
        write_idx(folder / f"{part}-images-idx3-ubyte", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", numbers % 10)
    return folder


@pytest.fixture(scope="package")
def jpegs():
    """The JPEG files of each split, by row: photographs, and noise of other sizes, one of them grey."""
    from sklearn import datasets

    photographs = Path(datasets.__file__).parent / "images"
    rng = np.random.default_rng(0)
    files = {}
    for split, rows in ROWS.items():
        files[split] = []
        for row in range(rows):
            shape = (rng.integers(30, 90), rng.integers(30, 90), *(() if row == 3 else (3,)))
            buffer = io.BytesIO()
            Image.fromarray(rng.integers(256, size=shape, dtype=np.uint8)).save(buffer, "JPEG")
            photograph = PHOTOGRAPHS.get(row)
            files[split].append((photographs / photograph).read_bytes() if photograph else buffer.getvalue())
    return files


@pytest.fixture(scope="package")
def write_parquet():
    """Write a data set in clane9/imagenet-100's schema: one parquet file a split.

    Args:
        declared: the number of classes that the schema names; None writes plain parquet without Hugging Face's words.
    """

    def write(folder, files, labels, declared=CLASSES):
        import datasets
        import pyarrow
        import pyarrow.parquet

        (folder / "data").mkdir(parents=True)
        for split, images in files.items():
            path = folder / "data" / f"{split}-00000-of-00001.parquet"
            columns = {"image": [{"bytes": image, "path": None} for image in images], "label": labels[split]}
            if declared is None:
                pyarrow.parquet.write_table(pyarrow.table(columns), path)
                continue
            names = datasets.ClassLabel(names=[f"class {index}" for index in range(declared)])
            features = datasets.Features({"image": datasets.Image(), "label": names})
            datasets.Dataset.from_dict(columns, features=features).to_parquet(path)
        return folder

    return write


@pytest.fixture(scope="package")
def labels():
    return {split: [row % CLASSES for row in range(rows)] for split, rows in ROWS.items()}


@pytest.fixture(scope="package")
def imagenet_folder(tmp_path_factory, write_parquet, jpegs, labels):
    return write_parquet(tmp_path_factory.mktemp("imagenet") / "small", jpegs, labels)
