"""What holds for every source, shown on samples in memory."""

import numpy as np
import pytest

from fwbench.ext.epochs.data import Data, DataError, digest
from fwbench.ext.epochs.data.synthetic import Synthetic
from fwbench.models import CATALOG

SIZES = {"train": 22, "validation": 10, "test": 8}


class Numbers(Data):
    """Sample i of a split is the number i + 1."""

    def __init__(self, seed=0):
        labels = {split: np.arange(size, dtype=np.int32) for split, size in SIZES.items()}
        super().__init__("numbers", 22, labels, seed)
        self.ended = 0

    def _images(self, split, batch_size, epoch, plan):
        try:
            for indices in plan:
                yield indices[:, None].astype(np.float32) + 1
        finally:
            self.ended += 1


def seen(data, split, batch_size, epoch=0):
    """The labels of one pass, batch by batch."""
    return [y.tolist() for _, y in data.batches(split, batch_size, epoch)]


def test_evaluation_comes_in_order_and_its_last_batch_is_filled_up_with_ignored_zeros():
    batches = list(Numbers().batches("validation", 4))
    assert [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, -1, -1]]
    assert [x.ravel().tolist() for x, _ in batches] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 0, 0]]
    assert {(x.dtype, y.dtype) for x, y in batches} == {(np.dtype(np.float32), np.dtype(np.int32))}


def test_a_split_that_fills_its_batches_is_not_padded():
    assert seen(Numbers(), "test", 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_training_sees_each_sample_once_and_drops_the_incomplete_batch():
    batches = seen(Numbers(), "train", 5)
    assert [len(batch) for batch in batches] == [5, 5, 5, 5]
    everything = [label for batch in batches for label in batch]
    assert len(set(everything)) == 20
    assert set(everything) <= set(range(22))


def test_samples_and_labels_stay_together():
    for x, y in Numbers().batches("train", 5, epoch=3):
        np.testing.assert_array_equal(x[:, 0], y + 1)


def test_training_order_depends_on_seed_and_epoch_alone():
    first = seen(Numbers(), "train", 5)
    assert seen(Numbers(), "train", 5) == first
    assert first != sorted(first)
    others = [seen(Numbers(), "train", 5, epoch=1), seen(Numbers(seed=1), "train", 5)]
    assert first not in others
    assert others[0] != others[1]


def test_the_sources_loop_ends_with_an_abandoned_iterator():
    data = Numbers()
    batches = data.batches("train", 5)
    next(batches)
    assert data.ended == 0
    batches.close()
    assert data.ended == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("training", 4), r"numbers has no split 'training': choose from train, validation, test"),
        (("train", 0), "batch size 0 must be at least 1"),
        (("train", 4, -1), "epoch -1 at least 0"),
        (("train", 23), "numbers has 22 training samples, which make no batch of 23: choose a smaller batch size"),
    ],
)
def test_arguments_that_no_pass_could_serve_are_refused_before_it(arguments, sentence):
    with pytest.raises(DataError, match=sentence):
        Numbers().batches(*arguments)


def test_a_data_error_is_a_value_error():
    assert issubclass(DataError, ValueError)


def test_leaving_the_context_closes_the_data(monkeypatch):
    closed = []
    monkeypatch.setattr(Numbers, "close", lambda self: closed.append(self))
    with Numbers() as data:
        assert closed == []
    assert closed == [data]


def test_a_digest_tells_apart_bits_shapes_types_and_order():
    x, y = np.zeros((2, 3), np.float32), np.array([0, 1], np.int32)
    changed = x.copy()
    changed[1, 2] = np.float32(-0.0)
    variants = [
        [(x, y)],
        [(changed, y)],
        [(x.reshape(3, 2), y)],
        [(x.view(np.int32), y)],
        [(x, y[::-1])],
        [(x, y), (x, y)],
        [],
    ]
    assert len({digest(variant) for variant in variants}) == len(variants)
    assert digest([(x.copy(), y.copy())]) == digest([(x, y)])


def test_synthetic_samples_are_standard_normal_and_their_labels_uniform():
    with Synthetic(CATALOG["cnn"], 0, {"train": 2000, "test": 100}) as data:
        assert data.sizes == {"train": 2000, "test": 100}
        ((x, y),) = data.batches("train", 2000)
        assert x.shape == (2000, 32, 32, 3)
        # Six standard errors each.
        assert abs(x.mean()) < 6 / x.size**0.5
        assert abs(x.std() - 1) < 6 / (2 * x.size) ** 0.5
        assert np.abs(np.bincount(y, minlength=10) - 200).max() < 6 * 200**0.5


def test_synthetic_splits_and_seeds_differ():
    def first(seed, split):
        return next(Synthetic(CATALOG["mlp"], seed, SIZES).batches(split, 8))[0].tobytes()

    assert first(0, "test") == first(0, "test")
    assert len({first(0, "test"), first(1, "test"), first(0, "validation")}) == 3
