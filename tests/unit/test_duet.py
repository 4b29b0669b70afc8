"""The duet over scripted sides, without a process."""

import contextlib
import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from fwbench.compare import duet as duet_module
from fwbench.compare.criteria import CRITERIA, Threshold
from fwbench.compare.duet import Duet, compare
from fwbench.compare.duet_outcome import outcome
from fwbench.compare.pair import Fault, Pair
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import Failure
from fwbench.record.plain import PlainTest
from fwbench.record.workload import Workload
from fwbench.worker.client.ladder import OPTION
from fwbench.worker.turns import pairs, rounds
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.partner import SideError
from fwbench.worker.turns.sides import Side
from tests.unit.fakes import FakeGpu

THRESHOLDS = {name: criterion.duet for name, criterion in CRITERIA.items() if criterion.duet}
LIMIT = {"latency": Threshold(0.02)}
ONE, TWO, THREE = (Workload("torch", "mlp", batch_size=size) for size in (1, 2, 3))
BOTH = ("base", "head")
BASE, HEAD = (Side(name, f"the {name}", *[Path("/nowhere") / name] * 3) for name in BOTH)


def untold(side, size):
    """What is not reported."""


@dataclass
class Script:
    """What the sides do.

    Attributes:
        seconds: of a round, by side and batch size.
        wobble: drawn for each process, a factor on its time.
        memory: what a side reports of it, by side and batch size.
        cpu: seconds of CPU time of a round, likewise; default: those of the clock.
        faults: by side and batch size, the error that its build raises, from the given pair on.
        refused: sides whose servers do not come up.
        crashes: by side, with how many fallback flags or fewer its compiler fails.
        calm: builds that succeed before the first crash.
        room: by side, the largest batch that it has memory for.
        held: seconds of each turn for which a side gets no CPU, in order.
        compiling: seconds of tracing and compiling, by side and batch size; None: not reported.
        starting: of a warm start, likewise.
        joules: of a sample, likewise.
        log: (side, message) in the order of sending.
        turns: (side, "asked" or the name of its answer) in order, of builds and placings.
    """

    seconds: Callable[[str, int], float]
    wobble: Callable[[str], float] = lambda side: 1.0
    memory: Callable = lambda side, size: {"host_peak_memory": 1e8, "program_memory": 1e6}
    cpu: Callable | None = None
    faults: dict = field(default_factory=dict)
    refused: tuple = ()
    crashes: dict = field(default_factory=dict)
    calm: int = 0
    room: dict = field(default_factory=dict)
    held: Iterator[float] = field(default_factory=lambda: itertools.repeat(0.0))
    compiling: Callable = untold
    starting: Callable = untold
    joules: Callable = untold
    log: list = field(default_factory=list)
    turns: list = field(default_factory=list)
    servers: Counter = field(default_factory=Counter)
    noises: list = field(default_factory=list)

    def partner(self, seat, machine, device, deadline, noise):
        return ScriptedPartner(self, seat, noise)


class ScriptedPartner:
    def __init__(self, script, seat, noise):
        self.script, self.seat, self.side, self.answers, self.flags = script, seat, seat.side, [], seat.flags
        self.script.servers[self.side.name] += 1
        self.script.noises.append(noise)

    def await_ready(self):
        if self.side.name in self.script.refused:
            raise SideError(self.side, Failure("unavailable", "no numpy"))

    def send(self, message):
        self.script.log.append((self.side.name, message))
        if message.keys() & {"workload", "place"}:
            self.script.turns.append((self.side.name, "asked"))
        if "workload" in message:
            self.size = message["workload"].get("batch_size", 1)
            self.extra, self.factor = message["extra"], self.script.wobble(self.side.name)
            compiling = self.script.compiling(self.side.name, self.size)
            built = {"settings": {}, "versions": {"torch": self.side.name}, "compiling": compiling}
            if "starting" in message:
                built["start"] = self.script.starting(self.side.name, self.size)
            self.answers.append({"built": built})
        elif "place" in message:
            self.answers.append({"placed": self.seconds})
        elif "end" in message:
            self.answers.append({"exited": 0})
        elif "modules" in message:
            self.answers.append({"modules": "own"})
        elif "rounds" in message:
            rounds = [self.seconds] * message["rounds"]
            cpu_time = (self.script.cpu or self.script.seconds)(self.side.name, self.size)
            self.answers.append({"rounds": rounds, "cpu_time": cpu_time, "held": next(self.script.held)})
        else:
            self.answers += [
                {
                    "finished": self.script.memory(self.side.name, self.size),
                    "program": None,
                    "settings": {},
                    "edited": [],
                    "sources": {},
                    **(
                        {"energy": self.script.joules(self.side.name, self.size)} if message["finish"]["energy"] else {}
                    ),
                },
                {"exited": 0},
            ]

    @property
    def seconds(self):
        return self.script.seconds(self.side.name, self.size) * (1 + self.extra) * self.factor

    def receive(self, answer):
        message = self.answers.pop(0)
        if answer in ("built", "placed"):
            self.script.turns.append((self.side.name, answer))
        if answer == "built" and self.size > self.script.room.get(self.side.name, self.size):
            raise SideError(self.side, Failure("out_of_memory", "memory ran out"))
        self.script.calm -= answer == "built"
        crashes = self.script.calm < 0 and len(self.flags) <= self.script.crashes.get(self.side.name, -1)
        if answer == "built" and crashes:
            died = Failure("crashed", f"{self.side.name} was killed by SIGABRT", "compile")
            raise SideError(self.side, died)
        fault = self.script.faults.get((self.side.name, self.size))
        if fault and answer == fault[0]:
            failure = Failure(*fault[1:3], stage="build" if answer == "built" else "turns")
            raise SideError(self.side, failure, lacking="lacking" in fault)
        assert answer in message
        return message

    def ask(self, message, answer):
        self.send(message)
        return self.receive(answer)

    def cool(self):
        self.script.log.append((self.side.name, "cool"))

    def close(self):
        self.script.log.append((self.side.name, "closed"))


