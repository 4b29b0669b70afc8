"""`fwbench doctor --check`: figures made up for the purpose, judged; parts that take no time, run."""

import contextlib
import dataclasses
import json
import math
import re
import socket
import time
from types import SimpleNamespace

import pytest

from fwbench.commands.cli import main
from fwbench.commands.doctor import looks
from fwbench.commands.doctor.findings import Finding
from fwbench.commands.doctor.looks import other_load
from fwbench.compare import duet
from fwbench.compare.criteria import Threshold
from fwbench.compare.pair import Fault, Pair
from fwbench.errors import Absent, UserError
from fwbench.ext.trials import check, judging
from fwbench.ext.trials.check import Check, Session, play, smallest_step
from fwbench.machine import machine
from fwbench.meters.energy import NvmlCounter, moves
from fwbench.record.lanes import LANES
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import BEFORE, Failure, Measurement, Metric, Moment, unavailable
from fwbench.record.workload import Workload
from tests.unit.fakes import FakeGpu
from tests.unit.recorded import MACHINE, measured, metric
from tests.unit.test_meters import SteppingCounter

WORKLOAD = Workload("torch", "mlp")
NEIGHBOURED = Moment(BEFORE, AcceleratorState(processes=(AcceleratorProcess(7, 2**30),)))


PROBED = measured(parity={"probe": {"matmul": {"error": 1e-7}, "convolution": {"error": 2e-7}}})
CALM = measured(accelerator=(Moment(BEFORE, AcceleratorState(processes=())),))


def failed(kind, message, stage=None):
    return measured(failure=Failure(kind, message, stage))


NO_TF32 = failed("unavailable", "a CPU has no TF32 arithmetic")
WRONG = failed("error", "ArithmeticError: the matmul runs in tf32 arithmetic", "probe")


def processes(*medians, load=0.0):
    return [measured(samples=(t / 2, t, t * 9), metrics={"other_load": metric(load)}) for t in medians]


def compared(differences, seconds=math.inf):
    """A real duet, of pairs that found these differences, of which so many can be played; or of a side that failed."""
    left = iter(range(10_000))
    draw = iter(differences * 20)
    values = {side: {"latency": 1.0} for side in ("base", "head")}

    def play(workloads, arrived):
        for w in workloads:
            found = next(draw)
            arrived(w, found if isinstance(found, Fault) else Pair({"latency": found}, {}, values, {}, 0.0, 1.0))

    limits = {WORKLOAD: {"latency": Threshold(0.02)}}
    (comparison,) = duet.compare(limits, play, left=lambda: seconds - next(left)).values()
    return comparison


def faulty(kind):
    return [Fault("head", "the working tree", Failure(kind, "the GPU takes one process at a time"))]


