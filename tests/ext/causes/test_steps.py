"""The search for steps over given series; nothing is measured."""

import itertools
import math

import numpy as np
import pytest

from fwbench.ext.causes import steps
from fwbench.ext.causes.steps import ERROR, OverError, Search, Stretch, UnmeasurableError


def searched(changes, *, revisions=61, scatter=0.005, seed=0, broken=(), most=math.inf):
    """A search that has ended.

    Args:
        changes: by number, the share by which a revision is slower than the one before.
        broken: revisions that cannot be measured.
        most: pairs after which the time is over.
    """
    draw = np.random.default_rng(seed)
    levels = np.zeros(revisions)
    for number, change in changes.items():
        levels[number:] += math.log1p(change)
    played = itertools.count()

    def play(first, last):
        for number in {first, last} & set(broken):
            raise UnmeasurableError(number, "it is broken")
        if next(played) >= most:
            raise OverError("the time was over")
        return levels[last] - levels[first] + scatter * draw.standard_t(3)

    search = Search(revisions, play)
    search.run()
    return search


def named(search):
    return sorted((step.first, step.last) for step in search.steps)


def compared(search):
    return [(each.first, each.last) for each in search.compared]


@pytest.mark.parametrize("change", [0.05, -0.05])
@pytest.mark.parametrize("number", [1, 17, 30, 31, 60])
def test_one_step_is_named_with_its_size_wherever_it_is(number, change):
    search = searched({number: change})
    assert named(search) == [(number - 1, number)]
    (step,) = search.steps
    assert step.low < math.log1p(change) < step.high
    assert abs(step.change - math.log1p(change)) < 0.01
    assert search.unexplained == []
    # Some look for changes that cancel out, down to a sixteenth.
    assert 12 <= len(search.compared) <= 24


def given(levels, **options):
    """A search over these values, that has ended."""
    search = Search(len(levels), lambda first, last: math.log(levels[last] / levels[first]), **options)
    search.run()
    return search


def test_what_is_exact_is_decided_by_one_pair_a_comparison():
    search = given([1.0, 1.0, 1.3, 1.3, 1.3, 0.9, 0.9], exact=True)
    assert named(search) == [(1, 2), (4, 5)]
    assert {each.pairs for each in search.compared} == {1}
    assert search.unexplained == []
    equal = given([1.0] * 7, exact=True)
    assert ({each.pairs for each in equal.compared}, equal.steps) == ({1}, [])


def test_what_is_exact_and_comes_from_no_neighbours_is_a_rest():
    search = Search(5, lambda first, last: 0.3 * (last - first == 4), exact=True)
    search.run()
    assert [(rest.first, rest.last, rest.pairs) for rest in search.unexplained] == [(0, 4, 1)]


BACK = 1 / 1.06 - 1


@pytest.mark.parametrize(
    ("changes", "options", "steps"),
    [
        # Steps in both directions.
        ({9: 0.06, 31: -0.04, 52: 0.05}, {}, [(8, 9), (30, 31), (51, 52)]),
        # Changes that cancel out, across the quarters and within one, which is the module's stated limit.
        ({10: 0.06, 20: BACK}, {}, [(9, 10), (19, 20)]),
        ({3: 0.06, 12: BACK}, {}, []),
        # Between the neighbours of what cannot be measured.
        ({3: 0.05}, {"revisions": 6, "broken": (2, 3)}, [(1, 4)]),
        # However certain a change is, it must exceed the threshold.
        ({1: 0.015}, {"revisions": 2, "scatter": 0.0001}, []),
    ],
)
def test_these_steps_are_named_and_no_others(changes, options, steps):
    assert named(searched(changes, **options)) == steps


@pytest.mark.parametrize(("threshold", "steps"), [(0.02, [(1, 2)]), (0.10, [])])
@pytest.mark.parametrize("exact", [True, False])
def test_a_change_below_the_metrics_threshold_is_no_step(threshold, steps, exact):
    assert named(given([1.0, 1.0, 1.08, 1.08, 1.08], threshold=threshold, exact=exact)) == steps


def test_unchanged_revisions_are_cut_twice_and_no_step_is_named():
    search = searched({})
    assert compared(search) == [(0, 60), (0, 30), (0, 15), (30, 45)]
    assert (search.steps, search.unexplained, search.ended) == ([], [], "")
    assert {each.pairs for each in search.compared} == {4}


