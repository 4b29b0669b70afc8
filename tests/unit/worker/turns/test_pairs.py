"""Pairs of processes: the turns of a pair, then real processes without a framework."""

import dataclasses
import itertools
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path

import pytest

from fwbench.compare.criteria import CRITERIA, Threshold
from fwbench.compare.duet import compare
from fwbench.errors import UserError
from fwbench.machine import machine
from fwbench.meters.throughput import queue_depth
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker import protocol
from fwbench.worker.client import server, starting
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns import partner
from fwbench.worker.turns.lanes import AMOUNTS, Lanes
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import Side
from fwbench.worker.turns.taken import Amounts, Taken
from tests.unit.processes import grandchildren

# Which no noise reaches, so that nothing is played again.
THRESHOLDS = {name: Threshold(1e3) for name, criterion in CRITERIA.items() if criterion.duet}
BOTH = ("base", "head")


def test_a_turn_keeps_its_fastest_round_and_a_pair_its_median_difference():
    """A storm in a few rounds or blocks does not move the pair."""
    taken = Taken(Pairs.amounts)
    taken.plan(0.001, 2)
    assert (taken.rounds, taken.blocks) == (11, 4)
    for placing, block in itertools.product(range(4), range(4)):
        storm = 10.0 if block == 0 and placing < 3 else 1.0
        for name, factor in (("base", 1.0), ("head", 1.03), ("head", 1.03), ("base", 1.0)):
            rounds = [0.005, 0.001 * factor * (storm if name == "head" else 1.0), 0.007]
            taken.turn(placing, block, name, rounds, 0.002 * factor)
    taken.memory = {"base": {}, "head": {}}
    differences = taken.pair("cpu", 1.0).differences
    assert differences["latency"] == pytest.approx(math.log(1.03))
    assert differences["cpu_time"] == pytest.approx(math.log(1.03))


def test_one_slow_turn_in_nearly_every_block_does_not_move_a_pair():
    taken = Taken(Amounts(placings=1, blocks=6, turn=0.01, seconds=8.0))
    taken.plan(0.001, 2)
    for block in range(6):
        for turn, (name, seconds) in enumerate((("base", 1.0), ("head", 1.03), ("head", 1.03), ("base", 1.0))):
            taken.turn(0, block, name, [0.001 * seconds * (2.0 if turn == 3 and block < 5 else 1.0)], 0.002)
    taken.memory = {"base": {}, "head": {}}
    assert taken.pair("cpu", 1.0).differences["latency"] == pytest.approx(math.log(1.03))


def test_a_slow_program_has_fewer_rounds_and_blocks():
    amounts = []
    for latency in (1e-5, 1e-3, 0.02, 0.2, 2.0):
        taken = Taken(Pairs.amounts)
        taken.plan(latency, 2)
        amounts.append((taken.rounds, taken.blocks))
    assert amounts == [(1001, 4), (11, 4), (3, 4), (2, 1), (2, 1)]


def test_a_lane_with_long_calls_takes_turns_of_one_call():
    """The call that pays for the caches would take as long as the one that counts."""
    amounts = AMOUNTS["cpu"]
    found = [amounts.of(latency, 2) for latency in (0.001, 0.015, 0.02, 0.6, 2.0)]
    assert found == [(21, 18), (3, 18), (1, 18), (1, 3), (1, 1)]
    # With 24 turns of both lanes at the usual pace no further ones are taken.
    assert amounts.turns(0.02, 2) == pytest.approx(2 * 24 * 0.02)


def test_a_turn_on_a_gpu_has_as_full_a_queue_as_the_throughput_pass(tmp_path):
    """Of two calls of 13 ms in JAX, 5 % were the start of the first one."""
    amounts = Lanes(Side("here", "this run", tmp_path, tmp_path, tmp_path), {}, {}, machine(), "gpu", 60.0).amounts
    window = PROFILES["quick"].throughput_time
    timed = {latency: amounts.of(latency, 3)[0] - 1 for latency in (0.0001, 0.001, 0.013, 0.048, 0.2, 2.0)}
    assert timed == {0.0001: 200, 0.001: 40, 0.013: 39, 0.048: 11, 0.2: 3, 2.0: 1}
    assert [queue_depth(latency, window) for latency in (0.013, 0.048, 0.2)] == [39, 11, 3]
    # Three lanes whose fastest turns disagree have time for more than the fewest.
    assert 2 * amounts.of(0.011, 3)[1] == 14 > amounts.fewest


