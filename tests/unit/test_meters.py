import dataclasses
import math
import mmap
import os
import subprocess
import sys
import time

import pytest

from fwbench.errors import Absent
from fwbench.machine.load import OtherLoad, family, family_time, wait_for_quiet
from fwbench.meters.device import device_time
from fwbench.meters.energy import (
    NvmlCounter,
    RaplCounter,
    counter,
    drawn,
    energy,
    near_idle,
    of_a_call,
    period,
    resting,
)
from fwbench.meters.generation import generation
from fwbench.meters.heap import PASSES, page_faults, settle
from fwbench.meters.latency import MAX_ROUNDS, SAMPLES_NEEDED, latencies, percentiles
from fwbench.meters.latency import drift as latency_drift
from fwbench.meters.memory import memory
from fwbench.meters.throughput import queue_depth, queued
from fwbench.models import CATALOG
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.spans import Span
from fwbench.record.workload import Workload
from tests.unit.fakes import FakeGpu, FakeProgram

MIB = 2**20


@pytest.fixture
def clock(clock, monkeypatch):
    """A clock that the energy meters' sleep moves, too."""
    monkeypatch.setattr("fwbench.meters.energy.time", clock)
    return clock


def test_latency_waits_for_every_call_and_returns_its_time(clock, protocol):
    program = FakeProgram(clock, duration=lambda call: 1.0 + call)
    assert latencies(program, protocol, clock) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert program.log == ["step", "wait"] * 5


PERCENTILES = {"max_time": 1.0, "percentile_time": 6.0}


@pytest.mark.parametrize(
    ("duration", "changes", "rounds"),
    [
        (1.0, {"max_time": 0.0}, 5),  # a count alone
        (1.0, {"max_time": 10.0}, 10),  # time left over is used
        (1.0, {"max_time": 2.0}, 5),  # the count takes precedence over the time
        # It goes on where that makes a percentile.
        (1 / 128, PERCENTILES, 128),
        (6 / 64, PERCENTILES, 59),
        (7 / 64, PERCENTILES, 10),
        (2.0, PERCENTILES, 5),
        # Not where it turns slow: after 21 calls 59 would take 8.3 s at their pace.
        (lambda call: 0.1 if call < 20 else 1.0, PERCENTILES, 21),
        # A tiny program is capped unless more rounds are asked for.
        (1e-9, {"max_time": 1.0}, MAX_ROUNDS),
        (1e-9, {"max_time": 1.0, "min_rounds": MAX_ROUNDS + 7}, MAX_ROUNDS + 7),
    ],
)
def test_latency_stops_after_its_count_and_its_time(clock, protocol, duration, changes, rounds):
    found = latencies(FakeProgram(clock, duration), dataclasses.replace(protocol, **changes), clock)
    assert len(found) == rounds


@pytest.mark.parametrize(("precision", "least", "most"), [(0.05, 21, 39), (0.5, 5, 5)])
def test_latency_stops_once_the_mean_is_precise(clock, protocol, precision, least, most):
    # Alternating 0.9 and 1.1: the margin of error of the mean at 99 % falls below 5 % at the 30th call or so.
    program = FakeProgram(clock, duration=lambda call: 0.9 + 0.2 * (call % 2))
    samples = latencies(program, dataclasses.replace(protocol, max_time=1000.0, precision=precision), clock)
    assert least <= len(samples) <= most


def test_percentiles_are_interpolated_between_order_statistics():
    found = percentiles([float(n) for n in range(1, 1002)])
    assert [found[f"latency_p{p}"].value for p in (50, 95, 99)] == pytest.approx([501, 951, 991])


@pytest.mark.parametrize(("p", "needed"), [(95, 59), (99, 299)])
def test_a_percentile_needs_enough_samples(p, needed):
    assert SAMPLES_NEEDED[p] == needed
    assert percentiles([1.0] * needed)[f"latency_p{p}"].value == 1.0
    missing = percentiles([1.0] * (needed - 1))[f"latency_p{p}"]
    assert missing.value is None
    assert f"n={needed - 1}" in missing.reason