# What judges, what it is given, the level that it finds, and a part of what it says.
JUDGED = [
    (judging.arithmetic, ("torch", {"fp32": PROBED, "tf32": NO_TF32}), "good", "fp32 (relative error 2.0e-07)"),
    (judging.arithmetic, ("torch", {"fp32": PROBED, "tf32": NO_TF32}), "good", "no tf32"),
    (judging.arithmetic, ("torch", {"fp32": WRONG}), "bad", "runs in tf32"),
    (judging.arithmetic, ("torch", {"fp32": PROBED, "tf32": NO_TF32, "bf16": WRONG}), "bad", "bf16: ArithmeticError"),
    # The other lanes are measured.
    (judging.arithmetic, ("torch", {"fp32": failed("unavailable", "no GPU for torch")}), "warning", "no GPU for torch"),
    (judging.arithmetic, ("torch", {"fp32": PROBED, "bf16": failed("crashed", "signal 11")}), "bad", "signal 11"),
    # The saved gate counts from 15 % on, and the report calls nothing below a factor of two likely.
    (judging.agreement, ("torch", processes(1.0, 1.0)), "good", "0.0% apart"),
    (judging.agreement, ("torch", processes(1.14, 1.0)), "good", "14.0% apart"),
    (judging.agreement, ("torch", processes(1.0, 1.2)), "warning", "20.0% apart"),
    (judging.agreement, ("torch", processes(1.0, 1.99)), "warning", "99.0% apart"),
    (judging.agreement, ("torch", processes(2.01, 1.0)), "bad", "101.0% apart"),
    (judging.agreement, ("torch", processes(1.0, 405.2)), "bad", "405 times apart"),
    # A third decides whether the second stood apart by accident.
    (judging.agreement, ("torch", processes(1.0, 2.5, 1.1)), "warning", "150.0% apart"),
    (judging.agreement, ("torch", processes(2.1, 4.5, 1.0)), "bad", "350.0% apart"),
    # Be it by the machine or by what others do on it, such numbers cannot be trusted.
    (judging.agreement, ("torch", processes(1.0, 2.1, load=0.5)), "bad", "50.0% of the CPUs"),
    (judging.agreement, ("torch", processes(1.0, 1.2, load=0.5)), "warning", "50.0% of the CPUs"),
    (judging.agreement, ("torch", processes(1.0, 1.0, load=0.5)), "good", "0.0% apart"),
    (judging.agreement, ("torch", [measured(), failed("crashed", "signal 11", "latency")]), "bad", "signal 11"),
    (judging.graphs, ("torch-compile", "replayed (1)"), "good", ""),
    (judging.graphs, ("torch-compile", "replayed (1), skipped (2)"), "warning", ""),
    (judging.graphs, ("torch-compile", "skipped (1)"), "warning", ""),
    (judging.graphs, ("torch-compile", "none recorded"), "warning", ""),
    (judging.unchanged_duet, ("torch", compared([0.001, -0.001, 0.0])), "good", "latency +0.0%, of 3 pairs"),
    (judging.unchanged_duet, ("torch", compared([0.1, 0.11, 0.12])), "bad", "regressed: latency +1"),
    (judging.unchanged_duet, ("torch", compared([-0.1, -0.11, -0.12])), "bad", "improved: latency -1"),
    (judging.unchanged_duet, ("torch", compared([0.3, -0.3, 0.0])), "warning", "inconclusive"),
    (judging.unchanged_duet, ("torch", compared([0.1, 0.11, 0.12], seconds=5)), "warning", "inconclusive"),
    (judging.unchanged_duet, ("torch", compared(faulty("error"))), "bad", "one process at a time"),
    (judging.unchanged_duet, ("torch", compared(faulty("timed_out"))), "bad", "one process at a time"),
    # The clock's step, an empty round, and the shortest latency.
    (judging.clock, (50e-9, 90e-9, 30e-6), "good", "0.30%"),
    (judging.clock, (1e-6, 90e-9, 30e-6), "warning", "3.33%"),
    (judging.clock, (50e-9, 1e-6, 30e-6), "warning", "below 100 us"),
    # The saved gate counts from 15 % on.
    (judging.clock, (50e-9, 4.4e-6, 30e-6), "warning", "14.67%"),
    (judging.clock, (50e-9, 4.6e-6, 30e-6), "bad", "15.33%"),
    # Steps of 15.6 ms, as some systems have: all that is shorter is told as nothing, or as one step.
    (judging.clock, (15.6e-3, 90e-9, 30e-6), "bad", "15.6 ms"),
    (judging.energy_counter, ("counter", [], "it fell"), "warning", "it fell"),
    # Other load is a finding of its own, and drift one measurement's bad luck.
    (judging.disturbed, ([CALM, measured(metrics={"other_load": metric(0.5)})],), "good", "none in 2"),
    (judging.disturbed, ([CALM, measured(metrics={"latency_drift": metric(0.2)})],), "warning", "1 in 2"),
    (
        judging.disturbed,
        ([CALM, measured(metrics={"latency_drift": metric(0.2)}), measured("jax", accelerator=(NEIGHBOURED,))],),
        "bad",
        "1 process before the build, jax",
    ),
]


@pytest.mark.parametrize(("judge", "given", "level", "said"), JUDGED)
def test_figures_are_judged(judge, given, level, said):
    finding = judge(*given)
    assert (finding.level, said in f"{finding.found} -> {finding.next_step}") == (level, True), finding


def test_lanes_none_of_which_can_be_measured_are_bad():
    with contextlib.closing(Session(MACHINE, math.inf)) as session:
        assert [finding.level for finding in session._measurable()] == ["bad"]
        session._latencies = {"torch": 1e-3}
        assert list(session._measurable()) == []


