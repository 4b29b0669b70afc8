"""Plain tests whose calls have two speeds or move, over made series of calls."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest

from fwbench.compare.duet import Duet
from fwbench.compare.pair import Pair
from fwbench.ext.causes.speeds import remarks
from fwbench.record.plain import PlainTest
from tests.unit.test_duet import THRESHOLDS


def told(pairs):
    """The remark; empty if there is none."""
    return "; ".join(remarks(pairs))


BY_CALL, BY_PROCESS = "calls have two speeds", "processes have two speeds"
SLOWER, FASTER = "slower with each one", "faster with each one"


def pairs_of(draw, count, calls=48, seed=0):
    """Pairs of processes, each with the calls that `draw` makes of logarithms of noise."""
    rng = np.random.default_rng(seed)
    described = {side: {"settings": {}, "versions": {}} for side in ("base", "head")}
    made = []
    for number in range(count):
        logs = [math.log(1e-4) + draw(rng, number, side) + 0.004 * rng.standard_t(3, calls) for side in described]
        # The fastest of two calls of each turn counts.
        base, head = (np.mean([min(turn) for turn in np.array_split(log, max(1, calls // 2))]) for log in logs)
        rounds = {side: np.exp(log).tolist() for side, log in zip(described, logs, strict=True)}
        cpu = [1e-4 if draw in (on_a_shared_cpu, taken_off_its_cpu) else float(np.exp(log).mean()) for log in logs]
        values = {side: {"cpu_time": time} for side, time in zip(described, cpu, strict=True)}
        differences = {"latency": float(head - base), "cpu_time": math.log(cpu[1] / cpu[0])}
        made.append(Pair(differences, rounds, values, described, 0.0, 1.0))
    return made


def by_call(rng, number, side):
    return np.where(rng.random(48) < 0.5, 0.0, 0.25)


def by_call_with_stops(rng, number, side):
    calls = by_call(rng, number, side)
    calls[rng.integers(48)] += 1.0
    return calls


def by_process(rng, number, side):
    return 0.25 * rng.integers(2)


def growing(rng, number, side):
    return np.linspace(0.0, 0.08, 48)


def falling(rng, number, side):
    return np.linspace(0.08, 0.0, 48)


@pytest.mark.parametrize("count", [3, 8])
@pytest.mark.parametrize(
    ("draw", "said"), [(by_call, BY_CALL), (by_call_with_stops, BY_CALL), (growing, SLOWER), (falling, FASTER)]
)
def test_calls_with_two_speeds_and_calls_that_move_are_named(draw, said, count):
    assert said in told(pairs_of(draw, count))


@pytest.mark.parametrize("count", [6, 8, 24])
def test_processes_with_two_speeds_are_named(count):
    assert BY_PROCESS in told(pairs_of(by_process, count))


def without_cpu_time(pairs, every):
    """The pairs; in each so-many-th one a side has no CPU time, the sides in turn."""
    made = []
    for number, pair in enumerate(pairs):
        side = ("base", "head")[number // every % 2]
        made.append(pair)
        if number % every == 0:
            differences = {"latency": pair.differences["latency"]}
            made[-1] = dataclasses.replace(pair, values={**pair.values, side: {}}, differences=differences)
    return made


@pytest.mark.parametrize("every", [1, 2, 3])
def test_processes_without_a_cpu_time_are_no_fast_ones(every):
    assert told(without_cpu_time(pairs_of(steady, 24), every)) == ""
    assert (BY_PROCESS in told(without_cpu_time(pairs_of(by_process, 24), every))) is (every > 1)
    assert BY_CALL in told(without_cpu_time(pairs_of(by_call, 24), every))


def steady(rng, number, side):
    return 0.0


def changed(rng, number, side):
    return 0.3 * (side == "head")


def slow_spell_in_a_process(rng, number, side):
    """For a quarter of each process's calls something else computes."""
    begun = rng.integers(36)
    return np.where((np.arange(48) >= begun) & (np.arange(48) < begun + 12), 0.5, 0.0)


