"""How long a run will take: the amounts against the meters that spend them, and what records and this run correct."""

import csv
import dataclasses
import itertools
import math
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest

from fwbench import frameworks, units
from fwbench.errors import Absent
from fwbench.machine.facts import WORTH
from fwbench.models import CATALOG
from fwbench.plugin import plan as plan_module
from fwbench.plugin.plan import Estimate, Plan, estimates, rest, windows
from fwbench.plugin.selecting import select
from fwbench.record.lanes import LANES
from fwbench.record.measurement import CEILING, Failure, Measurement
from fwbench.record.reading import read
from fwbench.record.workload import MODES, STATEFUL, Workload
from fwbench.suite.costs import Cost, cost, once, start
from fwbench.suite.profiles import PROFILES
from fwbench.worker.process import job
from fwbench.worker.process.run import Measuring
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.taken import Taken
from tests.proving import MODELS
from tests.unit.fakes import FakeFramework, FakeProgram
from tests.unit.recorded import MACHINE, journal, measured, write
from tests.unit.suites import parsed

H100 = dataclasses.replace(MACHINE, device="gpu", accelerator="NVIDIA H100 80GB HBM3")
QUICK, PAPER = PROFILES["quick"], PROFILES["paper"]
MLP = Workload("torch", "mlp")
# What tests/benchmarks measures besides the suite.
HARNESS = (
    Workload("noop", "noop"),
    Workload("jax", "resnet50", "dispatch"),
    Workload("noop", "noop", "fixed"),
)


@pytest.fixture(autouse=True)
def counters(monkeypatch):
    """Of energy a GPU has a counter, and a CPU has none."""
    monkeypatch.setattr(plan_module, "counter", lambda device: object() if device == "gpu" else Absent("none"))


def plan(benchmarks, storage=Path("nowhere"), machine=MACHINE, processes=1, duet=False):
    return Plan(*estimates(benchmarks, storage, machine, processes, duet), duet)


def one(workload=MLP, protocol=QUICK, **of):
    """The plan of one benchmark."""
    return plan({"test": (workload, protocol)}, **of)


# What the protocol asks for


class Meter:
    """Moves every `step` seconds."""

    name, fault, step = "fake", "", 0.01

    def __init__(self, clock):
        self._clock = clock

    def read(self):
        return math.floor(self._clock.now / self.step)


@pytest.mark.parametrize("metered", [True, False])
@pytest.mark.parametrize("seconds", [1e-3, 0.06, 0.3, 7.0])
@pytest.mark.parametrize(
    "protocol",
    [QUICK, PAPER, dataclasses.replace(QUICK, energy_time=0.5), dataclasses.replace(QUICK, programs=True)],
    ids=["quick", "paper", "window too short", "programs"],
)
def test_a_plan_has_the_time_that_a_worker_spends(monkeypatch, clock, protocol, seconds, metered):
    monkeypatch.setattr(frameworks, "load", lambda adapter: FakeFramework(FakeProgram(clock, seconds)))
    monkeypatch.setattr(job, "counter", lambda device, **_: Meter(clock) if metered else "no counter")
    monkeypatch.setattr("fwbench.meters.energy.time", clock)
    measurement = Measuring(
        Workload("noop", "noop"), LANES["noop"], CATALOG["noop"], protocol, lambda stage: None, clock
    ).run()
    assert measurement.failure is None
    # Besides the windows: 3 s of compiling, the first call, and the memory pass.
    spent = clock.now - 3.0 - seconds * (1 if protocol.programs else 2)
    # The counter's next move is waited for four times, and the clock's sums are rounded.
    planned = windows(protocol, seconds, metered) + rest(protocol, metered)
    assert planned == pytest.approx(spent, abs=max(2 * seconds, 0.02) + 4 * Meter.step)


# What a whole run takes


# Profiles have no benchmark of a model with a state.
MEASURED = [mode for mode in MODES if mode not in STATEFUL]


@pytest.fixture
def planned(pytester):
    """The plan of all that a machine measures with these options and has no record of."""

    def choose(machine, *options):
        selection = select(parsed(pytester, *options), machine)
        workloads = [workload for mode in MODES for workload in selection.workloads(mode, CATALOG)]
        workloads += [dataclasses.replace(workload, device=machine.device) for workload in HARNESS]
        benchmarks = {workload.id: (workload, selection.protocol) for workload in workloads}
        return plan(benchmarks, machine=machine, processes=selection.processes), workloads

    return choose


