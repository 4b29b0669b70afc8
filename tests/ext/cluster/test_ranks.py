"""Ranks: how they find each other, that they make the same calls, and what their record says."""

import contextlib
import dataclasses
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from fwbench.commands.cli import main
from fwbench.compare.cases import by_workload, cases
from fwbench.errors import UserError
from fwbench.ext.cluster.ranks import client
from fwbench.ext.cluster.ranks import rank as ranking
from fwbench.ext.cluster.ranks.client import first_ended
from fwbench.ext.cluster.ranks.star import JOB, LostError, Place, RankError, Star, first_node, free_port, place
from fwbench.ext.cluster.ranks.together import ELSEWHERE, combined
from fwbench.machine import machine
from fwbench.meters.energy import SummedCounter
from fwbench.meters.latency import latencies
from fwbench.meters.throughput import queued
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.measurement import NO_SCALING, Failure, Measurement, Metric, Rank, unavailable
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.report import calls as tables_of_calls
from fwbench.report import ratios
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.starting import environment
from fwbench.worker.client.workers import Workers
from fwbench.worker.process.job import Job
from fwbench.worker.process.run import Measuring
from tests.unit import recorded
from tests.unit.fakes import NO_PROJECT, FakeClock, FakeFramework, FakeGpu, FakeProgram


def places(size, port=None, key=b"key"):
    port = port or free_port()
    return [Place(rank, size, rank, "127.0.0.1", port, key, "a test") for rank in range(size)]


def everybody(size, do, deadline=30.0):
    """What each of some ranks, in threads, comes to."""
    where = places(size)

    def one(number):
        star = Star(where[number], deadline)
        try:
            return do(star)
        finally:
            star.close()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def test_all_ranks_have_the_first_ones_value_and_gather_all_in_order():
    def do(star):
        return star.agree(10.0 + star.rank), star.gather({"rank": star.rank}), star.address

    found = everybody(3, do)
    assert [agreed for agreed, _, _ in found] == [10.0] * 3
    assert [gathered for _, gathered, _ in found] == [[{"rank": 0}, {"rank": 1}, {"rank": 2}]] * 3
    host, _, port = found[0][2].partition(":")
    assert {address for _, _, address in found} == {f"{host}:{port}"}
    assert host == "127.0.0.1"
    assert int(port) > 0


def test_nobody_goes_on_before_all_have_agreed():
    log, late = [], threading.Event()

    def do(star):
        if star.rank:
            late.wait(30)
        else:
            threading.Timer(0.2, late.set).start()
        log.append(f"before {star.rank}")
        star.agree(0.0)
        log.append(f"after {star.rank}")

    everybody(2, do)
    assert sorted(log[:2]) == ["before 0", "before 1"]


def test_a_rank_that_is_gone_is_told_of():
    def do(star):
        if star.rank:
            star.close()
            return None
        with pytest.raises(LostError, match="another rank is gone"):
            star.gather(1)
        return None

    everybody(2, do)


def test_ranks_that_do_not_come_are_named():
    with pytest.raises(RankError, match=r"ranks 1, 2 of 3 did not come to 127.0.0.1:\d+ within 0.2 s"):
        Star(places(3)[0], 0.2)


def test_the_first_rank_that_is_not_there_is_told_of():
    with pytest.raises(RankError, match=r"rank 1 did not reach the first one at 127.0.0.1:\d+ within 0.2 s"):
        Star(places(2)[1], 0.2)


def test_a_port_in_use_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RankError, match=rf"cannot listen at port {port} \(.*in use\): name another by FWBENCH_COO"):
            Star(places(2, port)[0], 5.0)


def test_ranks_of_two_runs_do_not_mix():
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Star, places(2, port)[0], 20.0)
        with pytest.raises(RankError, match="listens somebody of another run"):
            Star(places(2, port, b"another")[1], 20.0)
        other = Star(places(2, port)[1], 20.0)
        other.close()
        first.result().close()