def test_throughput_enqueues_many_calls_before_it_waits(clock):
    program = FakeProgram(clock, duration=0.1)
    found = queued(program, queue_depth(0.1, 1.0), window=1.0, clock=clock)
    assert found.throughput(8).value == pytest.approx(80.0)
    assert program.waits < program.calls / 5


def test_throughput_fills_the_window_when_pipelining_is_faster_than_latency_said(clock):
    program = FakeProgram(clock, duration=0.01)
    queued(program, queue_depth(0.1, 1.0), window=1.0, clock=clock)
    assert clock.now >= 1.0


@pytest.mark.parametrize(
    ("pages", "passes"),
    [
        ((0,), 1),
        ((40_000, 0), 2),
        ((40_000, 80_000, 4_000), 3),  # of a second: too few to matter
        ((40_000,) * PASSES, PASSES),  # maps fresh memory at every call
    ],
)
def test_a_pass_is_made_again_while_the_process_grows(clock, pages, passes):
    given = [0]

    def measure():
        given.append(given[-1] + pages[len(given) - 1])
        clock.advance(1.0)

    said = settle(FakeProgram(clock), measure, clock, faults=lambda: given[-1])
    assert (len(given) - 1, said) == (passes, f"pass {passes}, as memory grew before" if passes > 1 else "")


def test_the_first_of_several_ranks_decides_whether_a_pass_is_made_again(clock):
    class Second(FakeProgram):
        def agree(self, value):
            return False  # what the first rank says

    passes = []
    grown = iter(range(0, 10**9, 10**6))
    settle(Second(clock), lambda: passes.append(1), clock, faults=lambda: next(grown))
    assert len(passes) == 1


def test_fresh_memory_is_seen_as_page_faults():
    before = page_faults()
    with mmap.mmap(-1, 64 * MIB) as block:
        block.write(bytes(64 * MIB))
    # Of huge pages, which are the fewest.
    assert page_faults() - before >= 32


def write_status(proc, rss, peak):
    (proc / "status").write_text(f"Name:\tx\nVmHWM:\t{peak * 1024:8} kB\nVmRSS:\t{rss * 1024:8} kB\n")


@pytest.fixture
def proc(tmp_path):
    """A fake /proc of a process that holds 30 MiB, and 70 MiB at most before its peak is raised."""
    write_status(tmp_path, rss=30, peak=70)
    return tmp_path


def test_memory_reads_the_peak_after_the_step_and_the_initial_before(clock, proc):
    found = memory(FakeProgram(clock), "cpu", lambda: write_status(proc, rss=40, peak=90), proc)
    assert found["host_initial_memory"].value == 30 * MIB
    assert found["host_peak_memory"].value == 90 * MIB
    assert (proc / "clear_refs").read_text() == "5"


def test_what_a_thread_gives_back_after_the_call_does_not_count(clock, monkeypatch):
    held = mmap.mmap(-1, 64 * MIB)
    held.write(bytes(64 * MIB))
    monkeypatch.setattr("fwbench.meters.memory.time", clock)
    with_it = memory(FakeProgram(clock), "cpu", lambda: None)
    monkeypatch.setattr(clock, "sleep", lambda seconds: held.close())
    without = memory(FakeProgram(clock), "cpu", lambda: None)
    for name in ("host_initial_memory", "host_peak_memory"):
        assert with_it[name].value - without[name].value > 60 * MIB


def test_memory_that_cannot_be_had_has_a_reason(clock, tmp_path):
    (tmp_path / "clear_refs").mkdir()  # cannot be written to
    program = FakeProgram(clock)
    found = memory(program, "cpu", program.step, tmp_path)
    assert {name: metric.value for name, metric in found.items()} == dict.fromkeys(found)
    assert "peak be reset" in found["host_peak_memory"].reason


def test_host_peak_of_this_very_process_sees_an_allocation(clock):
    found = memory(FakeProgram(clock), "cpu", lambda: bytearray(64 * MIB))
    grown = found["host_peak_memory"].value - found["host_initial_memory"].value
    assert 60 * MIB < grown < 80 * MIB


