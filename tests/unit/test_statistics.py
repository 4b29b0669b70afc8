"""The decision's error rates, simulated; and its parts against what the literature and scipy say."""

import contextlib
import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fwbench.compare import statistics
from fwbench.compare.statistics import (
    LOOKS,
    SCREENING,
    TOLERATED,
    Confirmation,
    Suspect,
    cleared,
    estimate,
    holm,
    interval,
    p_values,
    screen,
    screening_pairs,
)

BENCHMARKS = 20
SUITES = 400


def gaussian(rng, n):
    return rng.standard_normal(n)


def heavy_tails(rng, n):
    return rng.standard_t(1.5, n)


def storms(rng, n):
    """Quiet for most of the time; then everything is ten times as noisy for a while."""
    stormy = np.repeat(rng.random(n // 4 + 1) < 0.2, 4)[:n]
    return rng.standard_normal(n) * np.where(stormy, 10.0, 1.0)


def autocorrelated(rng, n):
    """A drift that favours whoever runs first; who does is drawn for each pair."""
    drift = _decay(n) @ np.append(0.0, rng.standard_normal(n - 1))
    return drift * rng.choice([-1, 1], n)


@functools.cache
def _decay(n):
    """What is left at each step (row) of what was added at each one before (column): nine tenths a step."""
    return np.tril(0.9 ** np.subtract.outer(range(n), range(n)))


NOISES = [gaussian, heavy_tails, storms, autocorrelated]


def decide(rng, noise, scale, effects):
    """One suite: its verdicts by benchmark.

    Args:
        noise: draws the differences of unchanged code, in units of `scale`.
        effects: slowdown of each benchmark as a share.
    """
    first = [pairs_of(rng, noise, scale, effect, SCREENING + 1) for effect in effects]
    first = [drawn[: screening_pairs(drawn[:SCREENING])] for drawn in first]
    suspects = {name: suspect for name, drawn in enumerate(first) if (suspect := screen(drawn))}
    fresh = {name: pairs_of(rng, noise, scale, effects[name], LOOKS[-1].pairs) for name in suspects}
    verdicts = {name: cleared(drawn) for name, drawn in enumerate(first) if name not in suspects}
    return verdicts | confirm(suspects, fresh)


def pairs_of(rng, noise, scale, effect, n):
    return list(math.log1p(effect) + scale * noise(rng, n))


def confirm(suspects, fresh):
    """The verdicts on a suite's suspects with these fresh pairs."""
    confirmation = Confirmation(suspects)
    while confirmation.wanted:
        confirmation.judge({name: fresh[name][: confirmation.wanted] for name in confirmation.open})
    return confirmation.verdicts


def failed_suites(noise, scale, seed=0):
    """How many of the suites with unchanged code fail.

    As `decide` has it, which says of each suite what it says of benchmarks that are no suspects, too.
    """
    rng = np.random.default_rng(seed)
    suites = []
    for _ in range(SUITES):
        first = [pairs_of(rng, noise, scale, 0.0, SCREENING + 1) for _ in range(BENCHMARKS)]
        found = (screen(drawn[: screening_pairs(drawn[:SCREENING])]) for drawn in first)
        suspects = {name: suspect for name, suspect in enumerate(found) if suspect}
        suites.append((suspects, {name: pairs_of(rng, noise, scale, 0.0, LOOKS[-1].pairs) for name in suspects}))
    with at_once(suites):
        verdicts = [confirm(*suite) for suite in suites]
    return sum(any(verdict.kind == "regressed" for verdict in of.values()) for of in verdicts)


@contextlib.contextmanager
def at_once(suites):
    """Let the p-values of all suspects at all looks be found in advance: a call of SciPy's costs as much as of many."""
    known = {}
    for look in LOOKS:
        tests = [
            ([suspect.direction * d for d in fresh[name][: look.pairs]], TOLERATED * suspect.threshold)
            for suspects, fresh in suites
            for name, suspect in suspects.items()
        ]
        if look.alpha and tests:
            found = statistics.p_values(*map(list, zip(*tests, strict=True)))
            known |= {(*pairs, tolerated): p for (pairs, tolerated), p in zip(tests, found, strict=True)}

    def p_values(differences, tolerated):
        return [known[*pairs, share] for pairs, share in zip(differences, tolerated, strict=True)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "p_values", p_values)
        yield


def at_least(failures):
    """The rate of false alarms that so many failures prove, at 99.9 % (Clopper and Pearson 1934)."""
    return stats.beta.ppf(0.001, failures, SUITES - failures + 1) if failures else 0.0


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("noise", NOISES)
def test_unchanged_suites_fail_once_in_a_hundred_at_most(noise, scale):
    assert at_least(failed_suites(noise, scale)) <= 0.01


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        # Certain of everything, as a test on rounds is.
        ("p_values", lambda differences, tolerated: [1e-9] * len(differences)),
        # No control over the suite's many benchmarks.
        ("holm", lambda p_values, alpha: {name for name, p in p_values.items() if p <= 0.05}),
        # The most extreme pair for the typical one.
        ("estimate", max),
    ],
)
def test_a_broken_statistic_is_found_by_its_false_alarms(monkeypatch, part, broken):
    monkeypatch.setattr(statistics, part, broken)
    if part == "estimate":
        monkeypatch.setattr(statistics, "p_values", lambda differences, tolerated: [1e-9] * len(differences))
    assert at_least(failed_suites(gaussian, 0.05)) > 0.01