@pytest.fixture
def environments(monkeypatch):
    """The variables of each server that is started, in order."""
    found = []
    monkeypatch.setattr(server, "Channel", lambda command, variables: found.append(variables))
    return found


@pytest.mark.parametrize(("device", "shared"), [("cpu", True), ("gpu", False)])
def test_pairs_share_what_is_compiled_on_a_cpu_alone(tmp_path, environments, device, shared):
    """On a GPU compilers choose by measuring; no side ever sees the other's choice, or the user's caches."""
    sides = [Side(name, name, tmp_path, tmp_path / f"caches-{name}", tmp_path) for name in ("base", "head")]
    pairs = Pairs(*sides, CATALOG, machine(), device, 60.0)
    for lane in ("torch", "jax"):
        environments.clear()
        for seat in 2 * pairs.seats(Workload(lane, "mlp")):
            partner.Partner(seat, machine(), device, 60.0, {})
        for cache in LANES[lane].caches:
            base, head, again, _ = (variables[cache] for variables in environments)
            assert base != head
            assert (base == again) == shared
            assert base.startswith(str(tmp_path if shared else Path(tempfile.gettempdir()).resolve()))
    # A measurement's worker has its cache switched off.
    assert {variables["JAX_ENABLE_COMPILATION_CACHE"] for variables in environments} == {str(shared).lower()}


