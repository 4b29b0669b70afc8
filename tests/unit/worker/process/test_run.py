import ast
import dataclasses
import errno
import os
import sys
import tempfile
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest

from fwbench import frameworks
from fwbench.frameworks.contract import Ranks
from fwbench.frameworks.precision import Operands, Products, operands, reference
from fwbench.machine import load, nvml
from fwbench.machine.facts import Facts, asked
from fwbench.meters import heap, sketching
from fwbench.models import CATALOG, ModelError
from fwbench.models.project import complete
from fwbench.models.store import stamp
from fwbench.models.weights import digest
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import LANES, OWN
from fwbench.record.measurement import STAGES as TOLD
from fwbench.record.measurement import WAITING, Metric, unavailable
from fwbench.record.sketch import Sketch
from fwbench.record.spans import Span
from fwbench.record.workload import Workload
from fwbench.worker.process.building import environment, versions_of
from fwbench.worker.process.run import Measuring, prepare
from fwbench.worker.process.run import run as whole_run
from fwbench.worker.process.witness import Witness
from tests.unit.fakes import FakeFramework, FakeGpu, FakeProgram, FakeTrainer, round_mantissa
from tests.unit.recorded import MACHINE


@pytest.fixture
def run(monkeypatch, clock, protocol):
    """Measure a fake framework; returns the measurement and the stages announced."""

    def measure(framework, lane="noop", facts=None, patience=0.0, **changes):
        facts = facts or Facts()
        monkeypatch.setattr(frameworks, "load", lambda adapter: framework)
        stages = []
        workload = Workload("noop", "noop", batch_size=4)
        amounts = dataclasses.replace(protocol, **changes)
        measuring = Measuring(workload, LANES[lane], CATALOG["noop"], amounts, stages.append, clock, facts, patience)
        return measuring.run(), stages

    return measure


# Of the harness' own lanes, whose programs compute nothing.
# The stages of inference and of single training steps.
TIMED = ("build", "compile", "probe", "warm-up", "latency", "throughput", "energy")
STAGES = (*TIMED, "check", "memory", "check", "program")
UNCHECKED = (*TIMED, "memory", "program")


@pytest.mark.parametrize(("lane", "expected"), [("torch", STAGES), ("noop", UNCHECKED)])
def test_stages_come_in_order_and_are_all_timed(run, clock, lane, expected):
    measurement, stages = run(FakeFramework(FakeProgram(clock)), lane)
    assert measurement.failure is None
    assert tuple(stages) == expected
    assert list(measurement.stages) == list(dict.fromkeys(expected))
    assert ("check" in measurement.parity) is (lane == "torch")


@pytest.mark.parametrize(
    ("device", "stages", "compile_time", "held", "stays"),
    [
        ("cpu", {}, 9.0, None, True),
        ("gpu", {"load": 1.0}, 9.0, 2**33, True),
        ("gpu", {"compile": 9.0}, 9.0, 2**33, False),
        # An eager program, which nothing compiles.
        ("gpu", {"compile": 0.5}, None, 2**33, True),
        # As in a container, and with a quarter of the GPU's memory.
        ("gpu", {"load": 1.0}, 9.0, None, False),
        ("gpu", {"load": 1.0}, 9.0, 2**34, False),
    ],
)
def test_a_process_may_wait_for_turns_if_it_runs_what_rounds_run_and_leaves_room(
    monkeypatch, protocol, device, stages, compile_time, held, stays
):
    monkeypatch.setattr(FakeGpu, "process_memory", lambda gpu, pid: held if pid == os.getpid() else None)
    monkeypatch.setattr(nvml, "find", lambda number=0: FakeGpu())
    workload = Workload("torch", "mlp", device=device)
    measuring = Measuring(workload, LANES["torch"], CATALOG["mlp"], protocol, print)
    measuring.stages |= stages
    known = Metric(compile_time, "a test") if compile_time else unavailable("a test", "nothing is compiled")
    measuring.metrics["compile_time"] = known
    assert measuring._may_stay() is stays