@pytest.fixture
def pairs_of(monkeypatch):
    """Pairs of processes that follow a script."""

    def make(script, device="cpu", planted=None, seed=0, **options):
        monkeypatch.setattr("fwbench.worker.turns.rounds.Partner", script.partner)
        return Pairs(BASE, HEAD, CATALOG, machine(), device, 60.0, planted, seed, **options)

    return make


@pytest.fixture
def play(pairs_of):
    """Runs a script over workloads, of which some may have thresholds of their own."""

    def run(script, *workloads, thresholds=THRESHOLDS, own=None, **options):
        return compare({**dict.fromkeys(workloads, thresholds), **(own or {})}, pairs_of(script, **options).play)

    return run


def same(side, size):
    return 0.001


def slower(factor, *sizes):
    return lambda side, size: 0.001 * (factor if side == "head" and size in sizes else 1.0)


def test_the_same_code_is_unchanged_after_three_pairs(play):
    found = play(Script(same), ONE, TWO)
    assert {c.kind for c in found.values()} == {"unchanged"}
    assert {(len(c.screening), len(c.confirmation)) for c in found.values()} == {(3, 0)}
    assert found[ONE].verdicts["latency"].ratio == pytest.approx(1.0)
    assert found[ONE].described["base"]["versions"] == {"torch": "base"}


@pytest.mark.parametrize(("device", "at_once"), [("cpu", True), ("gpu", False)])
def test_sides_warm_up_one_after_another_and_build_at_once_except_on_a_gpu(play, device, at_once):
    """The latencies of a warm-up choose the amounts, and a GPU's kernels are chosen by timing them."""
    script = Script(same)
    play(script, ONE, device=device)
    steps = [script.turns[start : start + 4] for start in range(0, len(script.turns), 4)]
    assert len(steps) == 3 * (1 + Pairs.amounts.placings)
    for number, (first, second, third, last) in enumerate(steps):
        builds = number % (1 + Pairs.amounts.placings) == 0
        assert {first[1], third[1] if not (builds and at_once) else second[1]} == {"asked"}
        assert {second[1] if not (builds and at_once) else third[1], last[1]} == {"built" if builds else "placed"}
        assert {first[0], last[0]} == set(BOTH)


COLD = {**THRESHOLDS, "compile_time": Threshold(0.25)}


def longer(side, size):
    """A loop that head unrolls, in the first workload."""
    return 2.08 if side == "head" and size == 1 else 0.083


@pytest.mark.parametrize(
    ("metric", "reported", "asked"),
    [("compile_time", "compiling", "cold"), ("warm_start", "starting", "warm"), ("energy", "joules", "metered")],
)
def test_what_is_measured_where_somebody_asks_is_judged_there(play, metric, reported, asked):
    script = Script(same)
    setattr(script, reported, longer)
    limits = {**THRESHOLDS, metric: Threshold(0.25)}
    found = play(script, ONE, TWO, THREE, thresholds=limits, **{asked: [ONE, TWO]})
    kinds = {of: {name: verdict.kind for name, verdict in c.verdicts.items()} for of, c in found.items()}
    assert [by_metric.get(metric) for by_metric in kinds.values()] == ["regressed", "unchanged", None]
    assert [c.kind for c in found.values()] == ["regressed", "unchanged", "unchanged"]
    assert kinds[ONE]["latency"] == "unchanged"
    assert found[ONE].verdicts[metric].ratio == pytest.approx(2.08 / 0.083)
    assert found[ONE].confirmation[0].values["head"][metric] == 2.08
    (finding,) = (each for each in outcome("base", "head", [found[ONE]], 1.0).findings if each.metric == metric)
    assert (finding.kind, finding.base, finding.head) == ("regressed", 0.083, pytest.approx(2.08))


def test_a_warm_start_is_timed_by_a_second_process_that_begins_when_both_sides_have_taken_their_turns(play):
    script = Script(same, starting=longer)
    found = play(script, ONE, TWO, thresholds={**THRESHOLDS, "warm_start": Threshold(0.25)}, warm=[ONE, TWO])
    steps = [
        (side, next(iter(message.keys() & {"starting", "finish", "end"}), ""))
        for side, message in script.log
        if isinstance(message, dict)
    ]
    kinds = [step for step in steps if step[1]]
    starts = [number for number, (_, kind) in enumerate(kinds) if kind == "starting"]
    assert len(starts) == 2 * sum(len(found[of].pairs) for of in (ONE, TWO))
    assert all(kinds[number + 1] == (kinds[number][0], "end") for number in starts)
    firsts = starts[::2]
    assert all(
        {side for side, kind in kinds[number - 2 : number] if kind == "finish"} == set(BOTH) for number in firsts
    )


def test_energy_that_no_counter_tells_is_not_judged(play):
    found = play(Script(same), ONE, thresholds={**THRESHOLDS, "energy": Threshold(0.1)}, metered=[ONE])
    assert (found[ONE].kind, "energy" in found[ONE].verdicts) == ("unchanged", False)


def test_a_side_whose_fwbench_times_no_warm_start_is_named(play):
    found = play(Script(same), ONE, thresholds={**THRESHOLDS, "warm_start": Threshold(0.25)}, warm=[ONE])
    assert "times no warm start" in found[ONE].fault.failure.message


def test_where_compiling_is_timed_each_side_compiles_alone_with_empty_caches_in_an_order_by_lot(play):
    """Other workloads still build at once, and keep their caches."""
    script = Script(same, compiling=longer)
    play(script, TWO, THREE, thresholds=COLD, cold=[TWO])
    builds = [step for step in script.log if step[1] == "cool" or "workload" in step[1]]
    sizes = [message if message == "cool" else message["workload"]["batch_size"] for _, message in builds]
    cold = [
        (first[0], side)
        for first, (side, message), size in zip(builds, builds[1:], sizes[1:], strict=False)
        if size == 2
    ]
    assert len(cold) == 6
    assert all(emptied == side for emptied, side in cold)
    assert sizes.count("cool") == 6
    at_once = [script.turns[place : place + 4] for place in range(0, len(script.turns), 4)]
    alone = [steps for steps in at_once if [what for _, what in steps] == ["asked", "built", "asked", "built"]]
    assert len(alone) == 3
    assert sum([what for _, what in steps] == ["asked", "asked", "built", "built"] for steps in at_once) == 3


