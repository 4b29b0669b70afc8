"""Lanes in turns: when rounds are played, what they decide, and where that is kept."""

import dataclasses
import itertools
import json
import math
import os
import random
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fwbench.compare import rounds as of_rounds
from fwbench.compare.cases import cases
from fwbench.compare.pair import Fault
from fwbench.compare.ratios import (
    EQUAL,
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    PRECISE,
    Scatter,
    alike,
    as_usual,
    pooled_scatter,
    ratio_interval,
    ratio_verdict,
    usual_pace,
)
from fwbench.compare.weighing import weigh
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.plugin import deciding, turning
from fwbench.plugin.deciding import contests, decide
from fwbench.plugin.session import Session
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import Failure, Metric
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns import lanes, rounds
from fwbench.worker.turns.lanes import Lanes, Round
from fwbench.worker.turns.sides import Side
from fwbench.worker.turns.taken import Amounts, Taken
from tests.unit.fakes import FakeGpu
from tests.unit.recorded import measured
from tests.unit.shared import needs
from tests.unit.suites import FAST, in_process
from tests.unit.suites import suite as noops

__all__ = ["noops"]


class Played:
    """Rounds in which JAX is so many times as fast as PyTorch, by batch size, each of which takes 10 s.

    Attributes:
        left: seconds of the run.
        asked: the batch sizes of each call.
        load: of the next rounds, that others took; 0 when there are none.
        loaded: batch sizes of which others disturb every round.
        faults: batch sizes that JAX fails at.
    """

    def __init__(self, ratios, left=1e6, scatter=0.0):
        self.ratios, self.left, self.scatter = ratios, left, scatter
        self.asked, self.load, self.loaded, self.faults = [], [], (), ()
        self._random = random.Random(0)
        self._begun = 0.0
        self.seconds = 10.0
        # How many times as long a call takes, by batch size.
        self.lengths = {}

    def play(self, workloads, arrived):
        self.asked.append([workload.batch_size for workload in workloads])
        for workload in workloads:
            arrived(workload, self._round(workload))

    def _round(self, workload):
        self.left -= self.seconds
        self._begun += 1
        if workload.batch_size in self.faults:
            return Fault("here", "jax", Failure("crashed", "it was killed by SIGSEGV"))
        ratio = self.ratios[workload.batch_size] * math.exp(self._random.gauss(0, self.scatter))
        load = 0.3 if workload.batch_size in self.loaded else self.load.pop(0) if self.load else 0.0
        call = 0.02 * self.lengths.get(workload.batch_size, 1)
        return Round(self._begun, calls(torch=(call, call), jax=(call / ratio, call / ratio)), load, self.seconds)


def calls(**seconds):
    """What a round found of calls back to back."""
    return {lane: {"call": blocks} for lane, blocks in seconds.items()}


def of(sizes, **fields):
    """The contests of PyTorch and JAX at these batch sizes."""
    found = [
        measured(lane, batch_size=size, stages={"build": 5.0}, **fields) for size in sizes for lane in ("torch", "jax")
    ]
    made = contests(found, cpus=2)
    for contest in made:
        contest.seconds = 10.0
    return made


def run(found, played):
    lines = []
    decide(found, played.play, lambda: played.left, lambda played: None, lines.append)
    return lines


@pytest.mark.parametrize("ratio", [1.0, 1.045, 1.5])
def test_rounds_end_when_the_ratio_is_precise_whatever_it_is(ratio):
    """Rounds that ended where the answer pleases would miss the truth more often than they say."""
    found, played = of([1, 2, 3]), Played({1: ratio, 2: 1.0, 3: 2.0}, scatter=0.001)
    last = run(found, played)[-1]
    counts = {contest.played for contest in found}
    assert len(counts) == 1
    assert FEWEST_ROUNDS <= min(counts) < MOST_ROUNDS
    assert all(contest.width <= PRECISE for contest in found)
    assert last == f"{sum(contest.played for contest in found)} rounds of turns: 3 of 3 workloads known within 5%"


def test_where_first_answers_alone_are_asked_for_each_contest_plays_what_it_lacks():
    found, played = of([1, 2]), Played({1: 1.0, 2: 2.0}, scatter=0.1)
    decide(found, played.play, lambda: played.left, lambda played: None, lambda line: None, further=False)
    assert [contest.played for contest in found] == [FEWEST_ROUNDS] * 2


def test_what_scatters_is_open_after_the_most_rounds():
    found = of([1])
    last = run(found, Played({1: 1.02}, scatter=0.2))[-1]
    assert found[0].played == MOST_ROUNDS
    assert last == f"{MOST_ROUNDS} rounds of turns: 0 of 1 workloads known within 5%"