def test_the_default_on_a_gpu_measures_every_lane_and_model_in_less_than_17_minutes(planned):
    default, workloads = planned(H100)
    lanes = ("torch", "torch-compile", "jax")
    assert {(w.lane, w.model) for w in workloads if w.mode == "inference" and w.lane != "noop"} == {
        (lane, model) for lane in lanes for model in MODELS
    }
    for mode in MEASURED:
        assert {w.lane for w in workloads if w.mode == mode} >= set(lanes)
    # Of each benchmark of calls at least the energy's windows and the throughput's, so that no figure hides them.
    assert default.left > 6 * sum(w.mode != "fit" for w in workloads)
    assert default.left < 17 * 60


def test_the_paper_is_on_request_and_takes_hours(planned):
    paper, workloads = planned(H100, "--fwbench-profile=paper")
    assert {w.batch_size for w in workloads if w.mode == "inference"} == {1, 8, 32, 128}
    assert paper.left > 3600


def test_the_docs_have_the_plans_as_they_are(planned):
    text = Path(__file__).parents[2].joinpath("docs", "options.md").read_text()
    missing = [row for row in documented(planned) if row not in text]
    assert not missing, "docs/options.md needs these rows:\n" + "\n".join(missing)


def documented(planned):
    """Rows of the documented tables: of profiles, and of the lanes of the default on a GPU."""
    on_a_gpu = [(profile, "an H100", H100) for profile in ("quick", "ci", "paper")]
    on_a_cpu = [(profile, "two CPU cores", MACHINE) for profile in ("quick", "ci")]
    for profile, where, machine in (*on_a_gpu, *on_a_cpu):
        found, workloads = planned(machine, f"--fwbench-profile={profile}")
        of_harness = workloads[-len(HARNESS) :]
        counts = [sum(w.mode == mode for w in workloads if w not in of_harness) for mode in MEASURED] + [
            len(of_harness)
        ]
        yield table_row(f"`{profile}` on {where}", counts, found, workloads, PROFILES[profile].on(machine.device))
    found, workloads = planned(H100)
    for mode, lane in dict.fromkeys((w.mode, w.lane) for w in workloads[: -len(HARNESS)]):
        chosen = [w for w in workloads if (w.mode, w.lane) == (mode, lane)]
        yield table_row(f"{mode}, `{lane}`", [len(chosen)], found, chosen, QUICK.on("gpu"))


def table_row(name, counts, found, workloads, protocol):
    every = sum(found.pending[w.id].seconds for w in workloads)
    calls = [cost(w, 2).call for w in workloads if w.mode != "fit"]
    timed = sum(windows(protocol, call, workloads[0].device == "gpu") for call in calls)
    return f"| {' | '.join(map(str, (name, *counts, *map(units.duration, (timed, every - timed, every)))))} |"


def test_every_own_lane_and_model_has_a_row_in_the_table():
    rows = list(csv.DictReader(files("fwbench.suite").joinpath("costs.csv").read_text().splitlines()))
    assert all(row["source"] for row in rows)
    assert all(float(row[name]) >= 0 for row in rows for name in ("ready_s", "call_s", "sample_s"))
    found = {(row["device"], row["lane"], row["model"], row["mode"]) for row in rows}
    assert len(found) == len(rows)
    lanes = [lane.name for lane in LANES.values() if lane.profiles and not lane.internal]
    assert not {*itertools.product(("cpu", "gpu"), lanes, MODELS, ("inference", "train_step"))} - found


@pytest.mark.parametrize("gpu", ["H100", "H200"])
def test_a_plan_for_a_gpu_agrees_with_its_baseline(gpu):
    rows = csv.DictReader(files("fwbench.suite").joinpath("costs.csv").read_text().splitlines())
    measured_there = {
        (row["lane"], row["model"], row["mode"])
        for row in rows
        if row["device"] == "gpu" and row["source"].startswith(f"an {gpu} at batch 32")
    }
    baselines = Path(__file__).parents[2] / ".benchmarks" / "baselines"
    recorded = {
        (m.workload.lane, m.workload.model, m.workload.mode): m
        for record in sorted(map(read, baselines.glob(f"nvidia-{gpu.lower()}*")), key=lambda record: record.made)
        for m in record.measurements
    }
    assert measured_there
    assert measured_there <= recorded.keys()
    for benchmark in measured_there:
        measurement = recorded[benchmark]
        assumed = cost(measurement.workload, 1)
        assert assumed.call == pytest.approx(measurement.value("latency_p50"), rel=0.1)
        # What is found out once has a row of its own.
        spent = sum(
            seconds
            for stage, seconds in measurement.stages.items()
            if stage not in (*plan_module._TIMED, CEILING) and not (stage == "probe" and seconds >= WORTH)
        )
        assert assumed.ready == pytest.approx(spent, rel=0.1)