@pytest.fixture
def fallback(monkeypatch):
    """Two flags of every lane, which all interpreters know; and what was asked for them."""
    first, second = ("XLA_FLAGS", "--mild"), ("XLA_FLAGS", "--strong")
    asked = []
    monkeypatch.setattr(pairs, "milder", lambda *of: asked.append(of) or iter([(first,), (first, second)]))
    return asked


@pytest.mark.parametrize(("needed", "stated"), [(0, "XLA_FLAGS=--mild"), (1, "XLA_FLAGS=--mild --strong")])
def test_where_both_sides_crash_on_a_gpu_both_get_fallback_flags(play, fallback, needed, stated):
    script = Script(same, crashes=dict.fromkeys(BOTH, needed))
    found = play(script, ONE, device="gpu")[ONE]
    assert (found.kind, len(found.screening)) == ("unchanged", 3)
    told = f"head was killed by SIGABRT, so it was run again with {stated}"
    assert {described["after_crash"] for described in found.described.values()} == {told}
    assert {described["settings"]["fallback_flags"] for described in found.described.values()} == {stated}
    assert outcome("base", "head", [found], 1.0).notes[0] == f"torch-mlp-inference-b1: {told}, on both sides"
    # Only the first pair had to find the flags out.
    assert script.servers == dict.fromkeys(BOTH, 3 + 1 + needed)


@pytest.mark.parametrize(
    ("crashes", "device", "kind", "tries"),
    [
        ({"head": 5}, "gpu", "failed", 1),
        ({"base": 5}, "gpu", "incomparable", 1),
        (dict.fromkeys(BOTH, 5), "gpu", "failed", 3),
        (dict.fromkeys(BOTH, 0), "cpu", "failed", 1),
    ],
)
def test_a_crash_that_is_one_sides_or_that_no_flag_helps_is_told(play, fallback, crashes, device, kind, tries):
    script = Script(same, crashes=crashes)
    found = play(script, ONE, device=device)[ONE]
    assert found.kind == kind
    assert "was killed by SIGABRT" in found.note
    assert script.servers == dict.fromkeys(BOTH, tries)


def test_flags_are_tried_out_once(play, fallback):
    found = play(Script(same, crashes=dict.fromkeys(BOTH, 0)), ONE, TWO, device="gpu")
    assert {one.kind for one in found.values()} == {"unchanged"}
    assert len(fallback) == 2


def test_pairs_without_flags_do_not_count_beside_pairs_with_them(play, fallback):
    """The flags make other programs, of which the record would else say nothing."""
    script = Script(same, crashes=dict.fromkeys(BOTH, 0), calm=2)
    found = play(script, ONE, device="gpu")[ONE]
    assert [pair.flags for pair in found.screening] == ["XLA_FLAGS=--mild"] * 3
    assert "after_crash" in found.described["head"]
    # The first of them is described anew.
    assert [m["finish"]["program"] for side, m in script.log if "finish" in m and side == "head"] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("room", [{"base": 3}, {"head": 3}, {"base": 3, "head": 7}])
def test_where_one_side_has_no_memory_both_get_the_same_smaller_batch(play, room):
    asked = Workload("torch", "mlp", batch_size=8)
    script = Script(same, room=room)
    found = play(script, asked, fit_batch=True)[asked]
    assert (found.kind, found.workload.batch_size, found.pairs[-1].unfit) == ("unchanged", 2, (8, 4))
    placed = [message["workload"]["batch_size"] for _, message in script.log if "workload" in message]
    assert placed == [8, 8, 4, 4, *[2, 2] * 3]
    (finding, *_), (note, *_) = (got := outcome("base", "head", [found], 1.0)).findings, got.notes
    assert finding.benchmark == "torch-mlp-inference-b2"
    assert note == (
        "torch-mlp-inference-b2: batch 8 was asked for, and 8 and 4 did not fit into memory, so both sides had 2"
    )


@pytest.mark.parametrize(
    ("room", "options", "told"),
    [
        (
            3,
            {},
            f"memory ran out; choose a smaller batch than 8, or let {OPTION} halve it until it fits",
        ),
        (
            0,
            {"fit_batch": True},
            "no batch fits into memory, of those that were tried (8, 4, 2, 1); at batch 1: memory ran out",
        ),
    ],
)
def test_a_batch_that_may_not_or_cannot_be_smaller_is_not_comparable(play, room, options, told):
    asked = Workload("torch", "mlp", batch_size=8)
    found = play(Script(same, room={"base": room}), asked, **options)[asked]
    assert (found.kind, found.workload) == ("incomparable", asked)
    assert found.note == f"memory must hold both sides at once; the base: {told}"


def test_a_slower_head_is_confirmed_by_fresh_pairs_of_it_alone(play):
    found = play(Script(slower(1.05, 2)), ONE, TWO)
    assert {w.batch_size: c.kind for w, c in found.items()} == {1: "unchanged", 2: "regressed"}
    verdict = found[TWO].verdicts["latency"]
    assert verdict.ratio == pytest.approx(1.05)
    assert (len(found[TWO].screening), len(found[TWO].confirmation), verdict.pairs) == (3, 8, 8)
    assert not found[ONE].confirmation


def test_a_metric_that_is_no_suspect_is_judged_by_pairs_with_the_last_flags_alone():
    """Where compilers crash while another metric is confirmed: the flags make another program."""
    duet = Duet({ONE: {name: THRESHOLDS[name] for name in ("latency", "cpu_time")}})
    values = {side: {"latency": 1.0, "cpu_time": 1.0} for side in BOTH}
    plain = Pair({"latency": 0.3, "cpu_time": 0.0}, {side: [1.0] for side in BOTH}, values, {}, 0.0, 1.0)
    for stage, pair in [("screening", plain)] * 3 + [("confirmation", dataclasses.replace(plain, flags="--mild"))] * 4:
        duet.take(stage, ONE, pair)
    assert duet.comparisons()[ONE].verdicts["cpu_time"].pairs == 4