def test_what_a_process_of_a_duet_wrote_before_it_died_is_kept(monkeypatch):
    """For the file to send; and a lane that cannot be measured has no duet."""
    fault = Fault("head", "the working tree", Failure("crashed", "signal 11", "duet", "CUDA_ERROR_ILLEGAL_ADDRESS"))
    played = []

    def play(workloads, arrived):
        for workload in workloads:
            played.append(workload.lane)
            arrived(workload, fault)

    monkeypatch.setattr(check, "Pairs", lambda *given: SimpleNamespace(play=play))
    monkeypatch.setattr(check, "sides", lambda *given: contextlib.nullcontext((None, None)))
    with contextlib.closing(Session(MACHINE, math.inf)) as here:
        here._latencies = {"torch": 1e-3}
        (finding,) = here._duet([LANES["torch"], LANES["jax"]])
    assert (finding.subject, finding.level, played) == ("torch duet", "bad", ["torch"])
    assert [m.failure for m in here.measured] == [fault.failure]


@pytest.mark.parametrize(
    ("period", "expected", "said"),
    [
        # The shortest windows last 2 s, and need ten steps.
        (0.1, "good", "every 100 ms, 20 times in a window of 2 s; 20.0 W idle"),
        (0.5, "warning", "every 500 ms, 4 times in a window of 2 s; 20.0 W idle; 2 s are too short"),
        (2.0, "bad", "no more than once"),
        (1e9, "bad", "no more than once"),
    ],
)
def test_an_energy_counter_is_watched(clock, monkeypatch, period, expected, said):
    monkeypatch.setattr("fwbench.meters.energy.time", clock)
    seen = moves(SteppingCounter(clock, period), 3.0, clock)
    finding = judging.energy_counter("counter", seen)
    assert (finding.level, said in finding.found) == (expected, True), finding


def test_an_energy_counter_that_cannot_be_read_costs_energy_alone(monkeypatch):
    monkeypatch.setattr(check, "_POLLED", 0.003)
    with contextlib.closing(Session(MACHINE, 0.0)) as session:
        (finding,) = session._energy(NvmlCounter(FakeGpu()))
    said = "the GPU's energy counter could not be read (not supported)"
    assert (finding.level, finding.found) == ("warning", said)