def test_a_sample_takes_less_with_more_threads_and_more_with_a_larger_batch():
    small, large = (Workload("torch", "resnet50", batch_size=size) for size in (1, 64))
    assert cost(large, 2).call > 10 * cost(small, 2).call
    assert cost(large, 8).call < cost(large, 2).call / 3


def test_processes_multiply_and_programs_need_one():
    assert one(processes=3).left == pytest.approx(start(MLP) + 3 * (one().left - start(MLP)))
    programs = dataclasses.replace(QUICK, programs=True)
    assert one(protocol=programs, processes=3).left == one(protocol=programs).left < one().left


def test_only_the_first_benchmark_of_a_lane_waits_for_its_server():
    again, other = Workload("torch", "mlp", batch_size=2), Workload("jax", "mlp")
    together = plan({w.id: (w, QUICK) for w in (MLP, again, other)})
    assert together.left == pytest.approx(sum(one(w).left for w in (MLP, again, other)) - start(again))


RESNET = Workload("torch", "resnet50", batch_size=32, device="gpu")


def test_on_a_gpu_the_first_benchmark_of_a_lane_pays_for_what_later_ones_take_over():
    training, half = dataclasses.replace(RESNET, mode="train_step"), dataclasses.replace(RESNET, precision="bf16")
    each = plan({w.id: (w, QUICK) for w in (RESNET, training, half)}, machine=H100).pending
    first = start(RESNET) + rest(QUICK, metered=True) + once(RESNET)
    assert once(RESNET) > 1
    alone = one(training, machine=H100).left
    assert each[training.id].seconds == pytest.approx(alone - first)
    # Another precision has ceilings of its own, and the same idle power.
    assert each[half.id].seconds == pytest.approx(each[RESNET.id].seconds - first + once(half))


def test_on_a_gpu_a_program_that_draws_little_reads_idle_power_itself():
    small = dataclasses.replace(RESNET, model="mlp")
    both = plan({w.id: (w, QUICK) for w in (RESNET, small)}, machine=H100).pending
    costs = cost(small, 1)
    timed = windows(QUICK, costs.call, metered=True) + rest(QUICK, metered=True)
    assert both[small.id].seconds == pytest.approx(costs.ready + timed, abs=4 * costs.call)


def test_what_a_run_has_found_out_the_next_one_takes_over(keep):
    jax = dataclasses.replace(RESNET, lane="jax")

    def left(**stages):
        lines = journal(recorded(**dataclasses.asdict(jax) | {"stages": STAGES | stages}), machine=H100)
        return one(jax, storage=keep({"1": lines}), machine=H100).left

    assert left(ceilings=28.0, probe=4.5) == left() == pytest.approx(29.5 + start(jax))
    # What is quicker each process does again.
    assert left(probe=0.25) == pytest.approx(left() + 0.25)


EIGHT = [
    Workload(lane, model, mode, 32, device="gpu")
    for mode, models in (("inference", MODELS), ("train_step", ("resnet50", "mlp")))
    for model in models
    for lane in ("torch", "torch-compile", "jax")
]


def test_eight_workloads_in_three_lanes_are_measured_on_a_gpu_in_less_than_ten_minutes():
    """Without turns, which are left with a minute or less when everything was compiled anew."""
    amounts = QUICK.on("gpu")
    found = plan({w.id: (w, amounts) for w in EIGHT}, machine=H100)
    building = sum(cost(w, 1).ready for w in EIGHT)
    assert 530 < found.left < 600
    assert 0.6 < building / found.left < 0.8
    # All else, idle power, ceilings and arithmetic included.
    assert found.left - building < 185


def test_a_later_run_on_a_gpu_loads_what_the_first_one_compiled(keep):
    benchmark = dataclasses.replace(MLP, device="gpu")
    amounts = QUICK.on("gpu")
    stages = {"build": 2.0, "compile": 20.0}

    def left(kept, of=stages, processes=1):
        of = recorded(device="gpu", protocol=amounts.to_json(), stages=of)
        storage = keep({"made": journal(of, machine=H100)})
        return Plan(*estimates({"a": (benchmark, amounts)}, storage, H100, processes, kept=kept)).left

    assert left(False) - left(True) == pytest.approx(0.84 * 20)
    # What was loaded before takes what that took.
    assert left(True, {"build": 2.0, "load": 3.0}) == pytest.approx(left(False) - 17)
    # Of several processes each compiles.
    assert left(True, processes=3) == left(False, processes=3)