def test_where_something_differs_the_look_goes_down_to_a_sixteenth():
    """The same changes within a quarter, and a step elsewhere."""
    search = searched({3: 0.06, 12: BACK, 50: 0.05})
    assert named(search) == [(2, 3), (11, 12), (49, 50)]
    assert search.halvings == 4
    assert searched({}).halvings == 2


def test_a_drift_is_no_step_and_reported_as_unexplained():
    search = searched(dict.fromkeys(range(1, 61), 0.003))
    assert search.steps == []
    assert search.unexplained
    assert all(rest.change > math.log1p(0.02) and rest.last - rest.first > 1 for rest in search.unexplained)


def test_what_a_named_step_explains_is_not_reported_again():
    """The step explains 5 of 8 %; small changes before it make the rest."""
    search = searched({40: 0.05, **dict.fromkeys(range(1, 31), 0.001)})
    assert named(search) == [(39, 40)]
    (rest,) = search.unexplained
    assert 0.02 < rest.change < 0.04
    assert (rest.first, rest.last) == (0, 30)


def test_the_rest_of_a_stretch_is_its_change_without_its_steps():
    search = Search(9, lambda first, last: 0.0)
    search.steps = [Stretch(3, 4, 0.05, 0.04, 0.06, 12)]
    search.compared = [Stretch(0, 8, 0.08, 0.07, 0.09, 6), Stretch(0, 4, 0.055, 0.04, 0.07, 6), *search.steps]
    (rest,) = search.unexplained
    assert (rest.first, rest.last, rest.pairs) == (0, 8, 6)
    assert (rest.change, rest.low, rest.high) == pytest.approx((0.03, 0.02, 0.04))


def test_what_cannot_be_measured_is_stepped_over():
    search = searched({40: 0.05}, broken=(0, 30, 31, 29, 60))
    assert named(search) == [(39, 40)]
    assert sorted(search.unmeasurable) == [0, 30, 31, 60] or sorted(search.unmeasurable) == [0, 29, 30, 31, 60]
    assert compared(search)[0] == (1, 59)


def test_without_two_measurable_revisions_nothing_is_compared():
    search = searched({}, revisions=4, broken=(0, 1, 3))
    assert (search.compared, search.steps, search.ended) == ([], [], "")
    assert sorted(search.unmeasurable) == [0, 1, 3]


def test_two_revisions_are_compared_once():
    search = searched({1: 0.05}, revisions=2)
    assert (named(search), len(search.compared)) == ([(0, 1)], 1)


def test_when_the_time_is_over_it_says_what_it_knows():
    search = searched({20: 0.05, 50: 0.20}, most=65)
    assert search.ended == "the time was over"
    # The larger change came first; the smaller one is what was not searched.
    assert named(search) == [(49, 50)]
    assert any(stretch.first <= 19 and stretch.last >= 20 and stretch.differs for stretch in search.unsearched)
    assert any(rest.first <= 19 and rest.last >= 20 for rest in search.unexplained)


def test_the_pairs_of_a_comparison_that_was_cut_short_are_kept():
    search = searched({20: 0.05}, most=3)
    assert [(each.first, each.last, each.pairs) for each in search.compared] == [(0, 60, 3)]
    assert search.ended


def test_the_chances_to_err_add_up_to_the_stated_share():
    """However many neighbours are compared."""
    search = Search(2, lambda first, last: 0.0)
    chances = [search._next_level() for _ in range(10_000)]
    assert chances[0] == ERROR / 2
    assert ERROR * 0.999 < sum(chances) <= ERROR


def test_neighbours_without_a_change_are_rarely_called_different():
    """All pairs lie beyond the threshold, with signs drawn by lot, so only the bets keep the rate."""
    draw = np.random.default_rng(0)
    wrong = 0
    for _ in range(600):
        search = Search(2, lambda first, last: 0.05 * draw.choice((-1, 1)))
        search.run()
        wrong += bool(search.steps)
    assert wrong <= 0.025 * 600


def test_a_pair_that_was_played_before_counts():
    def searched(*played):
        asked = []
        search = Search(2, lambda first, last: asked.append(first) or 0.05, played=played)
        search.run()
        return search.steps[0].pairs, len(asked)

    pairs, asked = searched()
    assert pairs == asked
    assert searched(0.05) == (pairs, asked - 1)


def test_both_directions_share_the_chance_to_err():
    """The first pair with a stake of 2/a decides."""
    certain = [0.05] * 30
    pairs = next(n for n in range(4, 30) if Search(0, None)._verdict(certain[:n], 0.05, 64) == "different")
    stake = steps.evidence(certain, ())
    assert stake[pairs - 1] >= 2 / 0.05 > stake[pairs - 2]