def test_the_clocks_step_is_the_least_that_is_seen():
    ticks = iter([7 * (number // 3) for number in range(10_000)])
    assert smallest_step(lambda: float(next(ticks))) == 7.0


@pytest.mark.parametrize(
    ("load", "cpus", "device", "looked", "checked"),
    [
        (metric(0.01), 2, "cpu", "good", "good"),
        (metric(0.01), 64, "cpu", "warning", "bad"),
        # One thread feeds a GPU, and others leave it 63 CPUs.
        (metric(0.01), 64, "gpu", "good", "good"),
        (metric(0.2), 2, "cpu", "warning", "bad"),
        (metric(0.2), 64, "gpu", "warning", "bad"),
        (unavailable("stat", "none here"), 2, "cpu", "warning", "warning"),
    ],
)
def test_other_load(load, cpus, device, looked, checked):
    """A moment of it may pass; under numbers that it was there all the time of, nobody can trust them."""
    watch = SimpleNamespace(read=lambda: load, cpus=cpus)
    levels = [other_load(watch, device, 60.0, whole=whole).level for whole in (False, True)]
    assert levels == [looked, checked]


def good(subject):
    return Finding(subject, "all is well")


def test_a_part_that_raises_is_a_bad_finding_and_the_others_are_run():
    def some():
        yield good("first")
        raise OSError("the disk is full")

    def wrong():
        raise UserError("correct your file.")

    told = []
    parts = [Check(title, 10.0, run) for title, run in (("a", some), ("b", wrong), ("c", lambda: [good("last")]))]
    found = play([*parts, Check("d", 0.0, lambda: [])], told.append, math.inf)
    assert [(f.subject, f.level) for f in found] == [("first", "good"), ("a", "bad"), ("b", "bad"), ("last", "good")]
    assert ("the disk is full" in found[1].found, found[2].found) == (True, "correct your file.")
    # What takes no time is not announced.
    assert [re.findall(r"^\w+, |\d+ s", text) for text in told] == [
        ["30 s"],
        *([f"{n}, ", s] for n, s in zip("abc", ("30 s", "20 s", "10 s"), strict=True)),
    ]


def test_when_the_time_is_over_no_part_begins_that_takes_any_and_that_is_bad(clock):
    def slow():
        clock.advance(400.0)
        return [good("slow")]

    parts = [Check("a", 10.0, slow), Check("b", 10.0, slow), Check("c", 0.0, lambda: [good("judged")])]
    found = play(parts, lambda _: None, 300.0, clock)
    assert [(f.subject, f.level) for f in found] == [("slow", "good"), ("b", "bad"), ("judged", "good")]


def rated(lane, gflops, **fields):
    rate = Metric(gflops * 1e9, "a test", library="a library on a CPU")
    return measured(lane, metrics={"matrix_product_rate": rate}, **fields)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([rated("torch", 87), rated("jax", 190)], [("matrix products", "warning")]),
        ([rated("torch", 120), rated("jax", 190)], [("matrix products", "good")]),
        ([rated("torch", 87)], [("matrix products", "good")]),
        (
            [rated("torch", 120), rated("torch", 87, precision="bf16"), rated("jax", 190, precision="bf16")],
            [("matrix products", "good"), ("matrix products in bf16", "warning")],
        ),
        # Beside a neighbour on the GPU nobody can tell.
        ([rated("torch", 87, accelerator=(NEIGHBOURED,))], []),
        ([measured("torch")], []),
    ],
)
def test_a_lane_far_behind_in_matrix_products_is_found(found, expected):
    findings = list(judging.matrix_products(found))
    assert [(finding.subject, finding.level) for finding in findings] == expected
    assert all("GFLOP/s (a library on a CPU)" in finding.found for finding in findings)


def test_the_ceilings_are_told_in_each_precision():
    def reaching(lane, flops, load=0.0, **fields):
        told = {"compute_ceiling": Metric(flops, "a test", operation=f"{lane} product"), "other_load": metric(load)}
        return measured(lane, metrics=told | {"memory_bandwidth": metric(1.2e10)}, stages={"ceilings": 1.0}, **fields)

    lanes = [reaching("torch", 3e11), reaching("jax", 2e11, load=0.5), reaching("jax", 1.5e12, precision="bf16")]
    (finding,) = judging.ceilings(lanes)
    rates = "fp32 300 GFLOP/s (torch: torch product), bf16 1.50 TFLOP/s (jax: jax product), memory 12.0 GB/s"
    assert (finding.found, finding.level) == (rates, "good")
    assert [f.level for f in judging.ceilings([*lanes, reaching("jax", 4e11, load=0.5)])] == ["warning"]
    assert list(judging.ceilings([measured()])) == []


@pytest.mark.slow
def test_a_lane_in_another_arithmetic_is_found_by_a_real_worker(monkeypatch):
    """The harness's own lane computes in float32 whatever it is asked for."""
    monkeypatch.setattr(check, "_TIMED", dataclasses.replace(check._TIMED, warmup_time=0.0, max_time=0.05))
    seen = []
    monkeypatch.setattr(judging, "matrix_products", lambda measured: seen.extend(m.workload.lane for m in measured))
    with contextlib.closing(Session(machine(), time.monotonic() + 60)) as session:
        wrong, same = session._lane(LANES["noop"])
        (clock,) = session._clock()
        next(part for part in session.checks() if part.title == "matrix products").run()
    assert (wrong.level, "runs in fp32 arithmetic" in wrong.found) == ("bad", True)
    assert "apart" in same.found
    assert set(seen) == {"noop"}
    # An empty round, over one: the clock cannot be told from what it times.
    assert (clock.subject, clock.level != "good") == ("clock", True)


@pytest.mark.parametrize(
    ("there", "titles"),
    [
        (("torch", "torchvision"), ["torch", "torch-compile", "clock", "duet"]),
        (("jax", "jaxlib"), ["clock"]),  # without flax
    ],
)
def test_a_framework_that_is_not_installed_is_left_to_the_looks(monkeypatch, there, titles):
    monkeypatch.setattr(looks, "versions", lambda names: {name: "1" for name in names if name in there})
    monkeypatch.setattr(check, "counter", lambda _: Absent("no counter"))
    checks = Session(MACHINE, 0.0).checks()
    assert [each.title for each in checks if each.seconds] == titles
    assert [each.title for each in checks if not each.seconds] == [
        *("lanes", "matrix products", "ceilings", "disturbances", "other load"),
    ]


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """Of the check; those that a test puts there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(looks, "_WATCHED", 0.0)
    found = []
    monkeypatch.setattr(Session, "checks", lambda _: found)
    return found


def test_the_command_takes_what_was_run_with_what_was_looked_at(parts, capsys):
    parts += [Check("energy", 10.0, lambda: [Finding("energy", "moves")]), Check("x", 10.0, lambda: 1 / 0)]
    assert main(["doctor", "--check", "--json"]) == 1
    told = capsys.readouterr()
    answer = json.loads(told.out)
    findings = {finding["subject"]: finding for finding in answer["findings"]}
    assert answer["sound"] is False
    assert len(findings) == len(answer["findings"])
    assert findings["energy"]["found"] == "moves"
    assert (findings["x"]["level"], "ZeroDivisionError" in findings["x"]["found"]) == ("bad", True)
    assert {"storage", "torch", "other load"} < findings.keys()
    assert "x, about" in told.err


@pytest.mark.parametrize(("load", "code"), [(metric(0.854), 1), (metric(0.01), 0)])
def test_a_check_beside_other_load_ends_with_1_and_names_it_first(monkeypatch, tmp_path, capsys, load, code):
    """No number is to be trusted that was taken while others used 85 % of the CPUs."""
    monkeypatch.chdir(tmp_path)
    watch = SimpleNamespace(read=lambda: load, cpus=2)
    monkeypatch.setattr(check, "OtherLoad", lambda: watch)
    monkeypatch.setattr(looks, "_WATCHED", 0.0)
    last = Session.checks
    monkeypatch.setattr(Session, "checks", lambda session: last(session)[-1:])
    assert main(["doctor", "--check", "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    first = answer["findings"][0]
    assert (first["subject"], first["level"]) == ("other load", "bad" if code else "good")
    assert answer["sound"] is not bool(code)


def test_the_command_shows_what_is_bad_and_sums_up(parts, capsys):
    parts += [Check("x", 10.0, lambda: [good("one")])]
    assert main(["doctor", "--check"]) == 0
    assert "findings are warnings" in capsys.readouterr().out
    parts += [Check("y", 10.0, lambda: 1 / 0)]
    assert main(["doctor", "--check"]) == 1
    told = capsys.readouterr().out
    assert "\nbad      y" in told
    assert told.splitlines()[-1].startswith("1 of ")


def test_the_file_to_send_holds_what_a_maintainer_needs_and_not_whose_machine_it_is(parts, monkeypatch, tmp_path):
    """Of a process that failed, its standard error; of paths their last parts, no user, and no host."""
    stderr = 'File "/home/zoltanx/my work/net.py", line 3, on box7.lab.org: zoltanx wrote ~/models/secret/net.pt (https://a.b/c)'
    died = measured(
        "jax",
        failure=Failure("crashed", "signal 11", "compile", stderr),
        settings={"CUDA_CACHE_PATH": "/zoltanx"},
        accelerator=(NEIGHBOURED,),
    )
    monkeypatch.setattr("fwbench.ext.trials.sending.answers", lambda: {"GPU 0": {"EccMode": "Not Supported"}})
    monkeypatch.setattr(Session, "measured", [died], raising=False)
    monkeypatch.setattr(Session, "__init__", lambda self, here, until: None)
    monkeypatch.setattr(Session, "close", lambda self: None)
    monkeypatch.setattr(socket, "gethostname", lambda: "box7.lab.org")
    for name in ("USER", "LOGNAME"):
        monkeypatch.setenv(name, "zoltanx")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/scratch/zoltanx/dump")
    parts += [Check("x", 10.0, lambda: [good("x")])]
    main(["doctor", "--check", "--json", "out.json"])
    text = (tmp_path / "out.json").read_text()
    content = json.loads(text)
    assert {"fwbench", "python", "sound", "findings", "machine", "versions", "nvml", "measured"} < content.keys()
    assert content["environment"]["XLA_FLAGS"] == "--xla_dump_to=.../dump"
    (record,) = content["measured"]
    assert (record["failure"]["stage"], record["samples"]) == ("compile", 3)
    assert Measurement.from_json({**record, "samples": []}).accelerator == (NEIGHBOURED,)
    assert content["nvml"] == {"GPU 0": {"EccMode": "Not Supported"}}
    assert content["versions"].keys() >= {"numpy", "nvidia-ml-py"}
    detail = record["failure"]["detail"]
    assert "net.py" in detail
    assert "USER wrote .../net.pt (https://a.b/c)" in detail
    for word in ("zoltanx", "box7", "lab.org", "secret", "/home", "/scratch", str(tmp_path.parent)):
        assert word not in text, word