def ended(play):
    """What a duet knows when `play(workloads, arrived)` has raised KeyboardInterrupt."""
    duet = Duet(dict.fromkeys((ONE, TWO), THRESHOLDS))
    with pytest.raises(KeyboardInterrupt):
        duet.play(play)
    return duet.comparisons()


@pytest.mark.parametrize(
    ("ends", "known", "note"),
    [
        (1, None, ""),
        (2, 1, "the time was over after 1 pair"),
        (6, 2, "the time was over after 2 pairs, from +5% to +5%"),
    ],
)
def test_a_duet_that_is_ended_tells_what_it_knows(pairs_of, ends, known, note):
    """At its first pairs, in screening, and after two confirming pairs of the one suspect."""
    played, rounds = pairs_of(Script(slower(1.05, 2))), itertools.count(1)

    def playing(workloads, arrived):
        if next(rounds) == ends:
            raise KeyboardInterrupt
        played.play(workloads, arrived)

    found = ended(playing)
    if known is None:
        assert found == {}
        return
    verdict = found[TWO].verdicts["latency"]
    assert (verdict.kind, verdict.pairs) == ("inconclusive", known)
    assert verdict.ratio == pytest.approx(1.05)
    assert verdict.note.startswith(note)
    assert found[ONE].verdicts["latency"].kind == ("unchanged" if ends > 3 else "inconclusive")


def test_a_pair_is_kept_when_the_duet_ends_within_a_batch(pairs_of):
    played = pairs_of(Script(slower(1.05, 2)))

    def playing(workloads, arrived):
        played.play(workloads[:1], arrived)
        raise KeyboardInterrupt

    assert {workload: len(each.pairs) for workload, each in ended(playing).items()} == {ONE: 1}


@pytest.mark.parametrize("rule", ["screening_pairs", "screen", "cleared", "remarks_on"])
def test_a_benchmark_costs_as_much_among_many_as_among_few(monkeypatch, rule):
    """A repository may have hundreds of them; between two pairs each is asked about a few times."""
    asked, real = Counter(), getattr(duet_module, rule)
    monkeypatch.setattr(duet_module, rule, lambda *args: asked.update([count]) or real(*args))
    for count in (10, 40):
        tests = dict.fromkeys((PlainTest(str(number)) for number in range(count)), LIMIT)
        compare(tests, lambda asked, arrived: [arrived(each, pair(0.05 * (each.name == "0"))) for each in asked])
    assert asked[40] < 5 * asked[10]


def test_sides_take_turns_in_blocks_that_are_reversed_at_every_other_placing(play):
    script = Script(same)
    play(script, ONE)
    # Of the first pair.
    first = script.log[: script.log.index(("base", "closed"))]
    turns = [name for name, message in first if "rounds" in message][: 4 * 4 * 4]
    blocks = ["".join(name[0] for name in turns[at : at + 4]) for at in range(0, len(turns), 4)]
    assert len(blocks) == 16
    one, other = blocks[0], blocks[4]
    assert {one, other} == {"bhhb", "hbbh"}
    assert blocks == [one] * 4 + [other] * 4 + [one] * 4 + [other] * 4


def test_who_goes_first_is_drawn_for_each_pair(play):
    """Else whatever favours the first would look like a change."""
    starts = Counter()
    for seed in range(40):
        script = Script(same)
        play(script, ONE, seed=seed)
        starts[next(name for name, message in script.log if "rounds" in message)] += 1
    assert min(starts["base"], starts["head"]) >= 8


def test_each_pair_has_fresh_servers_and_the_same_noise_on_both_sides(play):
    script = Script(same)
    play(script, ONE, TWO, THREE)
    # Three rounds, shared by all benchmarks of a framework.
    assert script.servers == {"base": 3, "head": 3}
    pairs = list(zip(script.noises[::2], script.noises[1::2], strict=True))
    assert all(one == other for one, other in pairs)
    assert len({one["PYTHONHASHSEED"] for one, _ in pairs}) == 3
    assert len({len(one["FWBENCH_PADDING"]) for one, _ in pairs}) > 1


def test_a_program_is_fingerprinted_in_its_first_pair_alone(play):
    script = Script(same)
    play(script, ONE)
    asked = [message["finish"]["program"] for _, message in script.log if "finish" in message]
    assert asked == [True, True] + [False, False] * 2


@pytest.mark.parametrize(("seconds", "calls"), [(1e-6, 12), (0.125, 8), (2.0, 5)])
def test_the_first_pair_alone_is_profiled_for_about_a_second(play, seconds, calls):
    script = Script(lambda side, size: seconds)
    play(script, ONE, profiled=True)
    asked = [message["finish"]["spans"] for _, message in script.log if "finish" in message]
    assert asked == [calls, calls] + [0, 0] * 2
    script = Script(same)
    play(script, ONE)
    assert not any(message["finish"]["spans"] for _, message in script.log if "finish" in message)


def test_tails_show_in_cpu_time(play):
    """One slow round of five leaves the fastest one as it was."""
    found = play(Script(same, cpu=lambda side, size: 0.001 * (1.2 if side == "head" else 1.0)), ONE)[ONE]
    assert (found.kind, found.verdicts["cpu_time"].kind, found.verdicts["latency"].kind) == (
        "regressed",
        "regressed",
        "unchanged",
    )


@pytest.mark.parametrize(
    ("reported", "metric", "base", "head", "kind", "confirmed"),
    [
        # What a compiler says is exact: 2 % and 1 MiB may be added to a megabyte, and the first stage shows more.
        ("program_memory", "program_memory", 1_000_000, 1_000_000, "unchanged", 0),
        ("program_memory", "program_memory", 1_000_000, 2_000_000, "unchanged", 0),
        ("program_memory", "program_memory", 1_000_000, 2_100_000, "regressed", 0),
        ("host_peak_memory", "peak_memory", 4e8, 5e8, "regressed", 8),
    ],
)
def test_grown_memory_is_found(play, reported, metric, base, head, kind, confirmed):
    script = Script(same, memory=lambda side, size: {reported: head if side == "head" else base})
    found = play(script, ONE)[ONE]
    assert (found.verdicts[metric].kind, len(found.confirmation)) == (kind, confirmed)


