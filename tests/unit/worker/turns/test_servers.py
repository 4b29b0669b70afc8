"""Servers that stay alive from pair to pair, over scripted ones."""

import dataclasses
import math
import random
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from fwbench.compare.pair import Fault
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.record.measurement import Failure
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.partner import SideError
from fwbench.worker.turns.servers import OWN, ROUNDS, Servers
from tests.unit.test_duet import BASE, HEAD, ONE, TWO, Script, ScriptedPartner, same

ALIKE = BASE, dataclasses.replace(HEAD, package=BASE.package)


class Unlike(Script):
    """The server that is started first is slow, whichever side it serves."""

    def partner(self, seat, machine, device, deadline, noise):
        made = super().partner(seat, machine, device, deadline, noise)
        slow = 1.05 if sum(self.servers.values()) % 2 else 1.0
        return SlowPartner(made, slow)


class SlowPartner(ScriptedPartner):
    def __init__(self, made, slow):
        self.__dict__.update(made.__dict__)
        self.slow = slow

    @property
    def seconds(self):
        return super().seconds * self.slow


@pytest.fixture
def played(monkeypatch):
    """Plays so many pairs of a script, and returns them."""

    def play(script, times, *workloads, sides=ALIKE, device="cpu", swapped=True, cold=()):
        monkeypatch.setattr("fwbench.worker.turns.rounds.Partner", script.partner)
        with Servers(swapped=swapped) as servers:
            pairs = Pairs(*sides, CATALOG, machine(), device, 60.0, seed=0, cold=cold, servers=servers)
            rounds = [pairs.play(workloads or (ONE,)) for _ in range(times)]
        closed = [message for _, message in script.log].count("closed")
        assert closed == sum(script.servers.values())
        return rounds

    return play


def test_servers_serve_some_rounds_and_then_others_do(played):
    script = Script(same)
    played(script, ROUNDS, ONE, TWO)
    assert sum(script.servers.values()) == 2
    played(script, ROUNDS + 1, ONE, TWO)
    assert sum(script.servers.values()) == 2 + 4
    assert len({noise["PYTHONHASHSEED"] for noise in script.noises}) == 2


def test_a_lot_decides_which_server_serves_which_side(played):
    """So what makes one of them slow makes neither side slow."""
    found = [round_[ONE].differences["latency"] for round_ in played(Unlike(same), 10 * ROUNDS)]
    assert {round(abs(difference), 9) for difference in found} == {round(math.log(1.05), 9)}
    assert 12 <= sum(difference > 0 for difference in found) <= 28
    within = [[difference > 0 for difference in found[start : start + ROUNDS]] for start in range(0, 40, ROUNDS)]
    assert any(len(set(signs)) == 2 for signs in within)


@pytest.mark.parametrize(
    "sides",
    [
        (BASE, HEAD),
        (ALIKE[0], dataclasses.replace(ALIKE[1], python="/opt/python")),
        (ALIKE[0], dataclasses.replace(ALIKE[1], variables={"NAME": "value"})),
    ],
    ids=["fwbench", "interpreter", "variables"],
)
def test_sides_that_cannot_swap_servers_have_new_ones_in_each_round(played, sides):
    script = Script(same)
    played(script, 8, sides=sides)
    assert script.servers == {"base": 8, "head": 8}


def test_on_a_gpu_servers_stay_and_each_pair_compiles_anew(played):
    script = Script(same)
    played(script, ROUNDS, device="gpu")
    assert sum(script.servers.values()) == 2
    assert [message for _, message in script.log].count("cool") == 2 * ROUNDS


class Full(ScriptedPartner):
    """Its GPU holds one process at a time."""

    def receive(self, answer):
        alive = self.script.alive
        if answer == "built" and alive:
            self.answers.clear()
            raise SideError(self.side, Failure("out_of_memory", "memory ran out"))
        alive += [self.side.name] * (answer == "built")
        message = super().receive(answer)
        if answer == "exited":
            alive.remove(self.side.name)
        return message

    def close(self):
        self.script.alive.clear()
        super().close()


