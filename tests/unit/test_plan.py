"""How long a run will take: the amounts against the meters that spend them, and what records and this run correct."""

import csv
import dataclasses
import functools
import math
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest

from fwbench import frameworks
from fwbench.meters.energy import energy
from fwbench.models import CATALOG
from fwbench.plugin import plan as plan_module
from fwbench.plugin.plan import Estimate, Known, Plan, known, plan, windows
from fwbench.plugin.selecting import select
from fwbench.record.lanes import LANES, OWN
from fwbench.record.measurement import CEILING, Failure, Measurement
from fwbench.record.reading import read
from fwbench.record.workload import MODES, Workload
from fwbench.report import units
from fwbench.suite.costs import Cost, cost, start
from fwbench.suite.profiles import PROFILES
from fwbench.worker.process import job, passes
from fwbench.worker.process.run import Measuring
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.taken import Taken
from tests.unit.fakes import FakeFramework, FakeProgram
from tests.unit.recorded import MACHINE, journal, measured, metric, write

H100 = dataclasses.replace(MACHINE, device="gpu", accelerator="NVIDIA H100 80GB HBM3")
QUICK, PAPER = PROFILES["quick"], PROFILES["paper"]
MLP = Workload("torch", "mlp")
# What tests/benchmarks measures besides the suite.
HARNESS = (
    Workload("noop", "noop"),
    Workload("jax", "resnet50", "dispatch"),
    Workload("noop", "noop", "fixed"),
)


def one(workload=MLP, protocol=QUICK, known=Known(), **changes):  # noqa: B008
    """The plan of one benchmark without an energy counter."""
    return plan({"test": (workload, protocol)}, known, **{"threads": 2, "metered": False, **changes})


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
    monkeypatch.setattr(passes, "energy", functools.partial(energy, sleep=clock.sleep))
    measurement = Measuring(
        Workload("noop", "noop"), LANES["noop"], CATALOG["noop"], protocol, lambda stage: None, clock
    ).run()
    assert measurement.failure is None
    # Besides the windows: 3 s of compiling, the first call, and the memory pass.
    spent = clock.now - 3.0 - seconds * (1 if protocol.programs else 2)
    # Energy makes four calls at once and waits three times until the counter moves; the clock's sums are rounded.
    assert windows(protocol, seconds, metered) == pytest.approx(spent, abs=max(4 * seconds, 0.02) + 3 * Meter.step)


# What a whole run takes


@pytest.fixture
def planned(pytester):
    """The plan of all that a machine measures with these options and has no record of."""

    def choose(machine, *options):
        selection = select(pytester.parseconfig("-p", "fwbench.plugin", *options), machine)
        workloads = [workload for mode in MODES for workload in selection.workloads(mode, CATALOG)]
        workloads += [dataclasses.replace(workload, device=machine.device) for workload in HARNESS]
        benchmarks = {workload.id: (workload, selection.protocol) for workload in workloads}
        metered = machine.device == "gpu"
        return plan(benchmarks, Known(), threads=2, metered=metered, processes=selection.processes), workloads

    return choose


def test_the_default_on_a_gpu_measures_every_lane_and_model_in_less_than_15_minutes(planned):
    default, workloads = planned(H100)
    lanes = ("torch", "torch-compile", "jax")
    assert {(w.lane, w.model) for w in workloads if w.mode == "inference" and w.lane != "noop"} == {
        (lane, model) for lane in lanes for model in CATALOG if model != "noop"
    }
    for mode in MODES:
        assert {w.lane for w in workloads if w.mode == mode} >= set(lanes)
    # Of each benchmark of calls at least the energy's windows and the throughput's, so that no figure hides them.
    assert default.left > 6 * sum(w.mode != "fit" for w in workloads)
    assert default.left < 15 * 60


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
    for profile, where, machine in (
        ("quick", "an H100", H100),
        ("ci", "an H100", H100),
        ("paper", "an H100", H100),
        ("quick", "two CPU cores", MACHINE),
        ("ci", "two CPU cores", MACHINE),
    ):
        found, workloads = planned(machine, f"--fwbench-profile={profile}")
        of_harness = workloads[-len(HARNESS) :]
        counts = [sum(w.mode == mode for w in workloads if w not in of_harness) for mode in MODES] + [len(of_harness)]
        yield table_row(f"`{profile}` on {where}", counts, found.pending.values())
    found, workloads = planned(H100)
    for mode, lane in dict.fromkeys((w.mode, w.lane) for w in workloads[: -len(HARNESS)]):
        names = [w.id for w in workloads if (w.mode, w.lane) == (mode, lane)]
        yield table_row(f"{mode}, `{lane}`", [len(names)], [found.pending[name] for name in names])