class Allocating(FakeProgram):
    """Its allocator held `peak` B at most while it was built, and holds 20 B; a call needs `need` B more."""

    def __init__(self, clock, need, resets=False, peak=70.0):
        super().__init__(clock)
        self.need, self.resets, self.peak = need, resets, peak

    def reset_peak_memory(self):
        self.peak = 20.0 if self.resets else self.peak

    def memory_in_use(self):
        return Metric(20.0, "test")

    def peak_memory(self):
        return Metric(self.peak, "test")

    def step(self):
        super().step()
        self.peak = max(self.peak, 20.0 + self.need)


def test_a_device_peak_below_the_initial_value_is_an_error(clock):
    with pytest.raises(ArithmeticError, match="device's peak memory, 1 B, is below the initial 20 B"):
        memory(Allocating(clock, 0.0, peak=1.0), "cpu", lambda: None)


@pytest.mark.parametrize(
    ("need", "resets", "peak", "at_most"),
    [
        (30.0, True, 50.0, False),
        (0.0, True, 20.0, False),
        (30.0, False, 70.0, True),  # what was before hides the call's own
        (60.0, False, 80.0, False),  # the call itself came that far
    ],
)
def test_a_peak_that_was_there_before_the_call_is_at_most_the_calls(clock, need, resets, peak, at_most):
    program = Allocating(clock, need, resets)
    found = memory(program, "cpu", program.step)["device_peak_memory"]
    assert (found.value, found.at_most) == (peak, at_most)


def test_a_host_peak_below_the_initial_value_is_an_error(clock, proc):
    write_status(proc, rss=4000, peak=70)
    with pytest.raises(ArithmeticError, match="host's peak memory"):
        memory(FakeProgram(clock), "cpu", lambda: write_status(proc, rss=40, peak=90), proc)


class FakeCounter:
    """20 W idle; a call adds 5 J on top."""

    name, fault = "fake", ""

    def __init__(self, clock, program):
        self.clock = clock
        self.program = program

    def read(self):
        return 20.0 * self.clock.now + 5.0 * self.program.calls


def metered(program, meter, batch_size, depth, window, clock):
    """Energy as a benchmark reads it: around calls, and then without any."""
    queues = []
    load = drawn(meter, lambda: queues.append(queued(program, depth, window, clock)), clock)
    rest = resting(meter, window, clock)
    (queue,) = queues
    return energy(meter, load, rest, queue.seconds / (queue.calls * batch_size), queue.seconds, queue.told)


def test_energy_with_and_without_the_idle_share(clock):
    program = FakeProgram(clock, duration=0.25)
    found = metered(program, FakeCounter(clock, program), 10, 4, 2.0, clock)
    # A call of 0.25 s: 5 J of work and 5 J of idling, over 10 samples.
    assert found["energy_per_sample"].value == pytest.approx(1.0)
    assert found["energy_per_sample_net"].value == pytest.approx(0.5)
    assert found["power_idle"].value == pytest.approx(20.0)
    assert found["power_load"].value == pytest.approx(40.0)


def test_energy_is_of_the_queue_that_throughput_had(clock):
    program = FakeProgram(clock, duration=0.01)
    metered(program, FakeCounter(clock, program), 1, 37, 1.0, clock)
    assert program.log == (["step"] * 37 + ["wait"]) * 3


@pytest.mark.parametrize(("extra", "near"), [(0.2, True), (0.55, True), (0.65, False), (3.0, False)])
def test_a_load_that_draws_little_more_than_idling_needs_its_own_idle_power(clock, extra, near):
    """Idle power is off by 3 % at another moment, and energy without the idle share then by a twentieth at most."""
    program = FakeProgram(clock, duration=5.0 / (20.0 * extra))
    meter = FakeCounter(clock, program)
    load = drawn(meter, lambda: queued(program, 4, 2.0, clock), clock)
    rest = {name: Metric(value, "a test") for name, value in (("power_idle", 20.0), ("energy_period", 0.001))}
    assert near_idle(load, rest) is near
    moved = {**rest, "power_idle": Metric(20.0 * 1.03, "another moment")}
    own, others = (energy(meter, load, of, 1.0, 2.0, "")["energy_per_sample_net"].value for of in (rest, moved))
    assert near or others == pytest.approx(own, rel=0.051)