def test_a_program_with_two_speeds_plays_when_the_others_are_known():
    found, played = of([1, 2, 3, 4]), Played(dict.fromkeys((1, 2, 3, 4), 1.0), left=160, scatter=0.01)
    speeds = itertools.cycle([1.2, 0.9])
    play = played.play

    def scattered(workloads, arrived):
        played.ratios[4] = next(speeds)
        play(workloads, arrived)

    played.play = scattered
    run(found, played)
    *others, wild = found
    assert all(contest.width <= EQUAL for contest in others)
    assert max(contest.played for contest in others) > FEWEST_ROUNDS
    assert set(played.asked[2]) == {1, 2, 3}
    assert played.asked[-1] == [4]
    assert wild.width > EQUAL


def test_the_widest_plays_when_all_are_known():
    contests = [SimpleNamespace(width=width, lacks=False, mixed=False, name=width) for width in (0.02, 0.045, 0.03)]
    assert [each.name for each in deciding._first(contests)] == [0.045, 0.03]
    contests.append(SimpleNamespace(width=0.2, lacks=False, mixed=False, price=9.0, name=0.2))
    assert [each.name for each in deciding._first(contests)] == [0.2]
    contests.append(SimpleNamespace(lacks=True, name=None))
    assert [each.name for each in deciding._first(contests)] == [None]


@pytest.mark.parametrize(
    ("widths", "seconds", "first"),
    [
        # One round of 18 s, or two of 3 s each.
        ((0.051, 0.06, 0.12), (18.0, 3.0, 3.0), [1]),
        ((0.051, 0.06, 0.08), (5.0, 3.0, 3.0), [0, 1]),
        # More rounds than it may play.
        ((0.3, 0.051), (1.0, 60.0), [1]),
        ((0.3, 0.4), (1.0, 1.0), [0, 1]),
    ],
)
def test_what_is_known_soonest_plays_first(monkeypatch, widths, seconds, first):
    found = of(range(1, len(widths) + 1))
    for contest, each in zip(found, seconds, strict=True):
        contest.seconds = each
        contest.turns = {lane: [{}] * 3 for lane in contest.lanes}
    of_contest = {id(contest): width for contest, width in zip(found, widths, strict=True)}
    monkeypatch.setattr(deciding.Contest, "width", property(lambda contest: of_contest[id(contest)]))
    assert sorted(map(found.index, deciding._first(found))) == first


@pytest.mark.parametrize(
    ("torch", "jax", "over"),
    [
        ([1.0] * 10, [2.0, *[2.03] * 4, *[3.0] * 5], True),
        ([1.0] * 9, [2.0] * 9, False),
        ([1.0] * 10, [2.0, *[2.03] * 3, *[3.0] * 6], False),
        ([*[1.0] * 4, *[1.03] * 6], [2.0] * 10, False),
        ([*[1.0] * 4, *[1.03] * 8], [2.0] * 12, True),
    ],
)
def test_turns_end_when_the_fastest_of_each_lane_agree_or_they_are_enough(torch, jax, over):
    assert lanes.settled([torch, jax], Amounts(1, 12, 0.02, 30.0, fewest=10, enough=12)) is over