def test_epochs_of_data_that_take_long_to_read_are_not_guessed():
    fit = Workload("torch", "resnet50", "fit", 32, data="imagenet-100")
    found = one(fit)
    assert (found.left, found.pending, found.left_told()) == (0, {"test": None}, "")
    assert found.told() == "fwbench: 1 benchmark, at least 0 s (of unknown length)"
    both = plan({"a": (MLP, QUICK), "b": (fit, QUICK)})
    assert both.left == one().left
    assert both.told().endswith("; 1 of unknown length)")
    assert both.left_told().startswith("over ")


# Records

STAGES = {"build": 5.0, "compile": 20.0, "warm-up": 1.0, "latency": 1.5, "throughput": 1.25, "memory": 0.25}


def recorded(**changes):
    """29.5 s, of which 3.75 s are windows."""
    own = {"protocol": QUICK.to_json(), "stages": STAGES, "overhead_s": 0.5, "samples": (0.01,) * 5}
    return measured(**own | changes)


@pytest.fixture
def keep(tmp_path):
    """Journals by name, as a storage."""

    def kept(journals):
        folder = tmp_path / "journal"
        folder.mkdir(exist_ok=True)
        for name, lines in journals.items():
            write(folder / f"{name}.jsonl", lines)
        return tmp_path

    return kept


def test_what_a_benchmark_took_last_is_the_plan(keep):
    found = one(storage=keep({"1": journal(recorded())}))
    assert found.left == pytest.approx(29.5 + start(MLP))
    assert found.told() == f"fwbench: 1 benchmark, about {round(found.left)} s (from the record of 21 Nov 2026)"


def test_of_a_record_with_other_amounts_all_but_the_windows_is_kept(keep):
    found = one(storage=keep({"1": journal(recorded())}), protocol=PAPER).pending["test"]
    assert found.recorded
    assert found.seconds == pytest.approx(windows(PAPER, 0.01, metered=False) + 25.75 + start(MLP))


def test_the_newest_journal_counts_and_older_ones_fill_up(keep):
    older = journal(recorded(), recorded(lane="jax"), started="2026-11-01T12:00:00+00:00")
    newer = journal(recorded(overhead_s=1.5), started="2026-11-03T12:00:00+00:00")
    storage = keep({"20261101T120000-1": older, "20261103T120000-1": newer})
    jax = Workload("jax", "mlp")
    found = plan({"torch": (MLP, QUICK), "jax": (jax, QUICK)}, storage)
    assert found.pending == {
        "torch": Estimate("torch", pytest.approx(30.5 + start(MLP)), True),
        "jax": Estimate("jax", pytest.approx(29.5 + start(jax)), True),
    }
    assert found.made.day == 3


def test_reading_ends_when_all_is_known_and_after_some_journals(keep, monkeypatch):
    opened = []
    read = plan_module.read
    monkeypatch.setattr(plan_module, "read", lambda path: opened.append(path.stem) or read(path))
    one(storage=keep({"1": journal(recorded()), "2": journal(recorded())}))
    assert opened == ["2"]
    opened.clear()
    started = "2026-11-22T09:00:0{}+00:00"
    storage = keep({str(n): journal(recorded(model="cnn"), started=started.format(n)) for n in range(3, 9)})
    one(storage=storage)
    assert opened == ["8", "7", "6", "5", "4"]
    opened.clear()
    monkeypatch.setattr(plan_module, "_BYTES", 100)
    assert not one(storage=storage).pending["test"].recorded
    assert opened == []


@pytest.mark.parametrize(
    ("lines", "machine"),
    [
        (journal(recorded()), dataclasses.replace(MACHINE, threads=1)),
        (journal(recorded()), H100),
        (["no journal"], MACHINE),
        (journal(recorded(), schema=-1), MACHINE),
        (journal(recorded(failure=Failure("crashed", "killed"))), MACHINE),
        (journal(recorded(stages={}, duet={"screening": [{"seconds": 3.0}]})), MACHINE),
        (journal(recorded(samples=())), MACHINE),
    ],
    ids=["threads", "accelerator", "damaged", "schema", "failed", "a duet", "programs alone"],
)
def test_a_record_that_tells_nothing_is_passed_over(keep, lines, machine):
    assert not one(storage=keep({"1": lines, "2": lines}), machine=machine).pending["test"].recorded
    if machine == MACHINE:
        storage = keep({"1": journal(recorded(overhead_s=2.0))})
        assert one(storage=storage).left == pytest.approx(31.0 + start(MLP))