def test_what_a_compiler_chose_by_measuring_on_a_gpu_is_decided_by_pairs(play):
    """Each process draws its own algorithms: here those that need more memory in the first two of head."""
    workload = dataclasses.replace(ONE, device="gpu")
    drawn = itertools.chain([2.0, 2.0], itertools.repeat(1.0))

    def memory(side, size):
        return {"program_memory": 1e9 * (next(drawn) if side == "head" else 1.0)}

    found = play(Script(same, memory=memory), workload)[workload]
    assert found.verdicts["program_memory"].kind == "unchanged"
    assert found.confirmation
    grown = Script(same, memory=lambda side, size: {"program_memory": 2e9 if side == "head" else 1e9})
    found = play(grown, workload)[workload]
    assert (found.verdicts["program_memory"].kind, len(found.confirmation)) == ("regressed", 8)


def test_thresholds_are_a_benchmarks_own(play):
    found = play(Script(slower(1.05, 1, 2)), ONE, TWO, own={TWO: {**THRESHOLDS, "latency": Threshold(0.10)}})
    assert (found[ONE].kind, found[TWO].kind) == ("regressed", "unchanged")


def test_a_turn_with_a_hole_is_taken_again_and_a_pair_with_nothing_else_says_so(play):
    script = Script(same, held=itertools.chain([1.0, 0.0], itertools.repeat(0.0)))
    assert "stopped" not in play(script, ONE)[ONE].note
    script = Script(same, held=itertools.repeat(1.0))
    found = play(script, ONE)[ONE]
    assert [pair.held for pair in found.screening] == [True] * 3
    assert "in 3 of 3 pairs" in found.note


def beside(*states, counted=({},)):
    """What finds a GPU that is in these states, one at each look of a pair."""
    return SimpleNamespace(find=lambda: FakeGpu(states=states, counted=counted))


OURS, THEIRS = (AcceleratorProcess(pid, 2**30) for pid in (os.getpid(), 77))
CALM, CROWDED = (AcceleratorState(processes=processes) for processes in ((OURS,), (OURS, THEIRS)))
# Seconds that the driver has counted at each look: far more of them pass than scripted turns take.
HEAT = [{"thermal limit": float(each)} for each in range(99)]


@pytest.mark.parametrize(
    ("gpu", "cause"),
    [
        (beside(CROWDED), "other processes were on the GPU"),
        # One that comes during the turns.
        (beside(CALM, CALM, CROWDED), "other processes were on the GPU"),
        (beside(CALM, counted=HEAT), "the GPU was throttled"),
    ],
    ids=["there before", "comes", "heat"],
)
def test_pairs_beside_somebody_on_the_gpu_are_no_replicates_and_the_duet_says_so(play, monkeypatch, gpu, cause):
    monkeypatch.setattr(rounds, "nvml", gpu)
    found = play(Script(slower(2.0, 1)), ONE, device="gpu")[ONE]
    assert (found.kind, found.pairs) == ("incomparable", [])
    assert cause in found.note
    assert outcome("base", "head", [found], 1.0).exit_code == 4


def test_pairs_count_that_are_played_after_somebody_has_left_the_gpu(play, monkeypatch):
    looks = itertools.count()
    states = {True: [CROWDED], False: [CALM]}
    find = SimpleNamespace(find=lambda: FakeGpu(states=states[next(looks) < 2]))
    monkeypatch.setattr(rounds, "nvml", find)
    found = play(Script(same), ONE, device="gpu")[ONE]
    assert (found.kind, len(found.screening)) == ("unchanged", 3)
    assert "2 further pairs do not count, as other processes were on the GPU" in found.note


# In a container both sides bear other numbers; and the power limit holds the clocks down at any work.
SIDES = AcceleratorState(processes=tuple(AcceleratorProcess(pid, 2**30) for pid in (4_000_001, 4_000_002)))
CAPPED = AcceleratorState(processes=(), throttle_reasons=("power cap",))
CAPS = [{"power cap": seconds["thermal limit"]} for seconds in HEAT]


@pytest.mark.parametrize(
    "gpu",
    [beside(AcceleratorState(processes=()), SIDES), beside(CAPPED, counted=CAPS)],
    ids=["in a container", "power limit"],
)
def test_what_disturbs_nothing_on_a_gpu_lets_pairs_count(play, monkeypatch, gpu):
    monkeypatch.setattr(rounds, "nvml", gpu)
    assert play(Script(same), ONE, device="gpu")[ONE].kind == "unchanged"


@pytest.mark.parametrize("metric", ["latency", "cpu_time"])
@pytest.mark.parametrize(("amount", "kind"), [(40e-6, "regressed"), (60e-6, "unchanged")])
def test_an_amount_of_time_is_added_to_the_share(play, metric, amount, kind):
    """Head takes 50 us longer than base's millisecond, and 50 us of CPU time longer than base's two."""
    script = Script(
        slower(1.05 if metric == "latency" else 1.0, 1), cpu=lambda side, size: slower(1.025, size)(side, size) * 2
    )
    limit = {metric: Threshold(0.0, amount)}
    found = play(script, ONE, thresholds={"latency": Threshold(0.02), **limit})[ONE]
    assert found.verdicts[metric].kind == kind
    assert {side: values["cpu_time"] for side, values in found.screening[0].values.items()} == {
        "base": pytest.approx(2e-3),
        "head": pytest.approx(2.05e-3),
    }


def test_a_planted_slowdown_is_heads_alone(play):
    script = Script(same)
    found = play(script, ONE, TWO, planted={TWO: 0.05})
    assert (found[ONE].kind, found[TWO].kind) == ("unchanged", "regressed")
    extras = {(name, m["workload"].get("batch_size", 1), m["extra"]) for name, m in script.log if "workload" in m}
    assert extras == {("base", 1, 0.0), ("head", 1, 0.0), ("base", 2, 0.0), ("head", 2, 0.05)}