@pytest.mark.parametrize(("slowdown", "scale"), [(0.05, 0.0046), (0.05, 0.012), (0.10, 0.012), (0.10, 0.025)])
def test_a_slowdown_is_found(slowdown, scale):
    """With the scatter between pairs that the study measured: 0.5 to 1.2 %; and twice that for 10 %."""
    rng = np.random.default_rng(1)
    effects = [slowdown] + [0.0] * (BENCHMARKS - 1)
    found = [decide(rng, gaussian, scale, effects)[0].kind == "regressed" for _ in range(SUITES)]
    assert np.mean(found) >= 0.95


RUNS = 150
# The chance that `cleared` leaves, one in fourteen, and three standard errors of so many runs.
HIDDEN = 1 / 14 + 3 * math.sqrt(1 / 14 * 13 / 14 / RUNS)


def called_unchanged(noise, scale):
    """The share of benchmarks slowed down by 5 % that are said not to have changed."""
    rng = np.random.default_rng(5)
    return np.mean([decide(rng, noise, scale, [0.05])[0].kind == "unchanged" for _ in range(RUNS)])


@pytest.mark.parametrize("scale", [0.05, 0.1])
@pytest.mark.parametrize("noise", NOISES)
def test_a_slowdown_that_noise_hides_is_hardly_ever_called_unchanged(noise, scale):
    assert called_unchanged(noise, scale) <= HIDDEN


def test_without_regard_to_scatter_a_hidden_slowdown_is_called_unchanged(monkeypatch):
    say = cleared
    monkeypatch.setattr(statistics, "cleared", lambda differences, threshold, p=None: say(differences, math.inf, p))
    assert called_unchanged(gaussian, 0.1) > HIDDEN


@pytest.mark.parametrize(
    ("differences", "threshold", "kind"),
    [
        ([0.01, -0.01, 0.005], 0.02, "unchanged"),
        # What the self-test missed: 5 % under load.
        ([-0.040921, -0.211379, 0.196058, 0.033964], 0.02, "inconclusive"),
        ([-0.040921, -0.211379, 0.196058, 0.033964], 0.10, "unchanged"),
        # The same scatter is averaged out by more pairs.
        ([-0.05, 0.05] * 2, 0.02, "inconclusive"),
        ([-0.05, 0.05] * 8, 0.02, "unchanged"),
    ],
)
def test_pairs_that_scatter_cannot_say_that_nothing_changed(differences, threshold, kind):
    verdict = cleared(differences, threshold)
    assert verdict.kind == kind
    assert bool(verdict.note) == (kind == "inconclusive")


def test_a_note_says_how_far_pairs_that_do_not_tell_are_apart():
    assert cleared([-0.1, 0.0, 0.1]).note.startswith("3 pairs, from -10% to +11%, do not decide")


def test_a_slowdown_below_the_threshold_is_none():
    rng = np.random.default_rng(2)
    kinds = [decide(rng, gaussian, 0.005, [0.004])[0].kind for _ in range(SUITES)]
    assert kinds.count("regressed") == 0


def test_a_faster_head_is_improved_and_no_failure():
    rng = np.random.default_rng(3)
    kinds = [decide(rng, gaussian, 0.01, [-0.10])[0].kind for _ in range(100)]
    assert set(kinds) <= {"improved", "inconclusive"}
    assert kinds.count("improved") >= 95


