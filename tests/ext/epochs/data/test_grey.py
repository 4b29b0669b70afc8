"""Digits: the split, the scaling, the fitting to a model's input. MNIST: its IDX files, written here; its pooling."""

import numpy as np
import pytest
from PIL import Image

from fwbench.ext.epochs.data import DataError, open_data
from fwbench.ext.epochs.data.grey import enlarged, read_idx, stratified
from fwbench.models import CATALOG


@pytest.fixture(scope="module")
def digits():
    """Those of scikit-learn, which takes a second to import."""
    from sklearn.datasets import load_digits

    return load_digits()


def whole(data, split):
    """All samples and labels of an evaluation split."""
    ((x, y),) = data.batches(split, data.sizes[split])
    return x, y


def test_digits_come_as_they_are_where_the_model_takes_their_size(shaped, digits):
    with open_data("digits", shaped(64)) as data:
        parts = [next(data.batches(split, data.sizes[split])) for split in data.sizes]
    x = np.concatenate([x for x, _ in parts])
    y = np.concatenate([y for _, y in parts])
    assert x.shape == (1797, 64)
    assert (x.min(), x.max()) == (0, 1)
    # Every sample once, whatever the order, with its own label.
    rows = sorted(zip((x * 16).astype(int).tolist(), y.tolist(), strict=True))
    expected = sorted(zip(digits.data.astype(int).tolist(), digits.target.tolist(), strict=True))
    assert rows == expected


def test_every_split_has_each_class_in_its_share(digits):
    with open_data("digits", CATALOG["mlp"]) as data:
        assert data.sizes == {"train": 1437, "validation": 180, "test": 180}
        _, train = next(data.batches("train", 1437))
        counts = {"train": np.bincount(train, minlength=10)}
        counts |= {split: np.bincount(whole(data, split)[1], minlength=10) for split in ("validation", "test")}
    of_class = np.bincount(digits.target)
    for split, share in (("train", 0.8), ("validation", 0.1), ("test", 0.1)):
        assert np.abs(counts[split] - share * of_class).max() < 2


def test_the_split_depends_on_the_seed(digits):
    def members(seed):
        parts = stratified(digits.target, 10, seed, "somewhere")
        return {split: set(part.tolist()) for split, part in parts.items()}

    one, other = members(0), members(1)
    assert members(0) == one
    assert all(one[split] != other[split] for split in ("train", "validation", "test"))


@pytest.mark.parametrize("side", [8, 9, 28, 33])
def test_enlarging_is_pillows_bilinear_resize(side, digits):
    images = digits.images[:5].astype(np.float32)
    expected = [
        np.asarray(Image.fromarray(image).resize((side, 2 * side), Image.Resampling.BILINEAR)) for image in images
    ]
    np.testing.assert_allclose(enlarged(images, 2 * side, side), expected, rtol=0, atol=1e-5)


def test_a_samples_bits_do_not_depend_on_the_batch_it_is_in(digits):
    images = digits.images[:7].astype(np.float32) / 16
    together = enlarged(images, 224, 224)
    apart = np.concatenate([enlarged(image[None], 224, 224) for image in images])
    assert together.dtype == np.float32
    np.testing.assert_array_equal(together, apart)


def test_a_flat_input_is_the_enlarged_image_row_by_row():
    with open_data("digits", CATALOG["mlp"]) as flat, open_data("digits", CATALOG["cnn"]) as image:
        flat_x, _ = whole(flat, "validation")
        image_x, _ = whole(image, "validation")
    assert flat_x.shape == (180, 784)
    assert image_x.shape == (180, 32, 32, 3)
    corners = flat_x.reshape(180, 28, 28)[:, [0, 0, -1, -1], [0, -1, 0, -1]]
    np.testing.assert_array_equal(corners, image_x[:, [0, 0, -1, -1], [0, -1, 0, -1], 0])


def test_grey_is_repeated_over_the_channels():
    with open_data("digits", CATALOG["cnn"]) as data:
        x, _ = next(data.batches("train", 16))
    assert x.flags.c_contiguous
    np.testing.assert_array_equal(x[..., 0], x[..., 1])
    np.testing.assert_array_equal(x[..., 0], x[..., 2])


@pytest.mark.parametrize("shape", [(783,), (8, 8)])
def test_an_input_that_is_no_image_is_refused(shaped, shape):
    with pytest.raises(DataError, match=r"digits cannot be fitted to other's input of shape \("):
        open_data("digits", shaped(*shape))


def test_a_class_with_too_few_samples_is_named():
    labels = np.repeat(np.arange(3), [10, 9, 30])
    with pytest.raises(
        DataError, match="somewhere: class 1 has 9 samples, and a stratified 80/10/10 split needs at least 10"
    ):
        stratified(labels, 3, 0, "somewhere")


def test_the_fewest_samples_that_are_accepted_reach_every_split():
    labels = np.repeat(np.arange(3), [10, 11, 37])
    parts = stratified(labels, 3, 0, "somewhere")
    assert {split: set(labels[part].tolist()) for split, part in parts.items()} == {split: {0, 1, 2} for split in parts}
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(labels)))