class Restarting(FakeTrainer):
    """Begins again; its losses rise from 1 on, and its output in inference is its call's number."""

    def __init__(self, clock, fault=None, breaks=False):
        super().__init__(clock, losses=range(1, 10**6))
        self.fault, self.breaks = fault, breaks

    def step(self):
        if self.breaks and "restart" in self.log:
            raise RuntimeError("no state")
        super().step()

    def restart(self, weights, draw=0):
        self.log.append("restart")
        if self.fault:
            raise self.fault
        self.losses = iter(range(1, 10**6))

    def reset_peak_memory(self):
        self.log.append("reset")
        assert sketching._all_signs.cache_info().currsize == 0

    def weights(self):
        return {"w": np.zeros(sketching._CHUNK, np.float32)}

    def output(self):
        self.log.append("output")
        return np.full(self.batch_size, self.made[-1][0] if self.made else 0.0)


@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_what_the_timed_program_computes_is_read_back_when_all_is_timed(monkeypatch, clock, protocol, mode):
    program = Restarting(clock)
    found = checked(monkeypatch, clock, protocol, program, mode)
    assert found.failure is None
    # Its output in inference changes with each call.
    assert found.parity["check"].keys() == ({"output", "before"} if mode == "inference" else {"loss"})
    if mode != "inference":
        loss = Sketch.from_json(found.parity["check"]["loss"])
        assert np.abs(loss.slots).tolist() == [[1.0]]
    # Nothing is timed after the first restart: the check's calls are the only ones.
    after = program.log[program.log.index("restart") :]
    assert after.count("step") == after.count("wait") == (1 if mode == "inference" else 2)
    # The memory was measured before the check.
    assert program.log.count("reset") == 1
    assert "reset" not in after


def checked(monkeypatch, clock, protocol, program, mode="inference", devices=1, **changes):
    """Measure a program in a lane that is not the harness' own, as in a process of its own: without another's signs."""
    sketching.free_signs()
    monkeypatch.setattr(frameworks, "load", lambda adapter: FakeFramework(program))
    workload = Workload("noop", "noop", mode, batch_size=4, epochs=1, devices=devices)
    amounts = dataclasses.replace(protocol, **changes)
    return Measuring(workload, LANES["torch"], CATALOG["noop"], amounts, lambda stage: None, clock).run()


@pytest.mark.parametrize("faults", [{"fault": MemoryError("no room\nfor two")}, {"breaks": True}])
@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_what_fails_while_it_is_read_back_loses_nothing_that_was_timed(monkeypatch, clock, protocol, mode, faults):
    found = checked(monkeypatch, clock, protocol, Restarting(clock, **faults), mode)
    assert found.failure is None
    assert found.samples
    assert found.value("throughput") > 0
    assert found.value("host_peak_memory") > 0
    said = "MemoryError: no room" if "fault" in faults else "RuntimeError: no state"
    assert found.parity["check"] == {"reason": f"reading back what it computes failed: {said}"}


def test_the_check_of_several_devices_is_of_the_first_ones_slice(monkeypatch, clock, protocol):
    """PyTorch's first rank has no other, and one process of JAX's has all of them."""
    program = Restarting(clock)
    program.output = lambda: np.arange(1.0, 5.0)[:, None]
    found = checked(monkeypatch, clock, protocol, program, devices=2)
    assert found.failure is None
    slots = Sketch.from_json(found.parity["check"]["output"]).slots
    assert np.abs(slots).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(("name", "flagged"), [("TRITON_PTXAS_PATH", False), ("TRITON_INTERPRET", True)])