class SteppingCounter:
    """20 W, told every `step` seconds alone; to read it takes a while."""

    name, fault = "stepping", ""

    def __init__(self, clock, step, takes=0.0):
        self.clock, self.step, self.takes = clock, step, takes

    def read(self):
        self.clock.advance(self.takes)
        return 20.0 * self.step * (self.clock.now // self.step)


@pytest.mark.parametrize("step", [0.02, 0.1])
def test_the_counters_period_is_measured(clock, step):
    found = period(SteppingCounter(clock, step), clock)
    assert found.value == pytest.approx(step, rel=0.06)
    assert "stepping, polled" in found.source


def test_polling_ends_by_the_clock_however_long_a_reading_takes(clock):
    period(SteppingCounter(clock, 0.1, takes=0.0035), clock)
    assert 1.0 <= clock.now < 1.02


@pytest.mark.parametrize("duration", [0.01, 0.0171, 0.0249])
def test_a_reading_that_is_a_step_old_moves_no_power(clock, duration):
    """A window of 2 s has twenty steps of the counter, and readings at its ends would be off by a twentieth."""

    class Program(FakeProgram):
        ended = 0.0

        def wait(self):
            super().wait()
            self.ended = clock.now

    program = Program(clock, duration=duration)

    class Late(SteppingCounter):
        """20 W idle and 5 J a call, told every 0.1 s alone, with calls that are under way counted in part.

        To read it takes as long as on an H200, so that it may move meanwhile.
        """

        told = (0.0, 0.0)

        def read(self):
            clock.advance(0.0035)
            moved = self.step * (self.clock.now // self.step)
            if moved != self.told[0]:
                since = max(0.0, program.ended - moved)
                calls = program.calls - min(program.calls, since / duration)
                self.told = (moved, 20.0 * moved + 5.0 * calls)
            return self.told[1]

    clock.advance(0.037)
    found = metered(program, Late(clock, 0.1), 10, 4, 2.0, clock)
    assert found["power_idle"].value == pytest.approx(20.0, rel=0.005)
    assert found["power_load"].value == pytest.approx(20.0 + 5.0 / duration, rel=0.005)
    assert found["energy_per_sample"].value == pytest.approx((20.0 * duration + 5.0) / 10, rel=0.005)


@pytest.mark.parametrize(
    ("step", "window", "reason"),
    [
        (0.001, 0.5, "at least 1 s are needed"),  # however fine the steps
        (0.25, 2.0, "every 250 ms: at least 2.5 s are needed"),
        (2.0, 100.0, "moved less than twice"),
    ],
)
def test_energy_refuses_a_window_shorter_than_the_counter_resolves(clock, step, window, reason):
    program = FakeProgram(clock)
    found = metered(program, SteppingCounter(clock, step), 1, 4, window, clock)
    assert reason in found["energy_per_sample"].reason
    assert (found["energy_period"].value is None) == (step == 2.0)


@pytest.mark.parametrize(("step", "window"), [(0.001, 1.0), (0.25, 2.5)])
def test_a_calls_energy_is_of_a_window_that_the_counter_resolves(clock, step, window):
    """20 W, whatever the counter's steps."""
    asked = []

    def spend(seconds):
        asked.append(seconds)
        clock.sleep(4.0)
        return 8, 4.0

    assert of_a_call(SteppingCounter(clock, step), spend, clock).value == pytest.approx(10.0, rel=0.01)
    assert asked == pytest.approx([window], rel=0.01)


def test_a_counter_that_fails_while_calls_run_tells_no_energy_of_them(clock):
    meter = SteppingCounter(clock, 0.01)

    def spend(seconds):
        clock.sleep(seconds)
        meter.fault = "the GPU is lost"
        return 1, seconds

    found = of_a_call(meter, spend, clock)
    assert (found.value, found.reason) == (None, "the GPU is lost")


def test_a_counter_that_starts_again_meanwhile_tells_no_energy(clock):
    class Restarted(FakeCounter):
        def read(self):
            return super().read() - (1000.0 if self.program.calls else 0.0)

    program = FakeProgram(clock)
    found = metered(program, Restarted(clock, program), 1, 4, 1.0, clock)
    assert "went back" in found["energy_per_sample"].reason


@pytest.mark.parametrize("reads", [1, 500, 1003, 1006])
def test_a_counter_that_fails_in_any_window_tells_no_energy_and_its_reason(clock, reads):
    class Lost(FakeGpu):
        left = reads

        def energy(self):
            object.__setattr__(self, "left", self.left - 1)
            if self.left < 0:
                raise RuntimeError("GPU is lost")
            return 100.0 * clock.now

    meter = NvmlCounter(Lost())
    found = metered(FakeProgram(clock), meter, 1, 4, 1.0, clock)
    assert found["power_load"].reason == "the GPU's energy counter could not be read (GPU is lost)"


def make_rapl(folder, energies, wrap=1_000_000, names="package-{}"):
    for index, microjoules in enumerate(energies):
        package = folder / f"intel-rapl:{index}"
        package.mkdir(exist_ok=True)
        (package / "name").write_text(names.format(index) + "\n")
        (package / "energy_uj").write_text(str(microjoules))
        (package / "max_energy_range_uj").write_text(str(wrap))


def test_rapl_sums_packages_and_corrects_a_wrap(tmp_path):
    assert "no RAPL" in counter("cpu", tmp_path)
    make_rapl(tmp_path, [999_000, 100], names="psys")
    assert "no RAPL" in counter("cpu", tmp_path)
    make_rapl(tmp_path, [999_000, 100])
    meter = counter("cpu", tmp_path)
    assert isinstance(meter, RaplCounter)
    make_rapl(tmp_path, [1_000, 600])
    assert meter.read() == pytest.approx((2_001 + 500) / 1e6)


def test_the_whole_boards_counter_is_not_added_to_its_packages(tmp_path):
    make_rapl(tmp_path, [100, 100, 100])
    (tmp_path / "intel-rapl:1" / "name").write_text("psys\n")
    (tmp_path / "intel-rapl:2").rename(tmp_path / "intel-rapl:0:0")
    (tmp_path / "intel-rapl:0:0" / "name").write_text("core\n")
    meter = counter("cpu", tmp_path)
    for zone in tmp_path.iterdir():
        (zone / "energy_uj").write_text("600")
    assert meter.read() == pytest.approx(500 / 1e6)


def test_a_package_whose_counter_vanishes_stays_at_its_last_reading_and_says_so(tmp_path):
    make_rapl(tmp_path, [100, 100])
    meter, other = counter("cpu", tmp_path), counter("cpu", tmp_path)
    make_rapl(tmp_path, [600, 700])
    assert meter.read() == pytest.approx(1100 / 1e6)
    assert meter.fault == ""
    for package in tmp_path.iterdir():
        (package / "energy_uj").unlink()
    assert meter.read() == pytest.approx(1100 / 1e6)
    assert meter.fault.startswith("the CPU's energy counter could not be read (")
    assert other.fault == ""


@pytest.mark.parametrize("text", [None, "", "much"])
def test_a_package_without_a_range_has_no_counter(tmp_path, text):
    make_rapl(tmp_path, [100])
    wrap = tmp_path / "intel-rapl:0" / "max_energy_range_uj"
    if text is None:
        wrap.unlink()
    else:
        wrap.write_text(text)
    found = counter("cpu", tmp_path)
    assert isinstance(found, Absent)
    assert found.startswith("the RAPL energy counters of intel-rapl:0 cannot be read (")


@pytest.mark.parametrize(
    ("throughput", "energy", "rate", "joules"),
    [
        (Metric(4.0, "calls"), Metric(2.0, "RAPL"), 4.0, 2.0),
        (unavailable("calls", "no time was left"), unavailable("RAPL", "no counter here"), None, None),
    ],
)
def test_tokens_have_the_rate_of_calls_or_the_reason_why_there_is_none(clock, throughput, energy, rate, joules):
    metrics = {"latency_p50": Metric(0.25, "calls"), "throughput": throughput, "energy_per_sample": energy}
    found = generation(Workload("torch", "decoder", "decode"), CATALOG["decoder"], FakeProgram(clock), metrics)
    assert found["time_per_output_token"] == metrics["latency_p50"]
    for name, given, value in (("tokens_per_second", throughput, rate), ("energy_per_token", energy, joules)):
        assert (found[name].value, found[name].reason) == (value, given.reason)
    assert "state_memory" not in found


def write_stat(path, ticks):
    """user, nice, system, idle, iowait, irq, softirq, steal."""
    path.write_text(
        "cpu  9 9 9 9 9 9 9 9 0 0\n" + "".join(f"cpu{n} {' '.join(map(str, t))} 0 0\n" for n, t in enumerate(ticks))
    )


def test_other_load_is_what_neither_we_nor_idling_used(clock, tmp_path):
    stat = tmp_path / "stat"
    write_stat(stat, [(0,) * 8] * 3)
    own = iter([1.0, 2.5])
    load = OtherLoad({0, 1}, clock, lambda: next(own), stat)
    clock.advance(2.0)
    # On the two CPUs watched 2 s are busy, in user, system and stolen time; 1.5 s are ours. CPU 2 is not watched.
    write_stat(stat, [(100, 0, 50, 40, 9, 0, 0, 0), (0, 0, 0, 50, 9, 0, 0, 50), (999,) * 8])
    assert load.read().value == pytest.approx(0.5 / 4)


def ticking(stat, clock, own=lambda: 0.0):
    """Two CPUs that are watched, and a way to let seconds pass in which others are busy on one of them for some."""
    spent = [0.0]
    write_stat(stat, [(0,) * 8] * 2)
    load = OtherLoad({0, 1}, clock, own, stat)

    def passing(seconds, busy):
        clock.advance(seconds)
        spent[0] += busy
        write_stat(stat, [(round(spent[0] * 100), *(0,) * 7), (0,) * 8])

    return load, passing


@pytest.mark.parametrize(
    ("laps", "told"),
    [
        # Of several the one with the most other load counts.
        ([(2.0, 0.2), (1.0, 0.9), (1.0, 0.0)], 0.45),
        # What is shorter than the kernel's clock can tell counts with the next.
        ([(0.01, 0.01), (1.0, 0.0)], 0.01 / 2.02),
    ],
)
def test_other_load_is_told_of_the_worst_lap(clock, tmp_path, laps, told):
    load, passing = ticking(tmp_path / "stat", clock)
    for seconds, busy in laps[:-1]:
        passing(seconds, busy)
        load.lap()
    passing(*laps[-1])
    assert load.read().value == pytest.approx(told)


@pytest.mark.parametrize(("busy", "none"), [(0.0, True), (0.02, True), (0.05, False), (0.25, False)])
def test_a_few_ticks_are_nobodys_load(clock, tmp_path, busy, none):
    load, passing = ticking(tmp_path / "stat", clock)
    passing(0.25, busy)
    assert load.none is none


@pytest.mark.parametrize(("device", "none"), [("cpu", False), ("gpu", True)])
def test_one_busy_cpu_of_many_keeps_nobody_waiting_for_a_gpu(clock, tmp_path, device, none):
    stat = tmp_path / "stat"
    write_stat(stat, [(0,) * 8] * 64)
    load = OtherLoad(set(range(64)), clock, lambda: 0.0, stat, device)
    clock.advance(1.0)
    write_stat(stat, [(100, *(0,) * 7), *[(0,) * 8] * 63])
    assert load.none is none


@pytest.mark.parametrize(
    ("patience", "leave", "quiet", "waited"),
    [
        (60.0, 3.0, True, 3.25),
        (10.0, math.inf, False, 10.0),
        # Nor does it wait at all without patience.
        (0.0, 3.0, False, 0.0),
    ],
)
def test_waiting_ends_when_others_have_left_or_with_the_patience(clock, tmp_path, patience, leave, quiet, waited):
    sleeps = []

    def watch():
        load, passing = ticking(tmp_path / "stat", clock)
        sleeps.append(lambda seconds: passing(seconds, seconds if clock() < leave else 0.0))
        return load

    assert wait_for_quiet(patience, lambda seconds: sleeps[-1](seconds), watch) is quiet
    assert clock() == waited


def test_where_nobody_counts_there_is_nothing_to_wait_for_and_a_reason(clock, tmp_path):
    load = OtherLoad({0}, clock, clock, tmp_path / "none")
    assert wait_for_quiet(60.0, clock.sleep, lambda: load)
    assert load.read().value is None


@pytest.mark.parametrize(
    ("samples", "drift"),
    [
        ([1.0] * 20 + [1.1] * 20 + [1.5] * 20, 0.5),
        ([2.0] * 20 + [1.0] * 40, -0.5),
        # A slow call now and then is no drift.
        (([1.0] * 9 + [50.0]) * 6, 0.0),
        ([1.0] * 29 + [2.0] * 29, None),
    ],
)
def test_drift_is_from_the_first_third_of_the_calls_to_the_last(samples, drift):
    assert latency_drift(samples).value == (None if drift is None else pytest.approx(drift))


def test_loaders_and_compilers_are_no_other_load(tmp_path):
    def write(process, times, name="x) (y", **children):
        for thread, started in children.items():
            task = tmp_path / str(process) / "task" / thread.removeprefix("thread")
            task.mkdir(parents=True)
            (task / "children").write_text("".join(f"{child} " for child in started))
        (tmp_path / str(process) / "stat").write_text(f"{process} ({name}) S 1 {'0 ' * 9}{times} 0 0")

    write(10, "100 10 1 2", thread10=[11], thread15=[9])  # the process itself; its waited-for children took 3 ticks
    write(11, "1000 0 0 0", thread11=[12, 14])
    write(12, "0 0 10000 0", thread12=[])  # a grandchild; 14 has ended meanwhile
    write(9, "0 100000 0 0", thread9=[])  # started by another thread
    write(13, "7 7 7 7", thread13=[])  # somebody else
    assert family_time(10, tmp_path) * os.sysconf("SC_CLK_TCK") == pytest.approx(111113)
    assert family_time(10, tmp_path / "no proc") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_living_child_is_of_the_family_and_a_stranger_is_not():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= family()
        child.stdin.close()
    assert not family() & {1, child.pid, os.getppid()}


def test_this_process_is_a_family():
    assert 0 < time.process_time() <= family_time() + 0.1


def spanned(kind, start, seconds, thread="stream 7"):
    return Span(kind, thread, "kernel", start, seconds)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([spanned("operator", 0.0, 1.0), spanned("operator", 2.0, 2.0)], 1.0),
        # Two streams that work at the same time; one kernel within another's time.
        ([spanned("operator", 0.0, 2.0), spanned("operator", 1.0, 2.0, "stream 8")], 1.0),
        ([spanned("operator", 0.0, 3.0), spanned("operator", 1.0, 1.0, "stream 8")], 1.0),
        # What the host does is none.
        ([spanned("call", 0.0, 9.0), spanned("other", 0.0, 9.0), spanned("operator", 4.0, 1.5)], 0.5),
        ([spanned("call", 0.0, 9.0)], None),
        (None, None),
    ],
)
def test_device_time_is_when_a_kernel_of_the_call_runs(clock, spans, seconds):
    program = FakeProgram(clock)
    program.spans = lambda calls: spans
    assert device_time(program).value == seconds


def test_a_profiler_that_fails_costs_the_device_time_alone(clock):
    def fail(calls):
        raise RuntimeError("CUPTI could not be loaded\nand more")

    program = FakeProgram(clock)
    program.spans = fail
    metric = device_time(program)
    assert metric.value is None
    assert metric.reason == "RuntimeError: CUPTI could not be loaded"