TORCHRUN = {
    **{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
    **{"MASTER_ADDR": "n0", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "run"},
}
SLURM = {
    **{"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "4100", "SLURM_STEP_ID": "2"},
    **{"SLURM_JOB_NODELIST": "n[3-7]", "SLURM_STEP_NODELIST": "n[5-6]"},
}


def test_the_launchers_are_understood():
    own = {"FWBENCH_RANK": "0", "FWBENCH_RANKS": "2", "FWBENCH_LOCAL_RANK": "0", "FWBENCH_COORDINATOR": "h:7"}
    assert place({**own, "FWBENCH_KEY": "k"}) == Place(0, 2, 0, "h", 7, b"k", "fwbench")
    # Beside the port of torchrun's own store.
    assert place(TORCHRUN) == Place(3, 4, 1, "n0", 29501, b"run:29500", "torchrun")
    assert place({**TORCHRUN, "FWBENCH_COORDINATOR": "n9:8"}).port == 8
    assert place(SLURM) == Place(5, 8, 1, "n5", 61440 + (4100 + 14) % 4096, b"4100.2", "Slurm")
    assert place({"PATH": "/bin"}) is None


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({**TORCHRUN, "WORLD_SIZE": ""}, "torchrun sets WORLD_SIZE to '', which is no rank's number"),
        ({**TORCHRUN, "RANK": "4"}, "torchrun says that this is rank 4 of 4"),
        ({**TORCHRUN, "FWBENCH_COORDINATOR": "n9"}, "'n9' is no address of a coordinator: write HOST:PORT"),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, "torchrun does not say where the first rank is"),
    ],
)
def test_what_a_launcher_does_not_say_is_one_sentence(variables, said):
    with pytest.raises(RankError) as caught:
        place(variables)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n1", "n1"), ("n1,n2", "n1"), ("gpu[03-05,09],login", "gpu03"), ("a[2,4]-ib", "a2-ib"), ("", "")],
)
def test_the_first_node_of_slurms_lists(nodes, first):
    assert first_node(nodes) == first


# Each rank's calls take another time, and its clock decides otherwise.
PACES = (1 / 128, 1 / 32)


class RankedProgram(FakeProgram):
    """A fake program that asks the first rank."""

    def __init__(self, clock, star):
        super().__init__(clock, PACES[star.rank])
        self.star = star

    def agree(self, value):
        return self.star.agree(value)


def calls(do):
    """How many calls each of two ranks makes whose clocks differ."""

    def of(star):
        clock = FakeClock()
        program = RankedProgram(clock, star)
        do(program, clock, star)
        return program.calls

    return everybody(2, of)


class Counting:
    """An energy counter that moves with the clock."""

    name, fault = "a counter", ""

    def __init__(self, clock):
        self.clock = clock

    def read(self):
        return self.clock.now


@pytest.mark.parametrize(
    "changes",
    [
        {"max_time": 1.0},
        {"max_time": 0.5, "percentile_time": 1.0},
        {"max_time": 1000.0, "precision": 0.05, "min_rounds": 9},
    ],
)
def test_ranks_with_other_clocks_time_as_many_calls(protocol, changes):
    amounts = dataclasses.replace(protocol, **changes)
    first, second = calls(lambda program, clock, _: latencies(program, amounts, clock))
    assert first == second >= amounts.min_rounds


def test_ranks_with_other_clocks_enqueue_as_many_calls():
    first, second = calls(lambda program, clock, _: queued(program, 4, 1.0, clock))
    assert first == second == 128


MLP = Workload("torch", "mlp", batch_size=8, devices=2)


def measured(program, star, protocol, clock, framework=None):
    return Measuring(MLP, LANES["torch"], CATALOG["mlp"], protocol, lambda _: None, clock, ranks=star)._attempt(
        framework or Joining(program)
    )


class Joining(FakeFramework):
    def join(self, ranks):
        self.ranks = ranks


def test_whole_measurements_of_ranks_with_other_clocks_make_as_many_calls(protocol):
    amounts = dataclasses.replace(protocol, max_time=1.0, warmup_time=0.5, warmup_iterations=1000, throughput_time=1.0)

    def do(star):
        clock = FakeClock()
        program = RankedProgram(clock, star)
        failure = measured(program, star, amounts, clock)
        return failure, program.calls

    (failure, first), (_, second) = everybody(2, do)
    assert failure is None
    assert first == second > 200