def test_the_tools_that_a_compiler_names_are_not_the_networks_doing(run, monkeypatch, clock, name, flagged):
    """As Inductor does where it compiles for a GPU."""
    monkeypatch.delenv(name, raising=False)

    class Inductor(FakeProgram):
        def compile(self):
            monkeypatch.setenv(name, "somewhere")
            return super().compile()

    found, _ = run(FakeFramework(Inductor(clock)), "torch-compile")
    assert found.failure is None
    assert ("caution" in found.settings) is flagged
    assert found.settings.get("changed") == ([name] if flagged else None)


def test_a_lane_that_cannot_begin_again_says_so_of_training_and_tells_its_output(monkeypatch, clock, protocol):
    training = checked(monkeypatch, clock, protocol, FakeTrainer(clock), "train_step")
    assert training.parity["check"] == {"reason": "the lane noop cannot start its training steps again"}
    assert checked(monkeypatch, clock, protocol, FakeProgram(clock, output=2.0)).parity["check"].keys() == {"output"}


@pytest.mark.parametrize("changes", [{"smoke": True}, {"programs": True}])
def test_where_nothing_is_timed_nothing_is_read_back(monkeypatch, clock, protocol, changes):
    found = checked(monkeypatch, clock, protocol, program := Restarting(clock), **changes)
    assert found.failure is None
    assert "check" not in {*found.parity, *found.stages}
    assert "restart" not in program.log


def test_compile_is_timed_apart_from_the_first_calls_which_stay_out_of_the_samples(run, clock):
    # The first call and three warm-up calls are slow.
    measurement, _ = run(FakeFramework(FakeProgram(clock, duration=lambda call: 9.0 - call if call < 4 else 1.0)))
    assert [measurement.value(f"{what}_time") for what in ("trace", "compile", "first_call")] == [1.0, 2.0, 9.0]
    assert measurement.samples == (1.0,) * 5


def test_the_warm_up_ends_with_its_time(run, clock):
    program = FakeProgram(clock)
    run(FakeFramework(program), warmup_iterations=100, warmup_time=10.0, throughput_time=0.0)
    assert program.calls < 30


@pytest.mark.parametrize("changes", [{"smoke": True}, {"warmup_iterations": 0}])
def test_an_output_is_read_before_anything_else_may_take_its_memory(run, clock, changes):
    """As the probe may, which is another function that replays CUDA graphs."""
    program = FakeProgram(clock)
    framework = FakeFramework(program)
    probe, output = framework.probe, program.output
    framework.probe = lambda *arguments: program.log.append("probe") or probe(*arguments)
    program.output = lambda: program.log.append("output") or output()
    run(framework, **changes)
    until = program.log[: program.log.index("output")]
    assert "step" in until[until.index("probe") :]


def test_settings_that_change_what_is_measured_are_on_the_record(run, clock, monkeypatch):
    everybodys, own = {"CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE"}, {"TORCHINDUCTOR_MAX_AUTOTUNE"}
    for name in (*everybodys, *own, "TORCHINDUCTOR_CACHE_DIR", "HOME"):
        monkeypatch.setenv(name, "1")
    settings = run(FakeFramework(FakeProgram(clock)), "torch")[0].settings
    assert settings.keys() >= everybodys | own
    # Each process has a cache of its own, and that is not a difference.
    assert settings.keys().isdisjoint({"TORCHINDUCTOR_CACHE_DIR", "HOME"})
    # What no lane but PyTorch's reads is no setting of another.
    assert own.isdisjoint(run(FakeFramework(FakeProgram(clock)), "jax")[0].settings)


def test_what_came_of_a_setting_is_on_the_record(run, clock):
    """As of CUDA graphs, which a compiler may skip."""

    class Asked(FakeProgram):
        def fingerprint(self):
            self.settings["graphs"] = "skipped"
            return super().fingerprint()

    assert run(FakeFramework(Asked(clock)))[0].settings["graphs"] == "skipped"