@pytest.mark.parametrize(("device", "fits"), [("gpu", True), ("cpu", False)])
def test_processes_that_do_not_fit_on_a_gpu_together_take_their_turns_one_after_another(monkeypatch, device, fits):
    script = Script(same)
    script.alive = []
    monkeypatch.setattr("fwbench.worker.turns.rounds.Partner", lambda seat, m, d, s, noise: Full(script, seat, noise))
    pairs = Pairs(*ALIKE, CATALOG, machine(), device, 60.0, seed=0)
    rounds = [pairs.play((ONE,))[ONE] for _ in range(2)]
    assert [not isinstance(round_, Fault) for round_ in rounds] == [fits] * 2
    if fits:
        assert [round_.differences["latency"] for round_ in rounds] == pytest.approx([0.0, 0.0])
        # Only the first round was tried with both.
        assert script.servers["base"] + script.servers["head"] == 3 * 2


SIDES = BASE, dataclasses.replace(HEAD, python="/opt/python")


@pytest.mark.parametrize(("sides", "kept"), [(SIDES, True), (SIDES, False), (ALIKE, True)])
def test_lanes_keep_their_own_servers_and_share_them_by_lot_where_they_may(played, sides, kept):
    script = Script(same)
    rounds = played(script, OWN, sides=sides, swapped=not kept)
    assert not [each for each in rounds if isinstance(each[ONE], Fault)]
    assert sum(script.servers.values()) == (2 if kept else 2 * OWN)


def test_a_workload_whose_compiling_is_timed_has_servers_of_its_own(monkeypatch):
    """Kept from round to round, and emptied before each."""
    script = Script(same)
    monkeypatch.setattr("fwbench.worker.turns.rounds.Partner", script.partner)
    with Servers() as servers:
        pairs = Pairs(*ALIKE, CATALOG, machine(), "cpu", 60.0, seed=0, cold=[ONE], servers=servers)
        for _ in range(3):
            pairs.play((ONE,))
        assert sum(script.servers.values()) == 2
        pairs.play((TWO,))
        assert sum(script.servers.values()) == 4
    assert [message for _, message in script.log].count("cool") == 2 * 3


def test_which_side_compiles_first_is_drawn_for_each_pair(played):
    """Of the same servers, too."""
    script = Script(same)
    played(script, 3 * ROUNDS, cold=[ONE])
    first = [side for side, message in script.log if message == "cool"][::2]
    served_again = [side for number, side in enumerate(first) if number % ROUNDS]
    assert 2 <= served_again.count("base") <= 7


def test_lanes_whose_servers_cannot_swap_seats_have_others_after_two_rounds(played):
    """One set had a speed of its own, which four rounds in a row agreed on."""
    script = Script(same)
    played(script, 2 * OWN, sides=(BASE, HEAD), swapped=False)
    assert script.servers == {"base": 2, "head": 2}


def test_after_a_fault_there_are_new_servers(played):
    script = Script(same)
    script.faults["head", 2] = ("built", "error", "it fails")
    faults = [round_[TWO] for round_ in played(script, 2, TWO)]
    assert all(isinstance(fault, Fault) for fault in faults)
    assert script.servers == {"base": 2, "head": 2}


@pytest.mark.parametrize(
    ("starting", "played", "stay"),
    [
        (10.0, [20.0, 9.0], True),
        (10.0, [20.0, 11.0], False),
        # Where servers start at once, rounds of some seconds are no reason to start others.
        (0.1, [1.0, 1.0], True),
        (0.1, [1.0, 3.0], False),
    ],
)
def test_servers_serve_no_longer_than_their_start_is_worth(starting, played, stay):
    """What a server is like, all processes are that it forks."""
    seats = Pairs(*ALIKE, CATALOG, machine(), "cpu", 60.0).seats(ONE)
    partners = [SimpleNamespace(seat=seat, side=seat.side) for seat in seats]
    with Servers() as servers, ExitStack() as stack:
        servers.keep(partners, stack, starting, played[0])
        assert servers.take(seats, random.Random(0), stack)
        servers.keep(partners, stack, 0.0, played[1])
        assert bool(servers.take(seats, random.Random(0), stack)) is stay