def test_a_job_holds_what_the_protocols_version_says(play):
    """A further key, or one less, needs another version."""
    script = Script(same)
    play(script, ONE)
    keys = {"turns", "workload", "model", "path", "side", "root", "tree", "own", "recorded", "extra"}
    assert {frozenset(message) for _, message in script.log if "workload" in message} == {frozenset(keys)}


LACKING = ("built", "error", "there is no module 'mine'", "lacking")


@pytest.mark.parametrize(
    ("names", "fault", "kind"),
    [
        (["base"], ("built", "error", "TypeError: unknown field"), "new"),
        (["base"], ("built", "unavailable", "no network"), "new"),
        (["base"], ("rounds", "crashed", "killed by SIGSEGV"), "incomparable"),
        (["base"], ("rounds", "error", "ValueError: in a turn"), "incomparable"),
        (["base"], ("placed", "timed_out", "no answer"), "incomparable"),
        (["base"], ("built", "out_of_memory", "no memory left"), "incomparable"),
        (["head"], ("built", "out_of_memory", "no memory left"), "incomparable"),
        (["head"], ("placed", "out_of_memory", "no memory left"), "incomparable"),
        (["head"], ("built", "error", "broken"), "failed"),
        (["head"], ("built", "unavailable", "no network"), "missing"),
        (["head"], ("rounds", "crashed", "killed by SIGSEGV"), "failed"),
        (["head"], LACKING, "missing"),
        (["base"], LACKING, "new"),
        # What neither side has is the user's mistake, and no reason to skip its test.
        (BOTH, LACKING, "failed"),
    ],
)
def test_a_side_that_falls_costs_its_own_benchmark_alone(play, names, fault, kind):
    found = play(Script(same, faults={(name, 2): fault for name in names}), ONE, TWO, THREE)
    assert {w.batch_size: c.kind for w, c in found.items()} == {1: "unchanged", 2: kind, 3: "unchanged"}
    assert fault[2] in found[TWO].note
    assert {len(found[w].screening) for w in (ONE, THREE)} == {3}


@pytest.mark.parametrize(("refused", "kind"), [(("head",), "missing"), (("base",), "new"), (BOTH, "unavailable")])
@pytest.mark.parametrize("seed", range(6))
def test_what_a_server_that_does_not_come_up_means_does_not_depend_on_the_draw(play, refused, kind, seed):
    found = play(Script(same, refused=refused), ONE, TWO, seed=seed)
    assert {c.kind for c in found.values()} == {kind}


@pytest.mark.parametrize("of_base", ["unavailable", "error"])
def test_what_neither_side_can_run_is_not_missing(play, of_base):
    script = Script(
        same, faults={("head", 2): ("built", "unavailable", "no GPU"), ("base", 2): ("built", of_base, "none here")}
    )
    found = play(script, ONE, TWO)
    assert (found[ONE].kind, found[TWO].kind) == ("unchanged", "unavailable")
    assert found[TWO].note == "the head cannot run it: no GPU"


@pytest.mark.parametrize(("names", "kind"), [(("head",), "missing"), (BOTH, "incomparable")])
def test_what_both_sides_have_run_is_never_skipped(play, names, kind):
    """A GPU that is lost after screening has found a suspect."""
    script = Script(slower(1.05, 1))
    pairs = itertools.count()

    def partner(seat, *arguments):
        if next(pairs) == 2 * 4:
            script.faults = {(name, 1): ("built", "unavailable", "the GPU is lost") for name in names}
        return ScriptedPartner(script, seat, {})

    script.partner = partner
    assert play(script, ONE)[ONE].kind == kind


@pytest.mark.parametrize(
    "fault",
    [
        ("placed", "crashed", "killed"),
        # What was built once is not new.
        ("built", "error", "OSError: no space left on device"),
        ("built", "unavailable", "the GPU is lost"),
    ],
)
def test_a_base_that_falls_while_it_is_confirmed_is_no_crash_and_no_pass(play, monkeypatch, fault):
    script = Script(slower(1.05, 1, 2))
    rounds = Counter()
    real = ScriptedPartner.send

    def send(self, message):
        if "workload" in message:
            rounds[self.side.name, message["workload"].get("batch_size", 1)] += 1
            if rounds["base", 2] == 4:
                script.faults["base", 2] = fault
        real(self, message)

    monkeypatch.setattr(ScriptedPartner, "send", send)
    found = play(script, ONE, TWO)
    assert (found[ONE].kind, found[TWO].kind) == ("regressed", "incomparable")


def test_calls_that_change_while_a_program_stays_in_place_are_told(play):
    """Every turn of a placing is faster than the one before it."""

    class Warming(ScriptedPartner):
        def send(self, message):
            if "place" in message:
                self.turns = 0
            super().send(message)
            if "rounds" in message:
                self.turns += 1
                self.answers[-1]["rounds"] = [0.001 * 0.98**self.turns] * message["rounds"]

    script = Script(same)
    script.partner = lambda seat, *_: Warming(script, seat, {})
    note = play(script, ONE)[ONE].note
    assert note.startswith("calls change by -")
    assert "look for state that the model keeps from call to call" in note
    assert play(Script(same), ONE)[ONE].note == ""


def test_a_peak_that_a_confirming_process_hides_is_not_judged_and_the_others_are(play):
    """On a GPU a process may have tuned its kernels with more memory than its step takes."""
    calls = itertools.count()

    def memory(side, size):
        # Both processes of each of the screening pairs tell it, and none of those that confirm.
        told = {"device_peak_memory": 2e8 if side == "head" else 1e8} if next(calls) < 6 else {}
        return {"host_peak_memory": 1e8, "program_memory": 1e6} | told

    script = Script(lambda side, size: 0.02 if side == "head" else 0.01, memory=memory)
    (comparison,) = play(script, ONE, device="gpu").values()
    assert comparison.kind == "regressed"
    assert "latency" in comparison.verdicts
    assert "peak_memory" not in comparison.verdicts