@pytest.mark.parametrize(("busy", "turns", "over"), [(True, 2, True), (False, 2, False), (False, 4, True)])
def test_on_a_gpu_that_sets_all_lanes_speed_two_turns_that_agree_make_a_round(tmp_path, busy, turns, over):
    here = Side("here", "this run", PACKAGE, tmp_path, tmp_path)
    workload = Workload("", "noop", mode="fixed", device="gpu")
    played = Lanes(here, {}, CATALOG, machine(), "gpu", 60.0, busy={workload} if busy else ())
    taken = Taken(played._amounts(workload))
    taken.described = {"torch": {}}
    taken.blocks, played._pace = turns // 2, SimpleNamespace(read=lambda: None)
    taken.paces = [0.0] * taken.blocks
    for turn in range(turns):
        taken.keep("call", 0, turn // 2, "torch", 1.0)
    assert played._over(taken) is over


def test_rounds_of_an_h200_took_about_as_long_as_is_expected_of_them(monkeypatch):
    """Successive rounds from the same servers, of the lanes that took turns then."""
    recorded = read(Path(__file__).parents[2] / ".benchmarks" / "baselines" / "nvidia-h200-lanes.jsonl")
    measured_there = {(m.workload.of_all, m.workload.lane): m for m in recorded.measurements}
    ratios = []
    for before, after in itertools.pairwise(sorted(recorded.rounds, key=lambda each: each.begun)):
        if before.turns.keys() != after.turns.keys():
            continue
        expected = 0.0
        for lane, turns in before.turns.items():
            m = measured_there[before.workload, lane]
            call = m.workload.samples / m.value("throughput")
            # They took other numbers of turns than rounds do now.
            monkeypatch.setattr(lanes, "_BUSY", len(turns["call"]))
            expected += m.stages["build"] + m.loading + lanes.seconds_on_gpu(m.value("latency_p50"), call, busy=True)
        ratios.append((after.begun - before.begun) / expected)
    assert len(ratios) == 9
    # Before one of them servers were started.
    assert 0.8 < min(ratios) < max(ratios) < 1.5
    assert 0.9 < statistics.geometric_mean(ratios) < 1.2


def test_no_round_is_begun_that_does_not_fit_and_all_time_is_used():
    found, played = of([1, 2, 3]), Played({1: 1.0, 2: 1.0, 3: 1.0}, left=107, scatter=0.05)
    run(found, played)
    assert played.asked[0] == [1, 2, 3]
    assert 0 <= played.left < 10
    nothing = Played({1: 1.0}, left=5)
    assert run(of([1]), nothing) == ["0 rounds of turns: 0 of 1 workloads known within 5%"]
    assert not nothing.asked


def test_where_time_is_short_some_workloads_have_an_interval_rather_than_all_of_them_one_round():
    found, played = of([1, 2, 3]), Played({1: 1.0, 2: 1.0, 3: 1.0}, left=50, scatter=0.02)
    run(found, played)
    assert played.asked[:2] == [[1, 2]] * 2
    assert found[2].played == 0


def test_where_time_is_short_the_shortest_rounds_come_first():
    lanes = [("torch", 1, 0.4), ("jax", 1, 0.4), ("torch", 2, 0.01), ("jax", 2, 0.01)]
    found = contests(
        [measured(lane, batch_size=size, metrics={"latency_p50": Metric(p50, "given")}) for lane, size, p50 in lanes],
        cpus=2,
    )
    played = Played({1: 1.0, 2: 3.0}, left=2.5 * found[1].seconds)
    played.seconds = found[1].seconds
    run(found, played)
    assert played.asked == [[2], [2]]


def test_a_workload_beside_other_load_does_not_keep_the_others_from_their_rounds():
    found, played = of([1, 2]), Played({1: 2.0, 2: 1.0}, left=160, scatter=0.001)
    played.loaded = (1,)
    run(found, played)
    (loaded, quiet) = found
    assert loaded.played == 0
    assert loaded.disturbed > 0
    assert quiet.played >= FEWEST_ROUNDS


def test_a_lane_that_was_measured_again_gets_its_rounds_beside_those_that_others_have():
    turns = tuple({"begun": begun, "call": [0.01]} for begun in (-2.0, -1.0))
    found = contests([measured("torch", turns=turns), measured("jax")], cpus=2)
    assert found[0].played == 0


def test_lanes_that_share_no_seed_take_no_turns():
    torch, jax = measured("torch", seed=1), measured("jax", seed=2)
    assert not contests([torch, jax], cpus=2)
    (contest,) = contests([torch, jax, measured("jax", seed=1)], cpus=2)
    assert contest.workload.seed == 1


def test_a_round_beside_other_load_does_not_count():
    found, played = of([1]), Played({1: 2.0})
    played.load = [0.3, 0.09, 0.11]
    assert "2 further rounds do not count, as other processes used the CPUs" in run(found, played)[-1]
    assert len(played.asked) == found[0].played + 2


@pytest.mark.parametrize(
    ("device", "met", "counts"),
    [
        ("cpu", {"load": 0.0}, True),
        ("cpu", {"load": 0.0, "held": True}, False),
        ("cpu", {"load": 1.1 / 64}, False),
        ("gpu", {"load": 0.0, "disturbed": "a neighbour"}, False),
        # One busy CPU of 64; seven of them, which leave 57 free; the same where nobody tells who waited.
        ("gpu", {"load": 1.1 / 64}, True),
        ("gpu", {"load": 0.11, "waited": 0.001}, True),
        ("gpu", {"load": 0.11}, False),
        ("gpu", {"load": 0.11, "waited": 0.05}, False),
    ],
)
def test_a_round_counts_that_nothing_disturbed_and_on_a_gpu_one_that_found_a_free_cpu(device, met, counts):
    (contest,) = contests([measured(lane, device=device) for lane in ("torch", "jax")], cpus=64)
    assert bool(contest.add(Round(1.0, calls(torch=(0.02,), jax=(0.01,)), seconds=10.0, **met))) is counts
    assert (contest.played, contest.disturbed) == ((1, 0) if counts else (0, 1))


def test_lanes_that_cannot_take_turns_do_not_keep_the_others_from_it():
    found, played = of([1, 2]), Played({1: 2.0, 2: 2.0})
    played.faults = (1,)
    assert run(found, played)[-1].endswith(
        "1 of 2 workloads known within 5%; mlp inference b1, jax: it was killed by SIGSEGV"
    )
    assert played.asked[0] == [1, 2]
    assert played.asked[1:] == [[2]] * (found[1].played - 1)


@pytest.mark.parametrize("digest", ["one", "another"])
def test_turns_are_of_the_program_that_was_measured(digest):
    (contest,) = of([1], program=Fingerprint("StableHLO", "one"))
    contest.add(Round(1.0, calls(torch=(0.02,), jax=(0.01,)), 0.0, 10.0, {"torch": "one", "jax": digest}))
    assert (contest.played, contest.fault is None) == ((1, True) if digest == "one" else (0, False))
    assert contest.over == bool(contest.fault)


def test_rounds_of_an_earlier_part_of_the_run_count():
    turns = tuple({"begun": begun, "call": [0.01]} for begun in (-2.0, -1.0))
    found = of([1], turns=turns)
    played = Played({1: 1.0}, left=18)
    run(found, played)
    assert (found[0].played, len(played.asked)) == (3, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "fit"},
        {"devices": 2},
        {"settings": {"fallback_flags": "XLA_FLAGS=--x"}},
        {"metrics": {"throughput": Metric(None, "given", "not known")}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_these_take_no_turns(change):
    assert len(of([2])) == 1
    assert not of([2], **change)


def rounds_of_a_run(scatter, spread, wild, seed, left=420):
    """14 workloads with rounds about no difference, each with a scatter of its own, in time for three rounds each."""
    rng, scatters, spent = random.Random(seed), {}, []

    def play(workloads, arrived):
        for workload in workloads:
            own = scatters.setdefault(workload, scatter * math.exp(rng.gauss(0, spread)))
            ratio = math.exp(rng.gauss(0, own) + (rng.uniform(-0.3, 0.3) if rng.random() < wild else 0.0))
            spent.append(10)
            arrived(workload, Round(rng.random(), calls(torch=(0.02,), jax=(0.02 / ratio,)), 0.0, 10.0))

    found = of(range(1, 15))
    decide(found, play, lambda: left - sum(spent), lambda played: None, lambda line: None)
    return found


def ends(contest):
    _, low, high = ratio_interval(next(of_rounds.differences(contest.counted)), contest.expected["torch"])
    return low, high


@pytest.mark.parametrize("wild", [pytest.param(0.0, marks=pytest.mark.slow), 0.125])
@pytest.mark.parametrize(
    ("scatter", "spread"), [pytest.param(0.005, 0.0, marks=pytest.mark.slow), (0.015, 0.5), (0.05, 0.5)]
)
def test_at_most_one_in_100_intervals_misses_the_truth(scatter, spread, wild):
    """Of 280, 2.8 would; 10 or more by chance less than once in 1000 times."""
    found = [contest for seed in range(20) for contest in rounds_of_a_run(scatter, spread, wild, seed)]
    assert sum(not low <= 0 <= high for low, high in map(ends, found)) < 10


@pytest.mark.parametrize(
    ("rounds", "counted"),
    [
        ([0.0, 0.01, -0.01, 0.005, 0.3], 4),
        # Nobody knows which of them most processes are like.
        ([0.0, 0.01, 0.3], 3),
        ([0.0, 0.01, -0.01, 0.3], 4),
        ([0.0, 0.01, 0.005, 0.3, 0.31], 5),
        ([0.0, 0.01, 0.005, 0.002, -0.01, 0.3, 0.31], 5),
        ([0.0, 0.05, -0.05, 0.1, 0.15], 5),
    ],
)
def test_rounds_far_from_most_others_do_not_count(rounds, counted):
    assert alike(rounds, Scatter(0.015, 3.0)).count(True) == counted
    mean, low, high = ratio_interval(rounds, Scatter(0.015, 3.0))
    kept = rounds[:counted]
    assert mean == pytest.approx(statistics.fmean(kept))
    assert low < mean < high
    assert (high - low < 0.06) is (0.3 not in kept and 0.15 not in kept)


def test_rounds_in_which_the_host_had_moved_the_cpus_do_not_count():
    """In every fifth round JAX takes 1.3 times as long, and two CPUs need 1.5 times as long for a hand-over."""
    found, spent = of([1, 2]), []

    def play(workloads, arrived):
        for workload in workloads:
            apart = len(spent) % 5 == 0
            spent.append(10)
            values = calls(torch=(0.02,), jax=(0.01 * (1.3 if apart else 1.0),))
            arrived(workload, Round(0.0, values, 0.0, 10.0, pace=0.8e-6 if apart else 0.54e-6))

    lines = []
    decide(found, play, lambda: 1000 - sum(spent), lambda played: None, lines.append)
    for contest in found:
        assert list(of_rounds.differences(contest.counted)) == [[pytest.approx(-math.log(2))] * contest.played]
        assert contest.width <= PRECISE
    assert sum(contest.slow for contest in found) == -(-len(spent) // 5)
    assert f"{sum(contest.slow for contest in found)} further rounds do not count" in lines[-1]


@pytest.mark.parametrize(
    ("paces", "counting"),
    [
        ([0.8, 0.8, 0.8], [0.8, 0.8, 0.8]),
        ([0.8, 0.5, 0.8], [0.8, 0.5, 0.8]),
        ([0.8, 0.5, 0.8, 0.5], [0.5, 0.5]),
        ([0.8, 0.0, 0.5], [0.0, 0.5]),
    ],
)
def test_rounds_at_another_pace_count_until_two_at_the_usual_one_give_an_interval(paces, counting):
    assert [each["pace"] for each in of_rounds.counted(({"pace": pace} for pace in paces), 0.5)] == counting


@pytest.mark.parametrize(
    ("paces", "first"), [((0.5, 0.8), True), ((0.5, 0.5), False), ((0.8, 0.8), False), ((0.5, 0.8, 0.8), False)]
)
def test_a_round_at_an_unusual_pace_is_replaced_before_others_play(monkeypatch, paces, first):
    found = of([1, 2])
    for contest, own in zip(found, ((0.5, 0.5), paces), strict=True):
        contest.usual, contest.turns = 0.5, {lane: [{"pace": pace} for pace in own] for lane in contest.lanes}
    # The other one is known sooner, and this one may not play as many rounds as its interval asks for.
    of_contest = {id(contest): width for contest, width in zip(found, (0.06, 0.3), strict=True)}
    monkeypatch.setattr(deciding.Contest, "width", property(lambda contest: of_contest[id(contest)]))
    assert deciding._first(found) == [found[1] if first else found[0]]


class Moved:
    """A machine whose CPUs take 1.6 times as long to hand a number to each other, and 2 ms for a call instead of 1.

    Args:
        slow: true for the number of a turn that is so slow.
        known: whether the pace can be read.
    """

    def __init__(self, slow, known):
        self.slow, self.known = slow, known
        self.turns = 0

    def read(self):
        return (0.8e-6 if self.slow(self.turns) else 0.5e-6) if self.known else None

    def take(self, message, answer):
        latency = 0.002 if self.slow(self.turns) else 0.001
        self.turns += 1
        # No two turns agree in `call`, so turns are over when they are enough.
        return {"latency": latency, "call": self.turns, "cpu": 0.1, "others": 0.0, "held": 0.0, "waited": None}


@pytest.mark.parametrize(
    ("slow", "known", "turns", "latencies", "pace"),
    [
        pytest.param(lambda turn: False, True, 24, {0.001}, 0.5e-6, id="never"),
        pytest.param(lambda turn: 20 <= turn < 32, True, 24, {0.001}, 0.5e-6, id="for a while"),
        pytest.param(lambda turn: turn >= 20, True, 8, {0.001}, 0.5e-6, id="since the fifth block"),
        pytest.param(lambda turn: turn % 8 >= 4, True, 36, {0.001, 0.002}, 0.8e-6, id="before or after each block"),
        pytest.param(lambda turn: turn % 64 >= 4, True, 24, {0.002}, 0.8e-6, id="nearly always"),
        pytest.param(lambda turn: 20 <= turn < 32, False, 24, {0.001, 0.002}, 0.0, id="unknown"),
    ],
)
def test_turns_count_at_the_usual_pace(tmp_path, slow, known, turns, latencies, pace):
    here = Side("here", "this run", PACKAGE, tmp_path, PACKAGE.parent)
    played = Lanes(here, {}, CATALOG, machine(), "cpu", 60.0)
    played._pace = moved = Moved(slow, known)
    taken = Taken(played.amounts)
    taken.plan(0.01, 2)
    taken.described = {"torch": {}, "jax": {}}
    for block in range(taken.blocks):
        for name in ("torch", "jax", "jax", "torch"):
            partner = SimpleNamespace(seat=SimpleNamespace(name=name), ask=moved.take)
            played._turn(partner, taken, 0, block)
        if played._over(taken):
            break
    result = played._result(taken, 1.0, 0.0)
    assert result.pace == pytest.approx(pace)
    for values in result.values.values():
        assert len(values["call"]) == len(values["latency"]) == turns
        assert {round(value, 6) for value in values["latency"]} == latencies


def test_the_usual_pace_is_that_of_the_fastest_quarter_and_rounds_of_unknown_pace_are_at_it():
    series = [], [0.8], [0.8, 0.54, 0.8, 0.8], [0.8, 0.54, 0.8, 0.8, 0.8], [0.8, 0.54, 0.8, 0.55, 0.8]
    assert [*map(usual_pace, series)] == [0.0, 0.8, 0.54, 0.8, 0.55]
    assert [as_usual(pace, 0.54) for pace in (0.63, 0.7, 0.3, 0.0)] == [True, False, False, True]
    assert as_usual(0.8, 0.0)


@pytest.mark.parametrize("slow", [0.0, 1 / 7])
def test_an_answer_is_about_most_processes(slow):
    """One process in seven takes 1.33 times as long; the other six decide. Where more are slow by chance, they do."""
    rng, missed, widths = random.Random(3), 0, []
    for _ in range(1000):
        rounds = [rng.gauss(0, 0.015) + (math.log(1.33) if rng.random() < slow else 0.0) for _ in range(7)]
        expected = Scatter(0.015 * math.exp(rng.gauss(0, 0.3)), 3.0)
        _, low, high = ratio_interval(rounds, expected)
        missed += not low <= 0 <= high
        widths.append((high - low) / 2)
    assert missed <= 20
    assert statistics.median(widths) < 0.025


def test_where_rounds_agree_within_one_and_a_half_percent_three_of_each_workload_are_mostly_enough():
    found = [contest for seed in range(10) for contest in rounds_of_a_run(0.015, 0.5, 0.0, seed)]
    verdicts = [ratio_verdict(*ends(contest)) for contest in found]
    # Four fifths are expected.
    assert sum(contest.width <= EQUAL for contest in found) >= 0.75 * len(found)
    assert sum(verdict in ("equal", "near") for verdict in verdicts) >= 0.95 * len(found)


def test_two_rounds_that_agree_prove_little():
    mean, low, high = ratio_interval([math.log(1.05)] * 2)
    assert mean == pytest.approx(math.log(1.05))
    assert low < 0 < high


def test_only_programs_of_like_duration_teach_what_scatter_to_expect():
    noisy, quiet = (50e-6, [0.3, -0.3, 0.2, -0.2]), (0.2, [0.01, -0.01, 0.01, -0.01])
    assert pooled_scatter([noisy, quiet], 0.1) == pooled_scatter([quiet], 0.1)
    assert 0.01 < pooled_scatter([quiet], 0.1).deviation < 0.02
    assert pooled_scatter([noisy] * 2, 100e-6).deviation > 0.2
    assert pooled_scatter([noisy, quiet], 3e-3) == Scatter()


def test_what_a_gpu_keeps_waiting_and_what_its_host_holds_up_expect_scatters_of_their_own():
    def lane(*calls):
        return [{"begun": f"{number}", "call": [call, call]} for number, call in enumerate(calls)]

    steady = {"torch": lane(0.011, 0.011), "jax": lane(0.012, 0.01201)}
    wild = {"torch": lane(0.004, 0.006), "jax": lane(0.003, 0.002)}
    of_gpu = of_rounds.Played(steady, {"torch": 0.0105, "jax": 0.0115})
    of_host = of_rounds.Played(wild, {"torch": 0.001, "jax": 0.001})
    told = of_rounds.expected(of_gpu, [of_gpu, of_host])
    assert told == of_rounds.expected(of_gpu, [of_gpu])
    assert all(each.deviation <= 0.005 for each in told.values())
    assert of_rounds.expected(of_host, [of_gpu]) == {"torch": Scatter(), "jax": Scatter()}
    # One lane of each kind: what the host holds up scatters as such lanes do.
    both = of_rounds.Played(steady, {"torch": 0.0105, "jax": 0.001})
    told = of_rounds.expected(both, [of_host])
    assert told["jax"].deviation > 0.1 > told["torch"].deviation
    assert of_rounds.wider(*told.values()) == told["jax"]


def test_two_rounds_decide_what_a_gpu_is_busy_with_as_an_h200_has_shown():
    baseline = Path(__file__).parents[2] / ".benchmarks" / "baselines" / "nvidia-h200-lanes.jsonl"
    measurements = read(baseline).measurements

    def farthest(measurements):
        inferring = [m for m in measurements if m.workload.mode == "inference"]
        of = {case.workload.lane: case for case in cases(inferring) if case.workload.model == "resnet50"}
        return weigh(of["torch"], of["jax"]).interval.farthest

    assert farthest(measurements) < 0.02
    unknown = [dataclasses.replace(m, metrics={**m.metrics, "device_time": Metric(None, "", "")}) for m in measurements]
    assert farthest(unknown) > EQUAL


def test_a_program_with_two_speeds_says_nothing_of_the_others():
    quiet = [(0.1, [0.01, -0.01]), (0.1, [0.0, 0.01]), (0.1, [0.02, 0.01])]
    wild = (0.1, [0.06, -0.2])
    assert pooled_scatter([*quiet, wild], 0.1).deviation < 0.021


def test_an_interval_has_one_of_four_answers():
    ends = (0.01, 0.2), (-0.3, -0.01), (-0.04, 0.04), (-0.02, 0.09), (-0.11, 0.01)
    verdicts = ["faster", "faster", "equal", "near", "undecided"]
    assert [ratio_verdict(*each) for each in ends] == verdicts


TEST = """
import fwbench

@fwbench.benchmark("mlp", lanes=["torch", "jax"], batch_sizes=[1, 2])
def test_speed(fwbench_measure):
    fwbench_measure()
"""


@pytest.fixture
def suite(noops, monkeypatch):
    """A user's suite in two lanes that find the same throughput; in turns JAX is twice as fast."""
    noops.makepyfile(test_suite=TEST)
    noops.played = Played({1: 2.0, 2: 2.0})

    def measure(self, workload, protocol, tell=None):
        found = measured(workload.lane, samples=(1.0,) * 7, protocol=dataclasses.asdict(protocol))
        return dataclasses.replace(found, workload=workload)

    monkeypatch.setattr(Session, "run", measure)
    monkeypatch.setattr(Lanes, "play", lambda lanes, workloads, arrived: noops.played.play(workloads, arrived))
    return noops


def test_turns_are_kept_on_the_record_and_in_the_journal(suite):
    result = in_process(suite, "--benchmark-only", "--benchmark-json=run.json", *FAST, "--fwbench-minutes=5")
    result.assert_outcomes(passed=4)
    rounds = len(suite.played.asked)
    assert suite.played.asked == [[1, 2]] * rounds
    result.stdout.fnmatch_lines(
        [
            "fwbench: 4 benchmarks, about *",
            "fwbench: lanes take turns in what is left of 5 min, 2 min at least",
            f"[[]{2 * rounds} rounds of turns: 2 of 2 workloads known within 5%]",
            "mlp    inference  1      jax 2.00 (1.9? to 2.0?) times as fast  torch    proved",
        ]
    )
    saved = json.loads(suite.path.joinpath("run.json").read_text())["benchmarks"]
    journal = read(next(suite.path.glob(".benchmarks/journal/*.jsonl")))
    run = read(suite.path / "run.json")
    assert run.rounds == journal.rounds
    assert sorted(each.begun for each in run.rounds) == list(range(1, 2 * rounds + 1))
    assert len(saved) == len(run.measurements) == len(journal.measurements) == 4
    for record in (run, journal):
        for m in record.measurements:
            own = [each for each in record.rounds if each.workload == dataclasses.replace(m.workload, lane="")]
            assert len(own) == rounds
            assert [turns["begun"] for turns in m.turns] == [each.begun for each in own]
            assert [turns["call"] for turns in m.turns] == [each.turns[m.workload.lane]["call"] for each in own]
    assert not any("turns" in benchmark["extra_info"] for benchmark in saved)


@pytest.mark.parametrize("options", [(), ("-v",)])
def test_a_run_that_compares_lanes_ends_with_answers_and_with_each_lanes_numbers_under_v(suite, options):
    result = in_process(suite, "--benchmark-only", *FAST, *options)
    _, _, end = result.stdout.str().partition(" profile on ")
    assert "open: " in end
    assert ("throughput/s" in end) is bool(options)
    (said,) = (line for line in end.splitlines() if line.startswith("journal: "))
    path = said.removeprefix("journal: ").partition(";")[0]
    shown = "all of it:" if options else "each lane's latency, throughput and memory: -v, or"
    assert said == f"journal: {path}; {shown} fwbench report {path}"


def test_a_report_decides_by_the_rounds_and_the_scatter_by_which_the_run_has_decided():
    """Its last line would else say another thing than the table."""

    def turns(call, scatter, pace=0.0):
        return tuple(
            {"begun": float(at), "call": [call * math.exp(off)], "pace": pace and (3 * pace if at == 4 else pace)}
            for at, off in enumerate((0.0, scatter, -scatter, 2 * scatter, 0.5))
        )

    made = [
        measured(lane, batch_size=batch, turns=turns(call, scatter, 2e-7))
        for batch, scatter in ((1, 0.0), (2, 0.01), (3, 0.03))
        for lane, call, scatter in (("torch", 1.0, 0.0), ("jax", 2.0, scatter))
    ]
    found = contests(made, cpus=2)
    decide(found, None, lambda: 0.0, None, lambda line: None)
    assert [contest.played for contest in found] == [4, 4, 4]
    assert len({contest.expected["jax"].deviation for contest in found}) > 1
    for contest in found:
        for case in cases(made):
            if case.workload.batch_size == contest.workload.batch_size:
                assert case.expected == contest.expected[case.workload.lane]
                assert [of for _, of in case.turns] == contest.counted[case.workload.lane]


@pytest.mark.parametrize(
    ("options", "turns"),
    [
        (["--fwbench-minutes=0"], False),
        (["--fwbench-profile=ci"], False),
        (["--fwbench-profile=ci", "--fwbench-minutes=5"], True),
        ([], True),
    ],
)
def test_profiles_set_the_minutes(suite, options, turns):
    result = in_process(suite, "--benchmark-only", *FAST[:-1], *options)
    result.assert_outcomes(passed=4)
    assert bool(suite.played.asked) is turns


@pytest.mark.parametrize(("measured", "ends"), [(60, 360), (240, 360), (500, 620)])
def test_turns_have_a_third_of_the_minutes_however_long_measuring_took(measured, ends, monkeypatch):
    monkeypatch.setattr(turning.time, "monotonic", lambda: 1000.0 + measured)
    assert turning.seconds_left(1000.0, 6.0) == pytest.approx(ends - measured)


BOTH = [Workload(lane, "mlp") for lane in ("torch", "jax")]


@pytest.mark.parametrize(
    ("workloads", "change", "follow"),
    [
        (BOTH, {}, True),
        ([BOTH[0], Workload("jax", "cnn")], {}, False),
        ([dataclasses.replace(each, mode="fit") for each in BOTH], {}, False),
        ([BOTH[0]] * 2, {}, False),
        (BOTH, {"minutes": 0.0}, False),
        (BOTH, {"protocol": dataclasses.replace(PROFILES["quick"], programs=True)}, False),
    ],
)
def test_turns_are_announced_where_there_can_be_some(workloads, change, follow):
    asked = SimpleNamespace(**{"minutes": 6.0, "protocol": PROFILES["quick"], **change})
    assert turning.may_follow(asked, workloads) is follow


def test_what_was_played_is_kept_when_the_run_is_ended_within_a_batch_of_rounds(suite, monkeypatch):
    def one(lanes, workloads, arrived):
        suite.played.play(workloads[:1], arrived)
        # A process that is killed now leaves what is there.
        journal = read(next(suite.path.glob(".benchmarks/journal/*.jsonl")))
        left.append([len(m.turns) for m in journal.measurements])
        raise KeyboardInterrupt

    left = []

    monkeypatch.setattr(Lanes, "play", one)
    with pytest.raises(KeyboardInterrupt):
        in_process(suite, "--benchmark-only", *FAST, "--fwbench-minutes=5")
    assert left == [[1, 1, 0, 0]]


@needs("resume")
def test_a_resumed_run_goes_on_with_the_rounds_that_were_played(suite, monkeypatch):
    play = Lanes.play

    def once(lanes, workloads, arrived):
        play(lanes, workloads, arrived)
        raise KeyboardInterrupt

    options = ("--benchmark-only", *FAST, "--fwbench-minutes=5")
    with monkeypatch.context() as patch:
        patch.setattr(Lanes, "play", once)
        with pytest.raises(KeyboardInterrupt):
            in_process(suite, *options)
    in_process(suite, *options, "--fwbench-resume").assert_outcomes(passed=4)
    rounds = len(suite.played.asked)
    assert rounds > FEWEST_ROUNDS
    resumed = read(max(suite.path.glob(".benchmarks/journal/*.jsonl"), key=lambda path: path.stat().st_mtime))
    begun = [[turns["begun"] for turns in m.turns] for m in resumed.measurements]
    assert begun == [list(range(first, 2 * rounds + 1, 2)) for first in (1, 1, 2, 2)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--fwbench-minutes=-1"], "--fwbench-minutes -1 is not a number of minutes: give 0 or more."),
        (["--fwbench-minutes=nan"], "--fwbench-minutes nan is not a number of minutes: give 0 or more."),
        (["--fwbench-minutes=5", "--fwbench-programs-only"], "cannot work with --fwbench-programs-only"),
    ],
)
def test_wrong_minutes_are_one_sentence(suite, options, told):
    result = in_process(suite, "--benchmark-only", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in result.stderr.str()


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_round_on_a_gpu_tells_who_was_there_and_how_long_its_processes_waited_for_a_cpu(tmp_path, monkeypatch):
    crowded = AcceleratorState(processes=tuple(AcceleratorProcess(pid, 2**30) for pid in (os.getpid(), 1)))
    monkeypatch.setattr(rounds, "nvml", SimpleNamespace(find=lambda: FakeGpu(states=[crowded])))
    here = Side("here", "this run", PACKAGE, tmp_path, PACKAGE.parent)
    workload = Workload("", "noop", mode="fixed", device="gpu")
    monkeypatch.setitem(lanes.AMOUNTS, "gpu", dataclasses.replace(lanes.AMOUNTS["gpu"], seconds=0.1))
    played = Lanes(here, {workload: ["noop"]}, CATALOG, machine(), "gpu", 60.0).play([workload])[workload]
    assert played.disturbed.startswith("other processes were on the GPU (1 process")
    assert (played.waited is not None) == Path("/proc/self/schedstat").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_real_processes_take_turns(tmp_path):
    here = Side("here", "this run", PACKAGE, tmp_path, PACKAGE.parent)
    workload = Workload("", "noop", mode="fixed")
    played = Lanes(here, {workload: ["noop"]}, CATALOG, machine(), "cpu", 60.0).play([workload])[workload]
    assert isinstance(played, Round)
    found = played.values["noop"]
    for metric in ("call", "latency"):
        assert 2 * lanes._FEW <= len(found[metric]) <= 2 * lanes.AMOUNTS["cpu"].blocks
        assert all(1e-7 < seconds < 1 for seconds in found[metric])
    (peak,) = found["memory"]
    assert 2**20 < peak < 2**32
    assert -0.5 < played.load < 1