IMAGES = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte.gz"


def refused(folder):
    """The sentence with which the folder is refused."""
    with pytest.raises(DataError) as caught:
        open_data("mnist", CATALOG["mlp"], path=str(folder))
    return str(caught.value)


def test_both_parts_are_pooled_and_split_anew_by_class(mnist_folder):
    with open_data("mnist", CATALOG["mlp"], path=str(mnist_folder)) as data:
        assert data.sizes == {"train": 160, "validation": 20, "test": 20}
        parts = {split: next(data.batches(split, size)) for split, size in data.sizes.items()}
    numbers = {split: np.rint(x[:, 0] * 255) * 256 + np.rint(x[:, 1] * 255) for split, (x, _) in parts.items()}
    assert sorted(np.concatenate(list(numbers.values()))) == list(range(200))
    for split, (_, y) in parts.items():
        np.testing.assert_array_equal(numbers[split] % 10, y)
        assert set(np.bincount(y, minlength=10)) == {data.sizes[split] // 10}


def test_pixels_are_divided_by_255(mnist_folder):
    stored = read_idx(mnist_folder / IMAGES, 3)
    with open_data("mnist", CATALOG["mlp"], path=str(mnist_folder)) as data:
        ((x, _),) = data.batches("train", 160)
    numbers = np.rint(x[:, 1] * 255).astype(int)
    inside = numbers < 120
    expected = stored.reshape(120, 784)[numbers[inside]].astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(x[inside], expected)


@pytest.mark.parametrize("name", ["array", "array.gz"])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (4, 3, 2), (0, 28, 28)])
def test_an_idx_file_is_read_as_written(tmp_path, write_idx, name, shape):
    array = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    write_idx(tmp_path / name, array)
    found = read_idx(tmp_path / name, len(shape))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, array)


def test_a_missing_file_is_named(mnist_folder):
    (mnist_folder / LABELS).unlink()
    expected = (
        "train-labels-idx1-ubyte is missing, and so is its .gz: name the folder that holds MNIST's four IDX files"
    )
    assert refused(mnist_folder) == f"{mnist_folder}/{expected}"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content[:-1], "holds 94079 bytes where its header promises 94080: get the file anew"),
        (lambda content: content + b"0", "holds 94081 bytes where its header promises 94080: get the file anew"),
        (lambda content: content[:10], "does not begin as an IDX file of bytes in 3 dimensions: get the file anew"),
        (lambda content: b"", "does not begin as an IDX file of bytes in 3 dimensions: get the file anew"),
        (lambda content: b"\0\0\x0d" + content[3:], "does not begin as an IDX file of bytes in 3 dimensions"),
        (lambda content: content[:3] + b"\1" + content[4:], "does not begin as an IDX file of bytes in 3 dimensions"),
        (lambda content: b"<html>" + content[6:], "does not begin as an IDX file of bytes in 3 dimensions"),
    ],
)
def test_a_file_that_is_not_whole_is_named(mnist_folder, change, sentence):
    path = mnist_folder / IMAGES
    path.write_bytes(change(path.read_bytes()))
    assert f"{path} {sentence}" in refused(mnist_folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-9],
        lambda content: b"<html>",
        lambda content: content[:-8] + bytes(8),
        lambda content: content[:10] + b"\xff" * 8,
    ],
    ids=["truncated", "something else", "checksum", "compression"],
)
def test_a_gzip_file_that_is_not_whole_is_named(mnist_folder, change):
    path = mnist_folder / LABELS
    path.write_bytes(change(path.read_bytes()))
    assert f"{path} is no whole gzip file" in refused(mnist_folder)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read .Is a directory.: check the path"):
        read_idx(tmp_path, 1)


def test_a_label_out_of_range_is_named_with_its_place(mnist_folder, write_idx):
    labels = np.arange(120) % 10
    labels[7] = 10
    write_idx(mnist_folder / LABELS, labels)
    assert f"{mnist_folder / LABELS}: label 10 of sample 7 is out of range 0 to 9" in refused(mnist_folder)


def test_as_many_labels_as_images(mnist_folder, write_idx):
    write_idx(mnist_folder / LABELS, np.arange(119) % 10)
    assert f"{mnist_folder / IMAGES} holds 120 images but {mnist_folder / LABELS} 119 labels" in refused(mnist_folder)


def test_images_of_another_size_are_refused(mnist_folder, write_idx):
    write_idx(mnist_folder / IMAGES, np.zeros((120, 32, 32)))
    assert f"{mnist_folder / IMAGES} holds images of (32, 32) pixels, MNIST's are (28, 28)" in refused(mnist_folder)


def test_too_few_samples_of_a_class_name_the_folder(mnist_folder, write_idx):
    write_idx(mnist_folder / LABELS, np.repeat([0, 1], [110, 10]))
    write_idx(mnist_folder / "t10k-labels-idx1-ubyte.gz", np.arange(80) % 10)
    assert f"{mnist_folder}: class 2 has 8 samples, and a stratified 80/10/10 split needs at least 10" in refused(
        mnist_folder
    )