def test_noise_that_hides_a_change_is_inconclusive_and_never_silently_green():
    pairs = [0.03, 0.05, -0.02, 0.04, 0.06, -0.03, 0.05, 0.02, -0.01, 0.07, 0.04, -0.04, 0.05, 0.03, -0.02, 0.06]
    confirmation = Confirmation({"it": Suspect(1)})
    while confirmation.wanted:
        confirmation.judge({"it": pairs[: confirmation.wanted]})
    verdict = confirmation.verdicts["it"]
    assert verdict.kind == "inconclusive"
    assert "measure again" in verdict.note
    assert verdict.pairs == 16


def test_a_suspect_is_cleared_at_the_first_look_that_shows_nothing():
    confirmation = Confirmation({"a": Suspect(1), "b": Suspect(1)})
    confirmation.judge({"a": [0.001, -0.002, 0.002, 0.0], "b": [0.05] * 4})
    assert confirmation.verdicts["a"].kind == "unchanged"
    assert confirmation.open == ("b",)
    assert confirmation.wanted == 10


def test_cleared_suspects_still_count_among_the_hypotheses():
    """Ten pairs allow a p of 1/1024 at best: enough for up to four suspects at 0.4 %, and for no five."""
    pairs = [0.05 + index / 1000 for index in range(10)]
    for suspects, kind in ((4, "regressed"), (5, None)):
        confirmation = Confirmation({str(name): Suspect(1) for name in range(suspects)})
        confirmation.judge({str(name): [0.0, 0.001, -0.001, 0.0] if name else pairs[:4] for name in range(suspects)})
        assert confirmation.open == ("0",)
        confirmation.judge({"0": pairs})
        found = confirmation.verdicts.get("0")
        assert (found.kind if found else None) == kind


def test_scattered_pairs_are_screened_with_one_more():
    assert screening_pairs([]) == 3
    assert screening_pairs([0.0, 0.001, -0.001]) == 3
    assert screening_pairs([0.0, 0.1, -0.1]) == 4
    assert screening_pairs([0.0, 0.1, -0.1, 0.0]) == 4


def test_the_estimate_is_the_median_of_all_pairwise_means():
    # 1, 2 and 9 have the means 1, 1.5, 2, 5, 5.5 and 9.
    assert estimate([1.0, 9.0, 2.0]) == 3.5
    assert estimate([4.0]) == 4.0


def test_the_estimate_withstands_a_storm():
    assert estimate([0.0, 0.001, -0.001, 0.002, 5.0]) < 0.01


@pytest.mark.parametrize("n", [3, 6, 10, 16])
def test_the_interval_is_the_tests_own(n):
    """Shifted to its ends, the differences are at the limit of what the two-sided exact test accepts."""
    differences = np.random.default_rng(n).standard_normal(n)
    low, high, confidence = interval(differences)
    best = 1 - 2 * 0.5**n
    assert confidence == pytest.approx(best) if best < 0.95 else 0.95 <= confidence < 0.99
    for end, inwards in ((low, 1e-9), (high, -1e-9)):
        inside, outside = (
            stats.wilcoxon(differences - end - shift, method="exact").pvalue for shift in (inwards, -inwards)
        )
        assert outside == pytest.approx(1 - confidence)
        assert inside > outside


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    n, runs = 10, 2000
    covered = sum(low <= 0 <= high for low, high, _ in (interval(rng.standard_normal(n)) for _ in range(runs)))
    confidence = interval(rng.standard_normal(n))[2]
    assert abs(covered / runs - confidence) < 4 * math.sqrt(confidence * (1 - confidence) / runs)


def test_the_p_value_counts_sign_patterns():
    differences = [0.011, -0.004, 0.023, 0.017, 0.031]
    shifted = np.array(differences) - math.log1p(0.005)
    ranks = stats.rankdata(np.abs(shifted))
    observed = ranks[shifted > 0].sum()
    patterns = [np.dot(signs, ranks) for signs in itertools.product((0, 1), repeat=len(ranks))]
    expected = np.mean(np.array(patterns) >= observed)
    # Each row is a test of its own.
    found = p_values([differences, [-1.0, -2.0, -3.0, -4.0, -5.0]], [0.005, 0.0])
    assert found == pytest.approx([expected, 1.0])


def test_holm():
    assert holm({"a": 0.01, "b": 0.02, "c": 0.9}, 0.05) == {"a", "b"}
    assert holm({"a": 0.02, "b": 0.02, "c": 0.9}, 0.05) == set()
    assert holm({"a": 0.04}, 0.05) == {"a"}
    assert holm({"a": 1e-9}, 0.0) == set()
    assert holm({}, 0.05) == set()