def test_what_was_unavailable_takes_no_time(keep):
    unavailable = Measurement(MLP, failure=Failure("unavailable", "no torch here"))
    for duet in (False, True):
        found = one(storage=keep({"1": journal(unavailable)}), duet=duet)
        assert found.left == pytest.approx(start(MLP))


def test_programs_alone_are_planned_from_their_own_record_and_from_timed_ones(keep):
    programs = dataclasses.replace(QUICK, programs=True, warmup_iterations=2)
    own = recorded(samples=(), protocol=programs.to_json(), stages={"build": 5.0, "compile": 20.0, "warm-up": 1.0})
    for lines, seconds in ((journal(own), 26.5), (journal(recorded()), 25.75 + 4 * 0.01)):
        found = one(storage=keep({"1": lines}), protocol=programs)
        assert found.left == pytest.approx(seconds + start(MLP))


@pytest.mark.parametrize("call", [1e-4, 0.06, 2.0])
def test_a_duet_is_planned_by_the_turns_that_its_pairs_play(monkeypatch, call):
    monkeypatch.setattr(plan_module, "cost", lambda workload, threads: Cost(ready=5.0, call=call))
    amounts = Pairs.amounts
    taken = Taken(amounts)
    taken.plan(call, 2)
    turns = amounts.placings * taken.blocks * 2 * 2
    assert one(duet=True).left == pytest.approx(3 * (turns * taken.rounds * call + 2 * 5.0) + start(MLP))


def test_of_a_duet_screening_alone_is_planned(keep):
    duet = recorded(stages={}, duet={"screening": [{"seconds": 3.0}, {"seconds": 4.0}, {"seconds": 5.0}]})
    found = one(storage=keep({"1": journal(duet)}), duet=True)
    assert found.pending["test"] == Estimate("torch", pytest.approx(12 + start(MLP)), True)
    assert found.told().startswith("fwbench: 1 benchmark in a duet, at least ")
    # They all run in the first test.
    assert found.left_told() == ""


# This run


def planned_by_hand(*names):
    """30 s of each lane's benchmark; one whose name ends with 9 has a record."""
    return Plan({name: Estimate(name[:-1], 30.0, name.endswith("9")) for name in names})


def test_what_was_taken_corrects_what_is_left_of_its_lane_and_source():
    found = planned_by_hand("torch0", "torch1", "torch2", "torch9", "jax0")
    assert found.left == 150.0
    found.took("torch0", 60.0)
    # Ten seconds count as planned rightly.
    assert found.left == pytest.approx(2 * 30.0 * (60 + 10) / (30 + 10) + 2 * 30.0)
    found.took("torch1", 60.0)
    assert found.left == pytest.approx(30.0 * (120 + 10) / (60 + 10) + 2 * 30.0)
    for name in ("torch2", "torch9", "jax0"):
        found.took(name, 50.0)
    assert found.left == 0.0


def test_a_benchmark_that_failed_or_was_skipped_teaches_nothing():
    found = planned_by_hand("torch0", "torch1", "torch2")
    found.took("torch0", None)
    found.took("somebody's own", 99.0)
    found.took("torch0", 0.0)
    assert found.left == 60.0


def test_of_several_at_once_the_longest_is_waited_for():
    found = Plan({"a": Estimate("jax", 50.0, True), "b": Estimate("jax", 10.0, True)}, at_once=4)
    assert found.left == 50.0


def test_the_sources_are_told_apart():
    found = Plan(
        {"a": Estimate("jax", 100.0, True), "b": Estimate("jax", 10.0, False)}, datetime(2026, 11, 3, 12, tzinfo=UTC)
    )
    assert found.told() == (
        "fwbench: 2 benchmarks, about 2 min (1 from the record of 3 Nov 2026; "
        "1 from rough figures, as no record of this machine has them)"
    )
    assert found.left_told() == "2 min left"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.2, "1 s"), (99.4, "99 s"), (99.6, "2 min"), (3569, "59 min"), (3571, "1 h 0 min")],
)
def test_durations_are_humane(seconds, text):
    assert units.duration(seconds) == text