def test_lanes_that_take_turns_on_a_gpu_load_what_was_compiled_before(tmp_path, environments):
    """The first process of each program may have been the one that measured it: a round costs no compiling."""
    side, workload = Side("here", "this run", tmp_path, tmp_path / "caches", tmp_path), Workload("", "mlp")
    for seat in Lanes(side, {workload: ["jax"]}, CATALOG, machine(), "gpu", 60.0).seats(workload):
        partner.Partner(seat, machine(), "gpu", 60.0, {})
    assert environments[0]["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "caches" / "jax")
    assert environments[0]["JAX_ENABLE_COMPILATION_CACHE"] == "true"


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("cold", [False, True])
def test_a_cold_seat_has_caches_of_its_own_which_it_empties_and_a_warm_ones_compilers_use_theirs(
    tmp_path, environments, cold, warm
):
    """Compilers neither find there what a side has compiled before, nor write what they would not for a user."""
    side = Side("base", "base", tmp_path, tmp_path / "caches", tmp_path)
    seated = partner.Partner(partner.Seat("base", side, LANES["jax"], (), cold, warm), machine(), "cpu", 60.0, {})
    caches = Path(environments[-1]["JAX_COMPILATION_CACHE_DIR"])
    assert caches.is_relative_to(tmp_path / "caches") != cold
    assert environments[-1]["JAX_ENABLE_COMPILATION_CACHE"] == ("false" if cold and not warm else "true")
    caches.mkdir(parents=True)
    (caches / "program").write_text("")
    seated.cool()
    assert caches.exists() != cold


FIXED = Workload("noop", "noop", mode="fixed")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forks")


def real(tmp_path, **changes):
    """Both sides are this revision."""
    sides = []
    for name in BOTH:
        (tmp_path / name).symlink_to(PACKAGE.parent, target_is_directory=True)
        sides.append(
            dataclasses.replace(
                Side(name, name, tmp_path / name / PACKAGE.name, tmp_path, tmp_path / name), **changes.get(name, {})
            )
        )
    return sides


@pytest.mark.slow
@linux
def test_real_processes_play(tmp_path):
    found = compare({FIXED: THRESHOLDS}, Pairs(*real(tmp_path), CATALOG, machine(), "cpu", 60.0, seed=0).play)[FIXED]
    played = [*found.screening, *found.confirmation]
    assert len(found.screening) >= 3
    assert {"latency", "cpu_time", "peak_memory"} <= played[0].differences.keys()
    assert all(1e-5 < seconds < 10 for pair in played for rounds in pair.rounds.values() for seconds in rounds)
    assert played[0].values["head"]["peak_memory"] > 1 << 20
    assert found.described["head"]["versions"]["numpy"]


@pytest.mark.slow
@linux
def test_each_workload_has_servers_of_its_own_where_these_cannot_fork(tmp_path, monkeypatch):
    monkeypatch.setattr(starting, "FORKS", False)
    workloads = [FIXED, Workload("noop", "noop")]
    played = Pairs(*real(tmp_path), CATALOG, machine(), "cpu", 60.0, seed=0).play(workloads)
    assert [sorted(played[workload].rounds) for workload in workloads] == [sorted(BOTH)] * 2


@linux
def test_a_base_without_the_workload_is_new(tmp_path):
    """An older revision, whose fwbench knows no noop framework."""
    old = tmp_path / "old"
    shutil.copytree(PACKAGE, old / "fwbench", ignore=shutil.ignore_patterns("noop"))
    base, head = real(tmp_path, base={"package": old / "fwbench"})
    found = compare({FIXED: THRESHOLDS}, Pairs(base, head, CATALOG, machine(), "cpu", 60.0, seed=0).play)[FIXED]
    assert found.kind == "new"
    assert "noop" in found.note


@linux
def test_a_killed_side_is_told_by_its_signal(tmp_path, monkeypatch):
    plan = Taken.plan

    def kill(self, *amounts):
        os.kill(statistics.median_low(grandchildren(os.getpid())), signal.SIGSEGV)
        plan(self, *amounts)

    monkeypatch.setattr(Taken, "plan", kill)
    found = compare({FIXED: THRESHOLDS}, Pairs(*real(tmp_path), CATALOG, machine(), "cpu", 60.0, seed=0).play)[FIXED]
    assert found.kind in ("incomparable", "failed")
    assert "SIGSEGV" in found.note


@linux
@pytest.mark.parametrize("name", ["base", "head"])
def test_memory_that_cannot_hold_both_sides_is_nobodys_fault(tmp_path, name):
    """Which side runs out first is arbitrary."""
    small = tmp_path / "small" / "fwbench"
    shutil.copytree(PACKAGE, small)
    with (small / "frameworks" / "noop" / "adapter.py").open("a") as adapter:
        adapter.write("\n\ndef build(*_):\n    raise MemoryError('nothing left')\n\n\nFRAMEWORK.build = build\n")
    sides = real(tmp_path, **{name: {"package": small}})
    found = compare({FIXED: THRESHOLDS}, Pairs(*sides, CATALOG, machine(), "cpu", 60.0, seed=0).play)[FIXED]
    assert (found.kind, found.fault.failure.kind) == ("incomparable", "out_of_memory")
    assert found.note == f"memory must hold both sides at once; {name}: memory ran out (MemoryError: nothing left)"


@linux
@pytest.mark.parametrize(("names", "kind"), [(("base",), "new"), (("head",), "missing"), (BOTH, "unavailable")])
def test_a_framework_that_is_not_installed(tmp_path, names, kind):
    package = tmp_path / "without" / "fwbench"
    shutil.copytree(PACKAGE, package)
    (package / "frameworks" / "noop" / "__init__.py").write_text("import framework_of_tomorrow\n")
    sides = real(tmp_path, **{name: {"package": package} for name in names})
    found = compare({FIXED: THRESHOLDS}, Pairs(*sides, CATALOG, machine(), "cpu", 60.0, seed=0).play)[FIXED]
    assert found.kind == kind
    assert "it: noop cannot be imported (No module named 'framework_of_tomorrow')" in found.note


def revision(tmp_path, changes):
    """An earlier fwbench as base, whose files have these texts in place of others, or None in place of all."""
    package = tmp_path / "before" / "fwbench"
    shutil.copytree(PACKAGE, package)
    for file, old, new in changes:
        text = (package / file).read_text()
        assert old in text
        (package / file).write_text(text.replace(old, new))
    return real(tmp_path, base={"package": package, "title": "v1"})


PLAYER = "fwbench.worker.process."
PROTOCOL, SPOKEN = "worker/protocol.py", f"VERSION = {protocol.VERSION}\n"


@linux
@pytest.mark.parametrize("of", ["another version", "no version"])
def test_a_revision_that_speaks_another_protocol_is_one_sentence(tmp_path, of):
    base, head = revision(tmp_path, [(PROTOCOL, SPOKEN, "VERSION = 0\n")])
    if of == "no version":
        (base.package / PROTOCOL).unlink()
    told = "the fwbench of v1 is another than this run's and cannot be used by it: compare with a later revision"
    with pytest.raises(UserError, match=f"^{told}\\.$"):
        Pairs(base, head, CATALOG, machine(), "cpu", 60.0, seed=0).play([FIXED])
    # In a search one of the two is head, and only this state cannot be measured.
    sides = dataclasses.replace(head, name="base"), dataclasses.replace(base, name="head")
    fault = Pairs(*sides, CATALOG, machine(), "cpu", 60.0, seed=0).play([FIXED])[FIXED]
    assert (fault.side, fault.failure.kind, fault.failure.message) == ("head", "unavailable", told)


@linux
def test_a_revision_that_speaks_the_protocol_may_do_all_else_in_its_own_way(tmp_path, monkeypatch):
    """Each side measures with its own modules, wherever they lie and however they call each other."""
    monkeypatch.setattr(Pairs, "amounts", dataclasses.replace(Pairs.amounts, placings=1))
    base, head = revision(
        tmp_path,
        [
            *((f"worker/process/{file}.py", f"{PLAYER}player", f"{PLAYER}moved") for file in ("server", "run")),
            ("worker/process/player.py", "turn(self, rounds: int)", "turn(self, rounds: int, more: int = 0)"),
            ("worker/process/player.py", "player.alone_and_together", "player.both"),
            ("worker/process/player.py", "def alone_and_together", "def both"),
        ],
    )
    process = base.package / "worker" / "process"
    (process / "player.py").rename(process / "moved.py")
    played = Pairs(base, head, CATALOG, machine(), "cpu", 60.0, seed=0).play([FIXED])[FIXED]
    assert sorted(played.rounds) == sorted(BOTH)


@linux
def test_a_base_that_raises_in_a_turn_was_built_and_so_is_not_new(tmp_path):
    raises = ("worker/process/player.py", "timed = self._timed(rounds)\n", "raise ZeroDivisionError('in a turn')\n")
    base, head = revision(tmp_path, [raises])
    found = compare({FIXED: THRESHOLDS}, Pairs(base, head, CATALOG, machine(), "cpu", 60.0, seed=0).play)[FIXED]
    assert (found.kind, found.fault.failure.kind, found.fault.failure.stage) == ("incomparable", "error", "turns")
    assert found.note == "v1: ZeroDivisionError: in a turn"


@linux
@pytest.mark.parametrize(("names", "kind"), [(("base",), "new"), (("head",), "missing"), (BOTH, "unavailable")])
def test_an_interpreter_that_cannot_be_started(tmp_path, names, kind):
    """Whichever side is started first."""
    sides = real(tmp_path, **{name: {"python": "/no/such/python"} for name in names})
    for seed in range(4):
        found = compare({FIXED: THRESHOLDS}, Pairs(*sides, CATALOG, machine(), "cpu", 60.0, seed=seed).play)[FIXED]
        assert found.kind == kind
        assert "it: /no/such/python cannot be started: No such file" in found.note


@linux
def test_an_interpreter_without_fwbenchs_needs_is_told(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no module named numpy' >&2\nexit 1\n")
    python.chmod(0o755)
    base, head = real(tmp_path, base={"python": str(python)})
    found = compare({FIXED: THRESHOLDS}, Pairs(base, head, CATALOG, machine(), "cpu", 60.0, seed=0).play)[FIXED]
    assert found.kind == "incomparable"
    assert "exit code 1" in found.note
    assert "no module named numpy" in found.fault.failure.detail