def pair(difference, digest="one", sources="s", seconds=1.0):
    """A pair that took so long; `digest` and `sources` are head's."""
    told = {"base": ("one", "s"), "head": (digest, sources)}
    described = {
        side: {"program": {"form": "operators", "digest": program, "operators": {}}, "sources": modules}
        for side, (program, modules) in told.items()
    }
    values = {"base": {"latency": 0.002}, "head": {"latency": 0.5}}
    return Pair({"latency": difference}, {side: [0.1] for side in BOTH}, values, described, 0.0, seconds)


def decided(differences, digest="one", sources="s"):
    """What becomes of a workload in pairs of these differences; after the last one the run is ended."""
    drawn = iter(differences)
    duet = Duet({ONE: LIMIT})
    with contextlib.suppress(StopIteration):
        duet.play(lambda asked, arrived: [arrived(each, pair(next(drawn), digest, sources)) for each in asked])
    return duet.comparisons()[ONE]


@pytest.mark.parametrize(
    ("differences", "kind", "screened", "replicates"),
    [
        ([0.0] * 3, "unchanged", 3, "3 pairs, no suspect"),
        ([0.03] * 3 + [0.0] * 4, "unchanged", 3, "4 pairs, cleared"),
        ([0.05] * 30, "regressed", 3, "8 pairs, confirmed"),
        ([-0.05] * 30, "improved", 3, "8 pairs, confirmed"),
        ([0.1, -0.1, 0.3] + [0.065, -0.02] * 33, "inconclusive", 4, "64 pairs, the most"),
        ([0.1, -0.1, 0.3] + [0.26, -0.2] * 33, "inconclusive", 4, "12 pairs, more would not decide"),
        ([0.05] * 5, "inconclusive", 3, "2 pairs, the time was over"),
        # What is no suspect and scatters is played on until it is cleared, and no further.
        ([0.06, -0.06, 0.0, 0.001, 0.001, -0.001, 0.002, 0.0, 9.0], "unchanged", 7, "7 pairs, no suspect"),
        ([0.06, -0.06, 0.0, 0.001] + [0.06, -0.06] * 2 + [9.0], "inconclusive", 8, "8 pairs, no suspect"),
        # The first four scatter about 1 %, and all later ones say 5 %: more pairs make it a suspect.
        ([0.01, 0.05, -0.03, 0.01] + [0.05] * 30, "regressed", 6, "8 pairs, confirmed"),
        # Four fresh pairs whose estimate is zero, between -9 and +9 %, do not say that nothing changed.
        ([0.03] * 3 + [0.09, -0.09] + [0.001, -0.001] * 9, "unchanged", 3, "11 pairs, cleared"),
    ],
)
def test_a_row_says_how_many_pairs_were_played_and_why_no_further_one(differences, kind, screened, replicates):
    found = decided(differences)
    (finding,) = outcome("base", "head", [found], 1.0).findings
    assert (found.kind, len(found.screening), finding.replicates) == (kind, screened, replicates)


def test_a_suspect_is_never_unchanged_when_the_run_ends_before_its_first_fresh_pair():
    """It ends while another benchmark is still screened."""
    scattered = iter([0.05, -0.05, 0.0])

    def playing(asked, arrived):
        if ONE not in asked:
            raise KeyboardInterrupt
        arrived(ONE, pair(0.1))
        arrived(TWO, pair(next(scattered)))

    found = ended(playing).values()
    assert [(each.kind, len(each.pairs)) for each in found] == [("inconclusive", 3)] * 2
    assert {each.verdicts["latency"].ended for each in found} == {"the time was over"}


def of_two_metrics(cpu_time, disturbed=""):
    """A pair whose head is 10 % slower."""
    values = {side: {"latency": 1.0, "cpu_time": 1.0} for side in BOTH}
    differences = {"latency": 0.1, "cpu_time": cpu_time}
    return Pair(differences, {side: [1.0] for side in BOTH}, values, {}, 0.0, 1.0, disturbed=disturbed)


@pytest.mark.parametrize(
    ("fault", "kind", "note"),
    [
        (of_two_metrics(0.0, "the GPU was throttled"), "regressed", "do not count, as the GPU was throttled"),
        (Fault("base", "the base", Failure("crashed", "killed", "turns")), "regressed", "the base: killed"),
        (Fault("head", "the head", Failure("crashed", "killed", "turns")), "failed", "killed"),
    ],
    ids=["disturbed", "base", "head"],
)
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_confirmed_regression_stands_where_another_metric_cannot_be_decided(confirmed, fault, kind, note):
    """Screening suspects both metrics; of 11 fresh pairs 9 confirm the latency, and those of the CPU time scatter."""
    duet = Duet({ONE: {name: Threshold(0.02) for name in ("latency", "cpu_time")}})
    pairs = [of_two_metrics(0.3) for _ in range(3)]
    pairs += [of_two_metrics(cpu_time) for cpu_time in [0.3, -0.25] * 5 + [0.3]][: 11 if confirmed else 5]
    drawn = itertools.chain(pairs, itertools.repeat(fault))
    duet.play(lambda asked, arrived: [arrived(each, next(drawn)) for each in asked])
    found = duet.comparisons()[ONE]
    assert note in found.note
    if not confirmed or kind == "failed":
        assert (found.kind, found.verdicts) == ("failed" if kind == "failed" else "incomparable", {})
        return
    assert (found.kind, found.verdicts.keys()) == ("regressed", {"latency"})
    (row,) = outcome("base", "head", [found], 1.0).findings
    assert (row.kind, row.metric, row.note) == ("regressed", "latency", found.note)


def timed(seconds, play, workloads=(ONE, TWO)):
    """A duet over so many seconds of the pairs that `play(workload)` returns, and how many it has spent."""
    duet, spent = Duet(dict.fromkeys(workloads, LIMIT)), [0.0]

    def playing(asked, arrived):
        for workload in asked:
            new = play(workload)
            spent[0] += new.seconds
            arrived(workload, new)

    duet.play(playing, left=lambda: seconds - spent[0])
    return duet, spent[0]


