"""Digits: the split, the scaling, the fitting to a model's input."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from fwbench.data import DataError, open_data
from fwbench.data.grey import enlarged, stratified
from fwbench.models import CATALOG

DIGITS = load_digits()


def whole(data, split):
    """All samples and labels of an evaluation split."""
    ((x, y),) = data.batches(split, data.sizes[split])
    return x, y


def test_digits_come_as_they_are_where_the_model_takes_their_size(shaped):
    with open_data("digits", shaped(64)) as data:
        parts = [next(data.batches(split, data.sizes[split])) for split in data.sizes]
    x = np.concatenate([x for x, _ in parts])
    y = np.concatenate([y for _, y in parts])
    assert x.shape == (1797, 64)
    assert (x.min(), x.max()) == (0, 1)
    # Every sample once, whatever the order, with its own label.
    rows = sorted(zip((x * 16).astype(int).tolist(), y.tolist(), strict=True))
    expected = sorted(zip(DIGITS.data.astype(int).tolist(), DIGITS.target.tolist(), strict=True))
    assert rows == expected


def test_every_split_has_each_class_in_its_share():
    with open_data("digits", CATALOG["mlp"]) as data:
        assert data.sizes == {"train": 1437, "validation": 180, "test": 180}
        _, train = next(data.batches("train", 1437))
        counts = {"train": np.bincount(train, minlength=10)}
        counts |= {split: np.bincount(whole(data, split)[1], minlength=10) for split in ("validation", "test")}
    of_class = np.bincount(DIGITS.target)
    for split, share in (("train", 0.8), ("validation", 0.1), ("test", 0.1)):
        assert np.abs(counts[split] - share * of_class).max() < 2


def test_the_split_depends_on_the_seed():
    def members(seed):
        parts = stratified(DIGITS.target, 10, seed, "somewhere")
        return {split: set(part.tolist()) for split, part in parts.items()}

    one, other = members(0), members(1)
    assert members(0) == one
    assert all(one[split] != other[split] for split in ("train", "validation", "test"))


@pytest.mark.parametrize("side", [8, 9, 28, 33])
def test_enlarging_is_pillows_bilinear_resize(side):
    images = DIGITS.images[:5].astype(np.float32)
    expected = [
        np.asarray(Image.fromarray(image).resize((side, 2 * side), Image.Resampling.BILINEAR)) for image in images
    ]
    np.testing.assert_allclose(enlarged(images, 2 * side, side), expected, rtol=0, atol=1e-5)


def test_a_samples_bits_do_not_depend_on_the_batch_it_is_in():
    images = DIGITS.images[:7].astype(np.float32) / 16
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
