"""Change points: what is found in series of known truth, and how often something is found where nothing has changed."""

import numpy as np
import pytest

from fwbench.ext.history import changes
from fwbench.ext.history.changes import find

FLOOR, LEAST = 0.01, np.log1p(0.02)


def noise(number, count, scale=0.015):
    return np.random.default_rng(number).normal(0, scale, count)


def steps(count, *jumps):
    """A series of levels: each jump is a place and a size."""
    return sum((size * (np.arange(count) >= place) for place, size in jumps), np.zeros(count))


def found(values):
    return [(change.before, change.after) for change in find(values, FLOOR, LEAST).changes]


@pytest.mark.parametrize("number", range(5))
def test_steps_are_found_where_they_are_with_their_size(number):
    truth = ((12, 0.2), (24, -0.12), (40, 0.1))
    changed = find(steps(60, *truth) + noise(number, 60), FLOOR, LEAST).changes
    assert len(changed) == 3
    for change, (place, size) in zip(changed, truth, strict=True):
        assert abs(change.after - place) <= 1
        assert not change.drift
        assert change.size == pytest.approx(size, abs=0.03)
        assert change.interval[0] < change.size < change.interval[1]


def test_the_interval_holds_the_size_as_often_as_it_says():
    sizes = [find(steps(40, (20, 0.2)) + noise(number, 40), FLOOR, LEAST).changes for number in range(300)]
    inside = [one.interval[0] <= 0.2 <= one.interval[1] for (one,) in sizes]
    # Binomial: of 300 at 95 %, fewer than 272 have a chance of one in a thousand.
    assert sum(inside) >= 272


FROG = np.log1p(0.03) * np.arange(10)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("before", [0, 10])
def test_ten_runs_each_three_percent_slower_are_one_drift(number, before):
    values = np.concatenate([np.zeros(before), FROG, np.full(before, FROG[-1])])
    (change,) = find(values + noise(number, len(values), 0.01), FLOOR, LEAST).changes
    assert change.drift
    assert change.size == pytest.approx(FROG[-1], abs=0.06)
    assert abs(change.before - max(0, before - 1)) <= 3


@pytest.mark.parametrize("length", [1, 2])
def test_what_comes_and_goes_again_at_once_is_a_spike(length):
    values = noise(1, 40)
    values[20 : 20 + length] += 0.7
    assert find(values, FLOOR, LEAST).changes == ()
    assert find(values, FLOOR, LEAST).spikes >= set(range(20, 20 + length))


def test_three_runs_are_a_level():
    values = noise(2, 40)
    values[20:23] += 0.7
    assert found(values) == [(19, 20), (22, 23)]


def test_a_spike_beside_a_step_moves_neither():
    values = steps(40, (20, 0.2)) + noise(3, 40)
    values[10] += 2
    (change,) = find(values, FLOOR, LEAST).changes
    assert (change.before, change.after) == (19, 20)
    assert change.size == pytest.approx(0.2, abs=0.02)


def test_a_change_below_the_smallest_that_counts_is_none_however_sure_it_is():
    values = steps(400, (200, 0.015)) + noise(4, 400, 0.005)
    assert find(values, 0.001, LEAST).changes == ()
    assert len(find(values, 0.001, 0.01).changes) == 1


@pytest.mark.parametrize("count", range(6))
def test_fewer_runs_than_two_levels_have_hold_nothing(count):
    assert find([float(place) for place in range(count)], FLOOR, LEAST) == changes.Changes()


def test_what_never_varies_has_no_change_and_one_step_of_it_is_sure():
    assert found([0.0] * 30) == []
    assert found(steps(30, (15, 0.1))) == [(14, 15)]


# Error rates


def gaussian(rng, count):
    return rng.normal(0, 0.03, count)


def heavy_tails(rng, count):
    return 0.03 * rng.standard_t(3, count)


def resembling(rng, count):
    """Each run resembles the run before: what the machine does, it goes on doing for a while."""
    values, moved = np.zeros(count), rng.normal(0, 0.03)
    for place in range(count):
        moved = 0.3 * moved + np.sqrt(1 - 0.3**2) * rng.normal(0, 0.03)
        values[place] = moved
    return values


def loaded(rng, count):
    """Other load now and then that nobody has noticed, and that can only lengthen."""
    return rng.normal(0, 0.02, count) + (rng.random(count) < 0.08) * rng.exponential(0.4, count)


def bands(rng, count):
    """One of two layouts by chance."""
    return rng.choice([0, 0.05], count) + rng.normal(0, 0.01, count)


def false_points(of, runs=9000):
    """Points found in series without a change, per run."""
    rng = np.random.default_rng(7)
    lengths = [10] * (runs // 30) + [20] * (runs // 60) + [60] * (runs // 180)
    return sum(len(find(of(rng, count), FLOOR, LEAST).changes) for count in lengths) / sum(lengths)


@pytest.mark.parametrize("of", [gaussian, heavy_tails, resembling, loaded, bands])
def test_unchanged_series_have_a_false_point_in_a_thousand_runs_at_most(of):
    assert false_points(of) <= 0.001


@pytest.mark.parametrize(
    ("part", "broken", "of"),
    [
        # Whatever is likelier than not.
        ("_ALPHA", 0.5, gaussian),
        # A spike is a run like others.
        ("_SPIKE", np.inf, loaded),
        # Runs have nothing to do with each other.
        ("_resembling", lambda rests, levels: 0.5, resembling),
        # No vote is needed.
        ("_confirmed", lambda values, cuts, floor, least: dict.fromkeys(cuts, 0.0), gaussian),
    ],
)
def test_a_broken_part_is_found_by_its_false_points(monkeypatch, part, broken, of):
    monkeypatch.setattr(changes, part, broken)
    assert false_points(of) > 0.001