@pytest.mark.parametrize(("minutes", "known"), [(0.01, (1, 1)), (0.5, (3, 5)), (1e6, None)])
def test_what_has_no_time_left_stays_undecided(minutes, known):
    """Each workload has a first pair; the suspect, of which a pair takes 5 s, gets what is left."""
    duet, spent = timed(60 * minutes, lambda of: pair(0.021, seconds=5.0) if of == TWO else pair(0.0))
    one, two = duet.comparisons().values()
    assert spent <= max(6, 60 * minutes)
    assert not known or (len(one.pairs), len(two.pairs)) == known
    assert two.verdicts["latency"].note.endswith("go on with --fwbench-resume") is bool(known)


def kinds(seconds, changed, slower, workloads):
    """The kinds of verdicts after so many seconds of pairs that take one each."""
    duet, spent = timed(
        seconds, lambda of: pair(0.3 if of in slower else 0.0, "another" if of in changed else "one"), workloads
    )
    assert spent <= max(seconds, len(workloads))
    return [comparison.kind for comparison in duet.comparisons().values()]


def test_with_little_time_a_changed_program_comes_first_and_needs_six_pairs():
    """The next one then has the nine fresh pairs that decide one of two suspects."""
    assert kinds(6, [TWO], [ONE, TWO], [ONE, TWO]) == ["inconclusive", "inconclusive"]
    for seconds in (6 + 1, 6 + 3 + 8):
        assert kinds(seconds, [TWO], [ONE, TWO], [ONE, TWO]) == ["inconclusive", "regressed"]
    assert kinds(6 + 3 + 9, [TWO], [ONE, TWO], [ONE, TWO]) == ["regressed", "regressed"]


@pytest.mark.parametrize(("seconds", "unchanged", "changed"), [(32, 0, 3), (96, 3, 8)])
def test_the_minutes_decide_as_many_benchmarks_as_they_can(seconds, unchanged, changed):
    """Half of 16 benchmarks are slower; spread over all of them, the first minutes' 32 or 48 pairs decide none."""
    suite = [Workload("torch", "mlp", batch_size=size) for size in range(1, 17)]
    found = kinds(seconds, suite[:8], suite[:8], suite)
    assert found[:8].count("regressed") >= changed
    assert "regressed" not in found[8:]
    assert kinds(seconds, [], suite[:8], suite).count("regressed") >= unchanged


def test_a_benchmark_that_had_to_wait_is_screened_when_others_needed_less_time():
    """Eight pairs are reserved for a suspect; it is cleared after four."""
    drawn = iter([0.05] * 3 + [0.0] * 30)
    duet, _ = timed(16, lambda of: pair(next(drawn)) if of == ONE else pair(0.0, seconds=2.0))
    assert [len(pairs) for pairs in duet.screening.values()] == [3, 3]


def test_a_first_pair_that_took_long_does_not_end_a_workload():
    """Files are cold and nothing is compiled: the first pairs take 25 s and 10 s, and all others 2 s."""
    first = {ONE: 25.0, TWO: 10.0}
    duet, _ = timed(50, lambda of: pair(0.0, seconds=first.pop(of, 2.0)))
    assert [len(pairs) for pairs in duet.screening.values()] == [3, 3]


def test_a_program_of_two_speeds_does_not_take_the_time_of_others():
    """The other's slowdown shows in its fifth pair only, and needs eleven more when the first one has had its own."""
    drawn = {ONE: itertools.cycle([0.26, 0.26, 0.0, -0.26, 0.26]), TWO: iter([-0.05, 0.05, 0.0, 0.0, *[0.05] * 30])}
    duet, spent = timed(40, lambda of: pair(next(drawn[of])))
    assert {of: each.kind for of, each in duet.comparisons().items()} == {ONE: "inconclusive", TWO: "regressed"}
    # What is left is the first one's.
    assert spent == 40


def test_pairs_of_a_journal_may_say_that_they_took_no_time():
    duet = Duet(dict.fromkeys((ONE, TWO), LIMIT))
    for workload in (ONE, ONE, TWO):
        duet.take("screening", workload, pair(0.0, seconds=0.0))
    duet.play(lambda asked, arrived: [arrived(workload, pair(0.0)) for workload in asked], left=lambda: 1.0)
    assert [len(pairs) for pairs in duet.screening.values()] == [3, 3]


@pytest.mark.parametrize(
    ("differences", "same", "changed", "ended"),
    [
        ([0.025] * 3 + [0.014, 0.023] * 8, "unchanged", "regressed", "cleared"),
        ([0.05] * (3 + 6), "inconclusive", "regressed", "the time was over"),
        # Not where it is surely within the threshold, may be as fast, or is faster.
        ([0.005, 0.006, 0.007], "unchanged", "unchanged", "no suspect"),
        ([0.025] * 3 + [-0.01, 0.03] * 8, "unchanged", "unchanged", "cleared"),
        ([-0.05] * (3 + 6), "inconclusive", "inconclusive", "the time was over"),
    ],
)
def test_a_changed_program_fails_where_its_interval_leaves_out_zero_and_holds_the_threshold(
    differences, same, changed, ended
):
    """Unchanged code, whose false alarms are bounded, has the same program."""
    found = [decided(differences, digest) for digest in ("one", "another")]
    assert [each.kind for each in found] == [same, changed]
    assert {each.verdicts["latency"].ended for each in found} == {ended}


def test_base_head_and_change_are_of_one_kind():
    (finding,) = outcome("base", "head", [decided([0.01] * 3)], 1.0).findings
    assert finding.base == 0.002
    assert finding.head / finding.base == pytest.approx(finding.verdict.ratio) == pytest.approx(1.01, abs=1e-4)


@pytest.mark.parametrize(("digest", "sources", "alike"), [("one", "s", True), ("one", "t", False), ("two", "s", False)])
def test_it_is_said_that_both_sides_are_the_same(digest, sources, alike):
    *_, finding = outcome("base", "head", [decided([0.0] * 3, digest, sources)], 1.0).findings
    assert finding.note == ("both sides ran the same sources and the same program" if alike else "")