@pytest.mark.parametrize(("metered", "other"), [(True, True), (True, False), (False, True), (False, False)])
def test_ranks_with_other_counters_make_as_many_calls_under_load(protocol, monkeypatch, metered, other):
    """The first rank's counter decides whether the window is long enough for energy."""
    counters = {0: metered, 1: other}
    monkeypatch.setattr(Job, "counter", lambda job: Counting(job.clock) if counters[job.ranks.rank] else "none")
    own = threading.local()
    slept = SimpleNamespace(sleep=lambda seconds: own.clock.sleep(seconds))
    monkeypatch.setattr("fwbench.meters.energy.time", slept)

    def do(star):
        own.clock = clock = FakeClock()
        program = RankedProgram(clock, star)
        amounts = dataclasses.replace(protocol, throughput_time=0.5, energy_time=4.0)
        return measured(program, star, amounts, clock), program.calls

    (failure, first), (_, second) = everybody(2, do)
    assert failure is None
    assert first == second
    # The first rank's calls take 1/128 s.
    assert (first > 4 * 128) is metered


def test_ranks_that_disagree_are_told_apart_before_anything_is_built(protocol, monkeypatch):
    versions = itertools.cycle([{"torch": "2.15.0"}, {"torch": "2.14.1"}])
    monkeypatch.setattr("fwbench.worker.process.building.versions_of", lambda lane: next(versions))

    def do(star):
        framework = Joining(error=RuntimeError("was built"))
        return measured(None, star, protocol, FakeClock(), framework)

    for failure in everybody(2, do):
        assert failure.kind == "error"
        assert failure.message.startswith("the ranks do not agree: torch is 2.1")
        assert failure.message.endswith("start all ranks from one environment and one checkout")


def test_one_rank_that_cannot_keeps_all_from_it(protocol):
    def do(star):
        return measured(None, star, protocol, FakeClock(), Joining(reason="no GPU" if star.rank else None))

    assert [failure.message for failure in everybody(2, do)] == ["no GPU"] * 2