def test_a_smoke_run_makes_one_call_and_measures_nothing(run, clock):
    program = FakeProgram(clock)
    measurement, _ = run(FakeFramework(program), smoke=True)
    assert program.calls == 1
    assert measurement.samples == ()
    assert measurement.failure is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("broken"), "error"),
        (MemoryError("no room"), "out_of_memory"),
        (ImportError("gone"), "error"),
    ],
)
def test_an_exception_becomes_a_failure_of_its_kind(run, error, kind):
    measurement, _ = run(FakeFramework(error=error))
    assert measurement.failure.kind == kind
    said = f"{type(error).__name__}: {error}"
    assert measurement.failure.message == (said if kind == "error" else f"memory ran out ({said})")


class Failing(FakeFramework):
    def is_compilers_fault(self, error):
        return isinstance(error, OSError)


@pytest.mark.parametrize(
    ("error", "compilers"), [(OSError("ptxas died"), True), (RuntimeError("broken"), False), (ModelError("no"), False)]
)
def test_a_failure_says_whether_it_was_the_compilers(run, clock, error, compilers):
    """Also where compiling is part of the training, and never of a network that cannot be traced."""
    assert run(Failing(error=error))[0].failure.compiler is compilers


def test_the_variables_of_a_lanes_fallback_flags_are_on_its_record(run, clock, monkeypatch):
    """Whatever their names: other flags make another program."""
    monkeypatch.setitem(OWN, "noop", dataclasses.replace(LANES["noop"], fallback=(("FLAGS_OF_A_COMPILER", "--mild"),)))
    monkeypatch.setenv("FLAGS_OF_A_COMPILER", "--mild")
    assert run(FakeFramework(FakeProgram(clock)))[0].settings["FLAGS_OF_A_COMPILER"] == "--mild"


def test_a_users_fault_is_one_sentence_without_a_traceback(run):
    measurement, _ = run(FakeFramework(error=ModelError("tinynext returns a tuple instead of an array")))
    assert str(measurement.failure) == "error during build: tinynext returns a tuple instead of an array"


def test_a_framework_that_is_not_installed_is_unavailable(monkeypatch, protocol):
    def load(lane):
        raise ImportError("No module named 'jax'")

    monkeypatch.setattr(frameworks, "load", load)
    measurement = Measuring(Workload("jax", "noop"), LANES["jax"], CATALOG["noop"], protocol, lambda _: None).run()
    assert measurement.failure.kind == "unavailable"
    assert "No module named 'jax'" in measurement.failure.message


def test_a_failure_names_the_stage(run, clock):
    class Breaking(FakeProgram):
        def step(self):
            super().step()
            if self.calls == 7:
                raise RuntimeError("the seventh call")

    measurement, _ = run(FakeFramework(Breaking(clock)))
    assert measurement.failure.stage == "latency"
    assert "Breaking" in measurement.failure.detail or "seventh" in measurement.failure.detail
    assert measurement.samples == ()


