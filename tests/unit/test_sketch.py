"""Sketches of what a program computed: small, the same for the same arrays, and as far apart as the arrays are."""

import base64
import json
import zlib

import numpy as np
import pytest

from fwbench.meters import sketching
from fwbench.record.sketch import Sketch

RNG = np.random.default_rng(0)


def sketch(quantity="gradients", moved=None, **arrays):
    """The sketch of these arrays, as it lies on a record."""
    elsewhere = [] if moved is None else [sketching._all_folded({quantity: moved})]
    (packed,) = sketching.sketches_of(sketching._all_folded({quantity: arrays}, lengths=True), elsewhere).values()
    return json.loads(json.dumps(packed))


def distance(one, other):
    """The relative distance of two sketches."""
    slots = [Sketch.from_json(packed).slots.astype(np.float64) for packed in (one, other)]
    return np.linalg.norm(slots[0] - slots[1]) / np.linalg.norm(slots[0])


def test_a_sketch_survives_json():
    given = Sketch(
        ("a.weight", "b.bias ... c.weight"),
        np.array([[0.1, -2.0, 3.5], [1e-30, 0.0, 1e30]], np.float32),
        np.array([4.03125, 1e-3], np.float32),
        np.array([np.nan, np.inf], np.float32),
    )
    found = Sketch.from_json(json.loads(json.dumps(given.to_json())))
    assert found.names == given.names
    np.testing.assert_array_equal(found.slots, given.slots)
    # Three digits.
    np.testing.assert_allclose(found.norms, given.norms, rtol=2**-7)
    np.testing.assert_array_equal(found.moved, given.moved)


PACKED = sketch(**{"fc.weight": RNG.standard_normal(9), "fc.bias": np.ones(3)})


def text(packed):
    return base64.b64encode(packed).decode()


@pytest.mark.parametrize(
    "damage",
    [
        {"names": "%%%"},
        {"names": text(b"no zlib")},
        {"names": text(zlib.compress(b"\xff\xfe"))},
        {"names": text(zlib.compress(b"a\nb\nc\nd\ne"))},
        {"slots": text(b"abc")},
        {"slots": text(bytes(20))},
        {"slots": ""},
        {"norms": text(bytes(2))},
        {"norms": text(bytes(3))},
        {"moved": text(bytes(6))},
        {"moved": None},
        {"moved": 3.0},
    ],
)
def test_a_damaged_sketch_is_a_value_error(damage):
    assert Sketch.from_json(PACKED).slots.shape == (2, 3)
    with pytest.raises(ValueError, match=r"\w+ "):
        Sketch.from_json({**PACKED, **damage})


@pytest.mark.parametrize("missing", ["names", "slots", "norms", "moved"])
def test_a_sketch_without_a_part_is_a_value_error(missing):
    with pytest.raises(ValueError, match=f"cannot be unpacked.*{missing}"):
        Sketch.from_json({name: part for name, part in PACKED.items() if name != missing})


@pytest.mark.parametrize("size", [1, 3, 100, 256])
def test_what_fits_into_the_slots_is_told_exactly(size):
    one = RNG.standard_normal(size)
    other = one + 1e-3 * RNG.standard_normal(size)
    quantity = "gradients" if size <= 3 else "output"
    arrays = [{"x": array} if quantity == "gradients" else array for array in (one, other)]
    folded = [sketching._all_folded({quantity: given}) for given in arrays]
    packed = [sketching.sketches_of(own, [folded[1]])[quantity] for own in folded]
    expected = np.linalg.norm(one - other) / np.linalg.norm(one)
    assert distance(*packed) == pytest.approx(expected, rel=1e-3)
    assert Sketch.from_json(packed[0]).moved == pytest.approx(expected * np.linalg.norm(one), rel=2**-7)


@pytest.mark.parametrize("shape", [(257,), (64, 1000), (3, 7, 11, 13), (2_000_003,)])
@pytest.mark.parametrize("change", ["everywhere", "in one place", "a common factor"])
def test_the_distance_of_sketches_is_about_that_of_the_arrays(shape, change):
    """Of 256 slots the standard error is 4 %: more than five of them are a fault."""
    one = RNG.standard_normal(shape).astype(np.float32)
    if change == "everywhere":
        other = one + np.float32(1e-2) * RNG.standard_normal(shape).astype(np.float32)
    elif change == "in one place":
        other = one.copy()
        other.flat[one.size // 2] += 7
    else:
        other = one * np.float32(1.003)
    folds = (sketching._all_folded({"output": array}, lengths=True) for array in (one, other))
    (packed,), (beside,) = (sketching.sketches_of(fold, []).values() for fold in folds)
    slots = [Sketch.from_json(given).slots.astype(np.float64) for given in (packed, beside)]
    expected = np.linalg.norm(other.astype(np.float64) - one)
    assert np.linalg.norm(slots[0] - slots[1]) == pytest.approx(expected, rel=0.25)
    assert Sketch.from_json(packed).norms == pytest.approx(np.linalg.norm(one.astype(np.float64)), rel=2**-7)


def test_the_order_of_arrays_makes_no_difference():
    arrays = {f"layer{n}.weight": RNG.standard_normal((5, n + 1)) for n in range(300)}
    assert sketch(**arrays) == sketch(**dict(reversed(arrays.items())))
    # Their names and their places do.
    assert sketch(a=np.arange(9.0), b=np.ones(9)) != sketch(a=np.ones(9), b=np.arange(9.0))
    assert distance(sketch(a=np.arange(9.0)), sketch(a=np.arange(9.0)[::-1])) > 0.1


def test_signs_differ_from_array_to_array():
    """Else two arrays that swap a change would look the same."""
    slots = [Sketch.from_json(sketch(**{name: np.ones(3)})).slots.tolist() for name in "abcdefgh"]
    assert len({tuple(given[0]) for given in slots}) > 4


def test_a_change_in_any_of_the_merged_arrays_is_seen():
    arrays = {f"layer{n}.weight": RNG.standard_normal(50) for n in range(600)}
    whole = Sketch.from_json(sketch(**arrays))
    assert len(whole.names) == 160
    assert whole.names[0] == "layer0.weight ... layer100.weight"
    for name in ("layer0.weight", "layer57.weight", "layer599.weight"):
        changed = Sketch.from_json(sketch(**arrays | {name: arrays[name] * 1.5}))
        apart = np.flatnonzero((changed.slots != whole.slots).any(axis=1))
        assert len(apart) == 1
        assert name in whole.names[apart[0]] or name == "layer57.weight"
        size = np.linalg.norm(arrays[name])
        assert 0.02 < np.linalg.norm(changed.slots[apart] - whole.slots[apart]) / size < 2


def test_what_a_large_network_adds_to_a_record_stays_small():
    """600 arrays and 200 statistics under long names."""
    names = [f"backbone.stages.{n // 20}.blocks.{n % 20}.attention.projection.weight" for n in range(600)]
    gradients = {name: RNG.standard_normal(8) for name in names}
    running = {f"{name}.running_{what}": np.ones(8) for name in names[:200] for what in ("mean", "var")}
    given = {"loss": np.array([2.3]), "gradients": gradients, "updates": gradients, "statistics": running}
    folded = sketching._all_folded(given, lengths=True)
    packed = sketching.sketches_of(folded, [folded])
    assert packed.keys() == given.keys()
    assert len(json.dumps(packed)) < 8 * 1024