def by_process_in_spells(rng, number, side):
    """The machine is up to 1.6 times as slow in half of the pairs."""
    return by_process(rng, number, side) + 0.5 * np.random.default_rng(number).random() * (number % 2)


def by_call_in_spells(rng, number, side):
    return by_call(rng, number, side) + 0.4 * (np.arange(48) >= np.random.default_rng(number).integers(48))


def by_call_with_noise(rng, number, side):
    return by_call(rng, number, side) + 0.04 * rng.standard_normal(48)


def spell(number):
    """The machine becomes slow somewhere in a pair, or fast again."""
    begun = np.random.default_rng(number).integers(48)
    return 0.4 * ((np.arange(48) >= begun) ^ (number % 2))


def growing_in_spells(rng, number, side):
    return np.linspace(0.0, 0.4, 48) + spell(number)


def creeping(rng, number, side):
    return np.linspace(0.0, 0.035, 48)


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (by_call_in_spells, BY_CALL),
        (by_call_with_noise, BY_CALL),
        (by_process_in_spells, BY_PROCESS),
        (growing_in_spells, SLOWER),
        (creeping, SLOWER),
    ],
)
def test_two_speeds_are_named_on_a_machine_that_is_noisy_or_slow_in_spells(draw, said):
    assert said in told(pairs_of(draw, 16))


def spells_that_begin_or_end(rng, number, side):
    return spell(number)


def slow_spell_of_pairs(rng, number, side):
    return 0.3 * (number % 3 == 0)


def on_a_shared_cpu(rng, number, side):
    """The side that is on it waits, and computes as before."""
    return by_process(rng, number, side)


def taken_off_its_cpu(rng, number, side):
    """Half of the calls are, for as long as they take, and wait."""
    return 2 * by_call(rng, number, side)


def warm_in_half_of_them(rng, number, side):
    return growing(rng, number, side) if side == "head" else 0.0


def scattered(rng, number, side):
    return rng.standard_t(3, 48) * 0.1 + rng.normal() * 0.05


@pytest.mark.parametrize("count", [3, 8, 24])
@pytest.mark.parametrize(
    "draw",
    [
        steady,
        changed,
        slow_spell_in_a_process,
        spells_that_begin_or_end,
        slow_spell_of_pairs,
        on_a_shared_cpu,
        taken_off_its_cpu,
        warm_in_half_of_them,
        scattered,
    ],
)
def test_noise_load_and_changes_are_not_named(draw, count):
    """A change has one speed on each side; load slows neighbours, and both sides of a pair."""
    assert told(pairs_of(draw, count)) == ""


def test_a_journal_may_hold_calls_without_time():
    """Or no CPU time; whatever a file holds ends in no traceback."""
    pairs = [
        dataclasses.replace(
            pair, rounds=dict.fromkeys(pair.rounds, [0.0] * 9), values={side: {} for side in pair.values}
        )
        for pair in pairs_of(steady, 8)
    ]
    assert told(pairs) == ""


def test_few_calls_are_enough_to_fail_nothing():
    assert told(pairs_of(lambda *_: 0.0, 3, calls=1)) == told([]) == ""


@pytest.mark.parametrize(("draw", "said"), [(by_call, BY_CALL), (by_process, BY_PROCESS), (growing, SLOWER)])
def test_none_of_them_is_a_false_alarm(draw, said):
    """Of 100 gates of unchanged code at most one fails, and what is not unchanged is named."""
    found = []
    for gate in range(100):
        drawn = iter(range(100 * gate, 100 * gate + 100))

        def play(wanted, arrived, drawn=drawn):
            for test in wanted:
                arrived(test, *pairs_of(draw, 1, seed=next(drawn)))

        duet = Duet({PlainTest("a"): {"latency": THRESHOLDS["latency"]}})
        duet.play(play)
        found.append(duet.comparisons()[PlainTest("a")])
    kinds = Counter(comparison.kind for comparison in found)
    assert kinds["regressed"] <= 1
    named = [
        said in comparison.note for comparison in found if draw is not by_process or comparison.kind != "unchanged"
    ]
    assert sum(named) >= 0.95 * len(named) > 30