def test_what_cannot_run_here_is_unavailable_with_its_reason(run):
    measurement, stages = run(FakeFramework(reason="no such device"))
    assert (measurement.failure.kind, measurement.failure.message) == ("unavailable", "no such device")
    assert stages == ["build"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_program_that_computes_nonsense_has_no_time(run, clock, value):
    measurement, _ = run(FakeFramework(FakeProgram(clock, output=value)))
    assert measurement.failure.kind == "error"
    assert "returns infinities or NaN" in measurement.failure.message
    # It is the network's fault, so that no traceback of ours helps.
    assert measurement.failure.detail == ""


def test_the_record_says_which_weights_and_which_arithmetic(run, clock):
    measurement, _ = run(FakeFramework(FakeProgram(clock)))
    assert measurement.parity["weights"] == digest({})
    assert measurement.parity["probe"]["convolution"]["arithmetic"] == "fp32"


def test_another_arithmetic_than_the_one_asked_for_is_an_error(run, clock):
    given = operands()
    rounded = Operands(*(round_mantissa(array, 10) for array in given))
    half = Products(reference(given, np.float32).matmul, reference(rounded).convolution)
    measurement, _ = run(FakeFramework(FakeProgram(clock), products=half))
    assert (measurement.failure.kind, measurement.failure.stage) == ("error", "probe")
    assert "fp32 was asked for, but the convolution runs in tf32" in measurement.failure.message


class Told(FakeProgram):
    """Compiles before its first call, and at those calls that `compiling` names, counted from 1."""

    def __init__(self, clock, compiling=(), error=None):
        super().__init__(clock)
        self.compiling = compiling
        self.error = error
        self.compiled = 41  # by what ran in the process before

    def compile(self):
        self.compiled += 1
        return super().compile()

    def step(self):
        super().step()
        self.compiled += self.calls in self.compiling

    def compilations(self):
        return self.compiled

    def fingerprint(self):
        self.log.append("fingerprint")
        if self.error:
            raise self.error
        return Fingerprint(form="fake", digest="d")


def test_the_fingerprint_is_taken_after_all_that_is_timed(run, clock):
    program = Told(clock)
    measurement, _ = run(FakeFramework(program))
    assert measurement.program.digest == "d"
    assert (measurement.program.compilations, measurement.program.recompilations) == (1, 0)
    assert program.log.index("fingerprint") == len(program.log) - 1


def test_compilations_until_the_end_of_the_warm_up_and_after_it_are_told_apart(run, clock):
    # The first call, then three of the warm-up; the latency pass has the next five.
    measurement, _ = run(FakeFramework(Told(clock, compiling=(1, 4, 5, 7))))
    assert (measurement.program.compilations, measurement.program.recompilations) == (3, 2)


def test_what_the_probe_compiles_is_not_the_programs(run, clock):
    program = Told(clock)

    class Probing(FakeFramework):
        def probe(self, workload, operands):
            program.compiled += 7
            return super().probe(workload, operands)

    measurement, _ = run(Probing(program))
    assert (measurement.program.compilations, measurement.program.recompilations) == (1, 0)


def test_a_lane_that_compiles_nothing_counts_nothing(run, clock):
    measurement, _ = run(FakeFramework(FakeProgram(clock)))
    assert measurement.program.compilations is None
    assert measurement.program.absent["recompilations"]


def test_programs_alone_are_neither_probed_nor_timed(run, clock):
    program = Told(clock)
    measurement, stages = run(FakeFramework(program), programs=True)
    assert stages == ["build", "compile", "warm-up", "program"]
    assert measurement.samples == ()
    assert measurement.program.digest == "d"
    # The first call, three of the warm-up, two to see whether they compile.
    assert program.calls == 6


def test_samples_outlive_a_fingerprint_that_fails(run, clock):
    measurement, _ = run(FakeFramework(Told(clock, error=RuntimeError("no room"))))
    assert measurement.failure is None
    assert len(measurement.samples) == 5
    assert measurement.program.absent["digest"] == "RuntimeError: no room"


def test_without_samples_a_fingerprint_that_fails_is_a_failure(run, clock):
    measurement, _ = run(FakeFramework(Told(clock, error=RuntimeError("no room"))), programs=True)
    assert (measurement.failure.kind, measurement.failure.stage) == ("error", "program")


def test_short_calls_warm_up_for_as_long_as_a_gpu_needs(run, clock):
    program = FakeProgram(clock, duration=0.001)
    run(FakeFramework(program), least_warmup_time=1.0, throughput_time=0.0, max_time=0.0)
    assert program.calls > 1000
    program = FakeProgram(clock, duration=0.001)
    run(FakeFramework(program), least_warmup_time=1.0, warmup_iterations=0, throughput_time=0.0, max_time=0.0)
    assert program.calls < 20


def steady(run, clock, durations, compiling=(), total=None, samples=1.0):
    """`time_to_steady` where a call takes these seconds, then as long as in the latency pass; compiling takes 3 s."""
    program = Told(clock, compiling)
    program.duration = lambda call: durations[call] if call < len(durations) else samples
    compiled = program.compile
    program.compile = lambda: dataclasses.replace(compiled(), total=total)
    return run(FakeFramework(program), warmup_iterations=6, throughput_time=0.0)[0].metrics["time_to_steady"]


@pytest.mark.parametrize(
    ("durations", "compiling", "seconds"),
    [
        ((), (), 3 + 1),
        # Tuned at the first call, recorded at the second.
        ((9.0, 5.0), (), 3 + 9 + 5 + 1),
        # A quick call before the one that records is not yet steady.
        ((1.0, 5.0), (), 3 + 1 + 5 + 1),
        ((1.0, 1.0, 5.0), (), 3 + 1 + 1 + 5 + 1),
        # Twice the median is within what calls differ by.
        ((2.0,), (), 3 + 2),
        # A call that compiles is not steady, however quick.
        ((), (1, 3), 3 + 3 + 1),
        # Steady only after the warm-up.
        ((9.0,) * 7, (), 3 + 7 * 9 + 1),
    ],
)
def test_the_start_ends_with_the_first_steady_call(run, clock, durations, compiling, seconds):
    assert steady(run, clock, durations, compiling).value == seconds


def test_calls_of_a_pass_that_is_made_again_are_part_of_the_start(run, clock, monkeypatch):
    # Seven calls warm up, five are the first latency pass, in which the process grows.
    program = FakeProgram(clock, duration=lambda call: 9.0 if call < 12 else 1.0)
    pages = lambda who: SimpleNamespace(ru_minflt=10**6 * (program.calls == 12), ru_nivcsw=0)  # noqa: E731
    monkeypatch.setattr(heap.resource, "getrusage", pages)
    measurement, _ = run(FakeFramework(program), warmup_iterations=6, throughput_time=0.0)
    assert measurement.samples == (1.0,) * 5
    assert measurement.value("time_to_steady") == 3 + 12 * 9 + 1
    assert measurement.metrics["latency_p50"].source == "synchronised calls, n=5, pass 2, as memory grew before"
    assert "pass" not in measurement.metrics["throughput"].source


def test_what_only_the_harness_does_while_compiling_is_no_part_of_the_start(run, clock):
    assert steady(run, clock, (), total=2.5).value == 2.5 + 1


def test_the_probe_is_no_part_of_the_start(run, clock):
    class Slow(FakeFramework):
        def probe(self, workload, operands):
            clock.advance(100.0)
            return super().probe(workload, operands)

    assert run(Slow(FakeProgram(clock)))[0].value("time_to_steady") == 3 + 1


def test_a_start_whose_end_cannot_be_told_has_a_reason(run, clock):
    scattered = lambda call: 1.0 if call % 3 else 9.0  # noqa: E731
    found = run(FakeFramework(FakeProgram(clock, scattered)))[0].metrics["time_to_steady"]
    assert "no 3 calls in a row" in found.reason


class OneRank(Ranks):
    """The only rank, which agrees with itself."""

    rank, size, local, address = 0, 1, 0, "localhost:1"

    def agree(self, value):
        return value

    def gather(self, value):
        return [value]


@pytest.mark.parametrize(
    # What may open the device: JAX does when it is asked whether it can run, PyTorch's ranks when they join.
    ("ranks", "opening"),
    [(None, ["unavailable", "build"]), (OneRank(), ["join", "unavailable", "build"])],
    ids=["alone", "in ranks"],
)
def test_a_gpu_is_looked_at_before_it_is_used_and_between_what_is_timed(monkeypatch, clock, protocol, ranks, opening):
    program = FakeProgram(clock)
    framework = FakeFramework(program)
    gpu = FakeGpu(lambda: program.log.append("state"))
    monkeypatch.setattr(nvml, "find", lambda number=0: gpu)
    monkeypatch.setattr(frameworks, "load", lambda adapter: framework)
    framework.join = lambda ranks: None
    for name in opening:
        call = getattr(framework, name)
        monkeypatch.setattr(framework, name, lambda *given, n=name, c=call: program.log.append(n) or c(*given))
    program.spans = lambda calls: program.log.append("profile") or [Span("operator", "stream 7", "k", 0.0, 1.5)]
    # No energy counter: this GPU has none.
    workload = Workload("noop", "noop", device="gpu")
    found = Measuring(workload, LANES["noop"], CATALOG["noop"], protocol, lambda _: None, clock, ranks=ranks).run()
    assert found.failure is None
    assert program.log[: len(opening) + 1] == ["state", *opening]
    assert [moment.when for moment in found.accelerator] == [
        "before the build",
        "before the latency pass",
        "after the latency pass",
        "after the throughput pass",
        "after the energy window",
    ]
    second, third = [at for at, what in enumerate(program.log) if what == "state"][1:3]
    assert program.log[second + 1 : third] == ["step", "wait"] * 5
    # The profiler takes memory, so it comes when all else is measured.
    assert found.metrics["device_time"].value == 0.5
    assert program.log[-1] == "profile"
    assert list(found.stages)[-1] == "device time"
    # A line of a log leaves them out.
    assert set(found.stages) <= set(TOLD)


def test_versions_are_those_of_the_lane_and_its_libraries(run, clock, monkeypatch):
    installed = {"torch": "2.15.0", "nvidia-cublas": "13.4", "triton": "3.9", "jax": "0.10"}
    monkeypatch.setattr(
        "fwbench.worker.process.building.versions", lambda names: {n: installed[n] for n in names if n in installed}
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.15.0+cu132"))
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    found = run(FakeFramework(FakeProgram(clock)), "torch")[0].versions
    assert found == {
        **{"torch": "2.15.0", "triton": "3.9", "nvidia-cublas": "13.4"},
        "torch.__version__": "2.15.0+cu132",
    }


@pytest.mark.parametrize("name", ["CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "CUDNN_LOGLEVEL_DBG"])
def test_what_is_set_of_nvidias_libraries_is_on_the_record(monkeypatch, name):
    monkeypatch.setenv(name, "8")
    assert environment(LANES["torch"])[name] == environment(LANES["jax"])[name] == "8"


def test_what_the_server_has_read_no_job_reads_again(monkeypatch):
    """A version costs a millisecond, a source three: together they were most of a worker's overhead."""
    prepare(LANES["jax"])
    read = []
    with monkeypatch.context() as patch:
        for module, name in ((metadata, "version"), (metadata, "metadata"), (ast, "parse")):
            patch.setattr(module, name, lambda what: read.append(what))
        for model in CATALOG.values():
            stamp(complete(model), "jax", None)
        versions_of(LANES["jax"])
    assert read == []
    # Which is no wonder where nothing would be read at all.
    assert stamp(CATALOG["efficientnet_b0"], "jax", None)["versions"]


def test_only_what_a_measurement_asks_for_walks_through_all_processes(run, clock, monkeypatch):
    """Before and after each of both passes that are timed."""
    walks = []
    monkeypatch.setattr(load, "_family", lambda *_: walks.append(clock()) or {})
    found, _ = run(FakeFramework(FakeProgram(clock)))
    assert found.metrics["other_load"].value is not None
    assert len(walks) == 3


class Watched(load.OtherLoad):
    """Other load as it is given: whether there is none so far."""

    none = True


@pytest.fixture
def others(monkeypatch, clock):
    """Somebody else computes when the measurement begins, and stops when it has waited for four seconds."""
    monkeypatch.setattr("fwbench.worker.process.job.OtherLoad", Watched)
    monkeypatch.setattr(Watched, "none", False)
    asked = []

    def wait(patience, **_):
        asked.append(patience)
        clock.advance(4.0)
        return True

    monkeypatch.setattr("fwbench.worker.process.job.wait_for_quiet", wait)
    return asked


def test_beside_other_load_a_measurement_waits_before_it_times_anything_and_warms_up_again(run, clock, others):
    program = FakeProgram(clock)
    found, stages = run(FakeFramework(program), patience=30.0)
    assert others == [30.0]
    assert stages[stages.index("warm-up") + 1 :][:2] == [WAITING, "latency"]
    assert found.samples == (1.0,) * 5
    # As many calls as before the wait, so that nothing cold is timed.
    calls = len(program.log)
    program.log.clear()
    run(FakeFramework(program), patience=0.0)
    assert calls - len(program.log) == 2 * 3
    assert others == [30.0]


def test_on_a_quiet_machine_nothing_waits(run, clock, others, monkeypatch):
    monkeypatch.setattr(Watched, "none", True)
    _, stages = run(FakeFramework(FakeProgram(clock)), patience=30.0)
    assert (others, WAITING in stages) == ([], False)


def test_what_tells_of_the_machine_comes_last_and_on_request(run, clock, tmp_path):
    def shared(name):
        return Facts(asked(tmp_path / name, "a run", MACHINE), "noop")

    framework = FakeFramework(FakeProgram(clock), offered={"product": lambda flops: clock.advance(flops / 1e9)})
    found, stages = run(framework, facts=shared("first"))
    assert found.metrics["matrix_product_rate"].value == pytest.approx(1e9)
    assert found.metrics["matrix_product_rate"].library.startswith("a product's library on ")
    assert tuple(stages) == (*UNCHECKED, "ceilings")
    for options in ({}, {"facts": shared("smoke"), "smoke": True}, {"facts": shared("programs"), "programs": True}):
        found, stages = run(framework, **options)
        assert (found.failure, "matrix_product_rate" in found.metrics) == (None, False)
        assert "ceilings" not in stages
    # Some lanes have none.
    assert "matrix_product_rate" not in run(FakeFramework(FakeProgram(clock)), facts=shared("none"))[0].metrics


def smoke(protocol, folder):
    """A job of a lane without a framework, of a few calls."""
    return {
        "workload": Workload("noop", "noop").to_json(),
        "protocol": dataclasses.replace(protocol, smoke=True).to_json(),
        "model": CATALOG["noop"].to_json(),
        "path": [],
        "root": str(folder),
        "proofs": str(folder),
        "facts": asked(folder / "facts", "a run", MACHINE),
        "patience": 0.0,
        "user": {"CUDA_VISIBLE_DEVICES": "1,0"},
    }


@pytest.mark.parametrize(("parity", "state"), [("mine:Side", "alone"), (None, "derived")])
def test_a_lane_whose_program_no_proof_runs_has_no_proof_on_its_record(monkeypatch, protocol, tmp_path, parity, state):
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(Witness, "edited", lambda self: [])
    sent = []
    whole_run(dataclasses.replace(LANES["noop"], parity=parity), smoke(protocol, tmp_path), sent.append, None)
    assert sent[-1]["measurement"]["parity"]["proof"]["state"] == state


def test_of_each_framework_one_lane_is_proved_and_what_torch_compile_makes():
    proved = {lane.name for lane in OWN.values() if lane.parity}
    assert proved == {"torch", "jax", "torch-compile"}


def test_a_folder_that_cannot_be_removed_does_not_lose_the_measurement(monkeypatch, protocol, tmp_path):
    """As where a compiler's helper still writes into it."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def still_in_use(*arguments, **named):
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr(os, "rmdir", still_in_use)
    # This process has also imported networks of other tests, whose files are gone.
    monkeypatch.setattr(Witness, "edited", lambda self: [])
    sent = []
    whole_run(LANES["noop"], smoke(protocol, tmp_path), sent.append, None)
    assert sent[-1]["measurement"]["failure"] is None
    # As the user set it, whatever the worker was given.
    assert sent[-1]["measurement"]["settings"]["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert list(tmp_path.iterdir())


def test_the_server_of_a_users_further_network_is_prepared():
    """The suite's own models have no network of that name."""
    prepare(LANES["torch:fused"])