def table_row(name, counts, estimates):
    timed, work = sum(e.windows for e in estimates), sum(e.work for e in estimates)
    return f"| {' | '.join(map(str, (name, *counts, *map(units.duration, (timed, work, timed + work)))))} |"


def test_every_own_lane_and_model_has_a_row_in_the_table():
    rows = list(csv.DictReader(files("fwbench.suite").joinpath("costs.csv").read_text().splitlines()))
    assert all(row["source"] for row in rows)
    assert all(float(row[name]) >= 0 for row in rows for name in ("ready_s", "call_s", "sample_s"))
    found = {(row["device"], row["lane"], row["model"], row["mode"]) for row in rows}
    assert len(found) == len(rows)
    missing = {
        (device, lane.name, model, mode)
        for device in ("cpu", "gpu")
        for lane in OWN.values()
        if not lane.internal
        for model in CATALOG
        if model != "noop"
        for mode in ("inference", "train_step")
    } - found
    assert not missing


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
        for path in baselines.glob(f"nvidia-{gpu.lower()}*.json")
        for m in read(path).measurements
    }
    assert measured_there
    assert measured_there <= recorded.keys()
    for benchmark in measured_there:
        measurement = recorded[benchmark]
        assumed = cost(measurement.workload, 1)
        assert assumed.call == pytest.approx(measurement.value("latency_p50"), rel=0.1)
        spent = sum(
            seconds for stage, seconds in measurement.stages.items() if stage not in (*plan_module._TIMED, CEILING)
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
    together = plan({w.id: (w, QUICK) for w in (MLP, again, other)}, Known(), threads=2, metered=False)
    assert together.left == pytest.approx(sum(one(w).left for w in (MLP, again, other)) - start(again))


def test_epochs_of_data_that_take_long_to_read_are_not_guessed():
    fit = Workload("torch", "resnet50", "fit", 32, data="imagenet-100")
    found = one(fit)
    assert found.left == 0
    assert found.told() == "fwbench: 1 benchmark, whose length is not known"
    assert found.left_told() == ""
    both = plan({"a": (MLP, QUICK), "b": (fit, QUICK)}, Known(), threads=2, metered=False)
    assert "2 benchmarks, at least " in both.told()
    assert both.told().endswith("without 1 whose length is not known)")
    assert both.left_told().startswith("over ")


# Records

STAGES = {"build": 5.0, "compile": 20.0, "warm-up": 1.0, "latency": 1.5, "throughput": 1.25, "memory": 0.25}


def recorded(**changes):
    """29.5 s, of which 3.75 s are windows."""
    own = {"protocol": QUICK.to_json(), "stages": STAGES, "overhead_s": 0.5, "samples": (0.01,) * 5}
    return measured(**own | changes)


@pytest.fixture
def keep(tmp_path):
    """Journals by name, as a storage; returns what is known of two workloads then."""

    def kept(journals, machine=MACHINE, **changes):
        folder = tmp_path / "journal"
        folder.mkdir(exist_ok=True)
        for name, lines in journals.items():
            write(folder / f"{name}.jsonl", lines)
        return known(tmp_path, machine, [MLP, Workload("jax", "mlp")], **changes)

    return kept


def test_a_record_with_the_same_amounts_is_the_plan(keep):
    found = one(known=keep({"1": journal(recorded())}))
    assert found.left == pytest.approx(29.5 + start(MLP))
    assert found.told() == f"fwbench: 1 benchmark, about {round(29.5 + start(MLP))} s (from the record of 21 Nov 2026)"


@pytest.mark.parametrize(("protocol", "load"), [(PAPER, 0.0), (QUICK, 0.5)], ids=["other amounts", "disturbed"])
def test_all_but_the_windows_is_kept_of_a_record_whose_windows_tell_nothing(keep, protocol, load):
    record = journal(recorded(metrics={"other_load": metric(load)}))
    found = one(known=keep({"1": record}), protocol=protocol).pending["test"]
    assert found.recorded
    assert found.windows == pytest.approx(windows(protocol, 0.01, metered=False))
    assert found.work == pytest.approx(25.75 + start(MLP))


def test_the_newest_journal_counts_and_older_ones_fill_up(keep):
    older = journal(recorded(), recorded(lane="jax"), started="2026-11-01T12:00:00+00:00")
    newer = journal(recorded(overhead_s=1.5), started="2026-11-03T12:00:00+00:00")
    found = keep({"20261101T120000-1": older, "20261103T120000-1": newer})
    assert {w.lane: m.overhead_s for w, m in found.measured.items()} == {"torch": 1.5, "jax": 0.5}
    assert found.made.day == 3


def test_reading_ends_when_all_is_known_and_after_some_journals(keep, monkeypatch):
    opened = []
    read = plan_module.read
    monkeypatch.setattr(plan_module, "read", lambda path: opened.append(path.stem) or read(path))
    keep({"1": journal(recorded()), "2": journal(recorded(), recorded(lane="jax"))})
    assert opened == ["2"]
    opened.clear()
    started = "2026-11-22T09:00:0{}+00:00"
    keep({str(n): journal(recorded(model="cnn"), started=started.format(n)) for n in range(3, 9)})
    assert opened == ["8", "7", "6", "5", "4"]
    opened.clear()
    monkeypatch.setattr(plan_module, "_BYTES", 100)
    assert keep({}).measured == {}
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
    before = journal(recorded(overhead_s=2.0))
    assert {m.overhead_s for m in keep({"1": before, "2": lines}).measured.values()} == {2.0} or machine != MACHINE
    assert keep({"1": lines, "2": lines}, machine).measured == {}


def test_what_was_unavailable_takes_no_time(keep):
    unavailable = Measurement(MLP, failure=Failure("unavailable", "no torch here"))
    assert one(known=keep({"1": journal(unavailable)})).left == pytest.approx(start(MLP))


def test_programs_alone_are_planned_from_their_own_record_and_from_timed_ones(keep):
    programs = dataclasses.replace(QUICK, programs=True, warmup_iterations=2)
    own = recorded(samples=(), protocol=programs.to_json(), stages={"build": 5.0, "compile": 20.0, "warm-up": 1.0})
    for lines, seconds in ((journal(own), 26.5), (journal(recorded()), 25.75 + 4 * 0.01)):
        found = one(known=keep({"1": lines}, programs=True), protocol=programs)
        assert found.left == pytest.approx(seconds + start(MLP))


@pytest.mark.parametrize("call", [1e-4, 0.06, 2.0])
def test_a_duet_is_planned_by_the_turns_that_its_pairs_play(monkeypatch, call):
    monkeypatch.setattr(plan_module, "cost", lambda workload, threads: Cost(ready=5.0, call=call))
    amounts = Pairs.amounts
    taken = Taken(amounts, {})
    taken.plan(call, 2)
    turns = amounts.placings * taken.blocks * 2 * 2
    assert one(duet=True).left == pytest.approx(3 * (turns * taken.rounds * call + 2 * 5.0) + start(MLP))


def test_of_a_duet_screening_alone_is_planned(keep):
    duet = recorded(stages={}, duet={"screening": [{"seconds": 3.0}, {"seconds": 4.0}, {"seconds": 5.0}]})
    found = one(known=keep({"1": journal(duet)}, duet=True), duet=True)
    assert found.told() == (
        f"fwbench: 1 benchmark in a duet, at least {round(12 + start(MLP))} s (from the record of 21 Nov 2026)"
    )
    # They all run in the first test.
    assert found.left_told() == ""
    assert "1 benchmark in a duet, at least " in one(duet=True).told()


# This run


def planned_by_hand(**lanes):
    """Three benchmarks of each lane: 10 s of windows and 20 s of work each."""
    return Plan(
        {f"{lane}{n}": Estimate(lane, 10.0, 20.0, recorded) for lane, recorded in lanes.items() for n in range(3)}
    )


def test_what_was_taken_corrects_work_and_never_windows():
    found = planned_by_hand(torch=False)
    assert found.left == 90.0
    found.took("torch0", 10.0 + 40.0)
    # Ten seconds count as planned rightly.
    assert found.left == pytest.approx(2 * (10.0 + 20.0 * (40 + 10) / (20 + 10)))
    found.took("torch1", 10.0 + 40.0)
    assert found.left == pytest.approx(10.0 + 20.0 * (80 + 10) / (40 + 10))
    found.took("torch2", 50.0)
    assert found.left == 0.0


def test_another_lane_and_another_source_are_not_corrected():
    found = Plan(
        {name: Estimate(name[:-1], 10.0, 20.0, name == "torch2") for name in ("torch0", "torch1", "torch2", "jax0")}
    )
    found.took("torch0", 10.0 + 60.0)
    assert found.left == pytest.approx(10.0 + 20.0 * (60 + 10) / (20 + 10) + 2 * 30.0)


def test_a_benchmark_that_failed_or_was_skipped_teaches_nothing():
    found = planned_by_hand(torch=False)
    found.took("torch0", None)
    found.took("somebody's own", 99.0)
    found.took("torch0", 0.0)
    assert found.left == 60.0


def test_the_sources_are_told_apart():
    found = Plan(
        {"a": Estimate("jax", 50.0, 50.0, True), "b": Estimate("jax", 5.0, 5.0, False)},
        datetime(2026, 11, 3, 12, tzinfo=UTC),
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