def one(samples, throughput=None, energy=None, **settings):
    metrics = {
        "latency_p50": Metric(sorted(samples)[len(samples) // 2], "calls"),
        "throughput": Metric(throughput or 80.0, "window"),
        "host_peak_memory": Metric(1e6 * samples[0], "VmHWM"),
        "energy_per_sample": energy or unavailable("RAPL", "there is none"),
    }
    return Measurement(MLP, samples=tuple(samples), metrics=metrics, settings=settings)


def test_a_call_is_done_when_its_slowest_rank_is():
    ranks = [Rank(0, "a", "cpu", (0,)), Rank(1, "b", "cpu", (1,))]
    slow = [1.0, 4.0, 3.0, 5.0, 2.0]
    found = combined(
        [
            one([2.0] * 5, throughput=90.0, energy=Metric(3.0, "RAPL"), cpus=[0], cores="x"),
            one(slow, throughput=60.0, energy=unavailable("RAPL", ELSEWHERE), cpus=[1], cores="y"),
        ],
        ranks,
    )
    assert found.samples == (2.0, 4.0, 3.0, 5.0, 2.0)
    values = {name: metric.value for name, metric in found.metrics.items()}
    assert values["throughput"] == 60.0
    assert values["latency_p50"] == 3.0
    assert values["host_peak_memory"] == 2e6
    assert values["energy_per_sample"] == 3.0
    assert values["rank_spread"] == pytest.approx(0.5)
    assert [rank.metrics["throughput"] for rank in found.ranks] == [45.0, 30.0]
    assert [rank.settings for rank in found.ranks] == [{}, {"cores": "y"}]
    assert found.settings["cpus"] == [0, 1]
    assert found.settings["caution"] == NO_SCALING
    assert Measurement.from_json(found.to_json()) == found
    changed = combined([one([1.0], changed=["threads"], caution="its threads")] * 2, ranks)
    assert changed.settings["caution"] == f"its threads; {NO_SCALING}"


def test_energy_is_summed_over_devices_and_absent_where_one_is_not_known():
    both = combined(
        [one([1.0], energy=Metric(3.0, "NVML")), one([1.0], energy=Metric(4.0, "NVML"))], [Rank(0, "", "")] * 2
    )
    assert both.value("energy_per_sample") == 7.0
    lacking = combined([one([1.0], energy=Metric(3.0, "NVML")), one([1.0])], [Rank(0, "", "")] * 2)
    assert lacking.metrics["energy_per_sample"].reason == "there is none"


@pytest.mark.parametrize(
    ("cpus", "size", "parts"),
    [([0, 1, 2, 3], 2, [[0, 1], [2, 3]]), ([0, 2, 4, 6, 8], 2, [[0, 2], [4, 6]]), ([7], 2, [[7], [7]])],
)
def test_ranks_have_equal_parts_of_the_cpus(cpus, size, parts):
    assert [list(ranking.part(cpus, number, size)) for number in range(size)] == parts


def test_ranks_share_the_threads():
    variables = environment({}, 8, "cpu", LANES["torch"], 4)
    assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == "2"
    assert environment({}, 8, "cpu", LANES["torch"])["OMP_NUM_THREADS"] == "8"
    assert environment({}, 1, "cpu", LANES["torch"], 2)["OMP_NUM_THREADS"] == "1"


def test_a_failure_fits_into_one_write_of_a_pipe():
    long = ranking._short(Failure("error", "why " * 3000, "build", "line\n" * 5000 + "the end"))
    assert len(str(long)) < 4096
    assert long["detail"].endswith("the end")


@pytest.fixture
def by_hand(tmp_path, monkeypatch):
    """`fwbench measure` in processes of its own, which nothing has launched yet; each with further variables."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "FWBENCH_"))}

    def start(*fields, **more):
        return subprocess.Popen(
            [sys.executable, "-m", "fwbench", "measure", *fields],
            env=variables | more,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.mark.skipif(sys.platform != "linux", reason="ranks are started by hand on Linux")
def test_ranks_that_somebody_has_started_write_one_record(by_hand, tmp_path):
    # Two ranks on one GPU are refused.
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": ""}
    fields = ("lane=noop", "model=mlp", "mode=train_step", "batch_size=4", "--output=record.json")
    ranks = [by_hand(*fields, **told, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert said[0][0].endswith("written: record.json\n")
    assert said[1][0] == ""
    (found,) = read(tmp_path / "record.json").measurements
    assert found.workload == Workload("noop", "mlp", "train_step", 4, devices=2)
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert found.samples


@pytest.mark.parametrize(
    ("fields", "variables", "sentence"),
    [
        (["mlp"], {}, "'mlp' is not FIELD=VALUE, as in seed=1."),
        (["lane=torch", "model=mlp", "batch=8"], {}, "there is no field 'batch': the nearest is 'batch_size'."),
        (["lane=torch"], {}, "a workload needs a model: give model=NAME."),
        (["lane=troch", "model=mlp"], {}, "unknown lane 'troch': the nearest is 'torch'."),
        (["lane=torch", "model=mlp", "batch_size=x"], {}, "batch_size=x is not a whole number of at least 1."),
        (["lane=torch", "model=mlp", "batch_size=3", "devices=2"], {}, "a batch of 3 cannot be cut into 2 equal parts"),
        (["lane=torch", "model=mlp", "batch_size=2", "devices=2"], {}, "devices=2 needs as many ranks, and this proc"),
        (["lane=torch", "model=mlp", "batch_size=8", "devices=2"], TORCHRUN, "torchrun started 4 ranks, and devices=2"),
        (["lane=torch", "model=mlp"], {**TORCHRUN, "RANK": ""}, "torchrun sets RANK to '', which is no rank's number"),
    ],
)
def test_what_measures_nothing_by_hand_is_one_sentence(monkeypatch, capsys, fields, variables, sentence):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "FWBENCH_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["measure", *fields]) == UserError.EXIT_CODE
    assert capsys.readouterr().err.startswith(f"fwbench: {sentence}")


def test_ranks_share_no_facts(monkeypatch):
    """Each of them would look for the others' in a folder of its own."""
    jobs = []

    def channel(command, environment):
        jobs.append(json.loads(environment[JOB]))
        raise OSError

    monkeypatch.setattr(client, "Channel", channel)
    monkeypatch.setattr(client, "place", lambda environment: Place(1, 2, 1, "here", 1, b"", "torchrun"))
    assert main(["measure", "lane=torch", "model=mlp", "batch_size=8"]) == 1
    with contextlib.closing(Workers(machine(), "cpu", {}, NO_PROJECT)) as workers:
        spread = Workload("torch", "mlp", batch_size=8, devices=2)
        assert workers.measure(spread, PROFILES["quick"], lambda stage: None).failure.kind == "crashed"
    assert [(job["facts"], job["threads"], job["workload"]["devices"]) for job in jobs] == [
        (None, True, 2),
        (None, False, 2),
    ]


def test_several_devices_stand_beside_no_other_lanes_single_one():
    one = recorded.measured("torch", batch_size=8)
    two = recorded.measured("jax", batch_size=8, devices=2)
    assert [*map(set, by_workload(cases([one, two])).values())] == [{"torch"}, {"jax"}]
    assert ratios.ratios(cases([one, two]), "torch") == []
    table = tables_of_calls.table("calls", "", cases([one, two]), "torch")
    assert [column.name for column in table.columns][:4] == ["model", "mode", "batch", "devices"]
    # Beside one device alone the table is what it was.
    assert "devices" not in [
        column.name for column in tables_of_calls.table("calls", "", cases([one]), "torch").columns
    ]


def test_of_what_several_devices_draw_each_has_its_share():
    clock = FakeClock()
    one, two = Counting(clock), Counting(clock)
    two.read = lambda: 3 * clock.now
    summed = SummedCounter([one, two])
    assert summed.shares == []
    assert summed.read() == 0.0
    assert summed.shares == []
    clock.advance(2.0)
    assert summed.read() == 8.0
    assert summed.shares == [0.25, 0.75]
    two.fault = "it fell"
    assert summed.fault == "it fell"


def test_one_process_over_several_gpus_tells_of_each(protocol, monkeypatch):
    monkeypatch.setattr("fwbench.machine.nvml.find", lambda number=0: FakeGpu())
    workload = dataclasses.replace(MLP, device="gpu")
    program = FakeProgram(FakeClock())
    program.peak_memories = lambda: [Metric(3.0, "allocator"), Metric(4.0, "allocator")]
    measuring = Measuring(workload, LANES["torch"], CATALOG["mlp"], protocol, lambda _: None, program.clock)
    assert measuring._attempt(FakeFramework(program)) is None
    found = measuring._devices()
    assert [(rank.rank, rank.device, rank.metrics) for rank in found] == [
        (0, "fake", {"device_peak_memory": 3.0}),
        (1, "fake", {"device_peak_memory": 4.0}),
    ]
    # The state of each is noted, too.
    assert len(measuring.watches[0].moments) == len(measuring.watches[1].moments) > 1


@pytest.mark.parametrize(
    ("codes", "first"),
    [
        ({0: 0, 1: 0}, None),
        ({0: -15, 1: -9}, (1, -9)),  # the launcher has ended the other one
        ({0: 3, 1: -9}, (1, -9)),
        ({0: -15, 1: 70}, None),  # which has told why
        ({0: 75, 1: 3}, (1, 3)),
        ({0: -15, 1: -15}, (0, -15)),  # somebody else has
    ],
)
def test_the_rank_that_ended_by_itself_is_found_among_those_that_a_launcher_ended(codes, first):
    assert first_ended(codes) == first


@pytest.mark.parametrize(
    ("near", "pinned"),
    [
        # Nobody tells which CPUs are near: equal parts of all.
        ([set(), set(), set(), set()], [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
        # Two nodes, whose CPUs are numbered in turns, with two GPUs each; and a GPU whose node is not ours.
        ([{0, 2, 4, 6}, {0, 2, 4, 6}, {1, 3, 5, 7}, {1, 3, 5, 7}], [{0, 2}, {4, 6}, {1, 3}, {5, 7}]),
        ([{64}] * 4, [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
    ],
)
def test_each_rank_has_cpus_of_its_own_near_its_gpu(monkeypatch, near, pinned):
    cpus, found = set(range(8)), []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cpus), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, given: None, raising=False)
    monkeypatch.setattr(ranking, "physical_cores", lambda given: tuple(sorted(given)))
    told = [["here", sorted(cpus), sorted(cpus & each or cpus)] for each in near]
    for rank, each in enumerate(near):

        def gather(said, rank=rank):
            assert said == told[rank]
            return told

        found.append(ranking.pin(SimpleNamespace(rank=rank, gather=gather), "here", each))
    assert found == pinned


def test_two_ranks_on_one_gpu_are_told_apart(protocol, monkeypatch):
    monkeypatch.setattr("fwbench.machine.nvml.find", lambda number=0: FakeGpu() if number == 0 else "no more")
    workload = dataclasses.replace(MLP, device="gpu")

    def do(star):
        framework = Joining(error=RuntimeError("was built"))
        given = Measuring(workload, LANES["torch"], CATALOG["mlp"], protocol, lambda _: None, FakeClock(), ranks=star)
        return given._attempt(framework)

    for failure in everybody(2, do):
        assert failure.message.startswith(
            "ranks 0 and 1 have the same GPU (GPU-0), so there are fewer devices than the 2"
        )
