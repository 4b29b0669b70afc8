"""A rehearsal of the minutes of a GPU's run, without a GPU: `python -m tests.minutes` prints the tables of docs/gpu.md.

What is real: pytest, and the plugin with its order, plan, turns and journal. What stands in: workers and rounds return
what an H200 and an H100 have recorded, and move a clock by the seconds of the records. A first run compiles; the second
one, in the same folder, loads.
"""

import contextlib
import dataclasses
import io
import json
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from fwbench.compare.ratios import FEWEST_ROUNDS
from fwbench.compare.rounds import sets_speed
from fwbench.machine.oom import ROOM
from fwbench.plugin import plan, run, turning
from fwbench.plugin.session import Session
from fwbench.record.reading import read
from fwbench.suite.costs import cost, once, start
from fwbench.worker.turns import servers
from fwbench.worker.turns.lanes import Lanes, Round, seconds_on_gpu
from tests.unit.fakes import FakeClock
from tests.unit.recorded import MACHINE, fitted, measured
from tests.unit.shared import ALONE

BASELINES = Path(__file__).parents[1] / ".benchmarks" / "baselines"
H100 = dataclasses.replace(MACHINE, device="gpu", accelerator="NVIDIA H100 80GB HBM3", cpus=tuple(range(16)))
SUITE = ("--pyargs", "fwbench.suite.benchmarks", "--benchmark-only", "-p", "fwbench.plugin", "--fwbench-set=patience=0")

# Stages of a measurement by their names in the tables.
BUILDING, COMPILING, ONCE = "building", "compiling, or loading", "ceilings, and JAX's probe of arithmetic"
WINDOWS, IDLE, CHECKS = "warm-up, latency, throughput with energy", "idle power", "check, memory, profiler, overhead"
MEASURING = ("starts of servers", BUILDING, COMPILING, ONCE, WINDOWS, IDLE, CHECKS)
TURNS = ("turns: starts of servers", "turns: building and loading", "turns: calls")
_CHECKS = ("check", "memory", "program", "device time")

# How far rounds of lanes whose speed the GPU sets lay apart on an H200, and those of the others.
_APART = {True: 0.002, False: 0.1}


def recorded():
    """What was recorded last of each lane, model and mode in fp32, on an H200 if there."""
    every = {}
    for name in ("nvidia-h100.json", "nvidia-h100-torch-compile.json", "nvidia-h200-lanes.jsonl"):
        for m in read(BASELINES / name).measurements:
            if not m.failure and m.value("throughput"):
                every[m.workload.lane, m.workload.model, m.workload.mode] = m
    return every


class Rehearsal:
    """Runs in one folder; `loads`: their programs are compiled.

    Attributes:
        stages: seconds by the names of the tables.
        measured, answered: by workload, the seconds after which its last lane was measured, and its second round over.
    """

    def __init__(self, folder, *options, loads=False):
        self._records, self._random = recorded(), random.Random(0)
        self._loads, self._clock = loads, FakeClock()
        self._lanes, self._probed = set(), set()
        self._rounds, self._staying = defaultdict(int), {}
        # Batches of rounds by the servers of now, and their seconds.
        self._batches, self._served = 0, 0.0
        self.stages, self.measured, self.answered = defaultdict(float), {}, {}
        time = SimpleNamespace(monotonic=self._clock)
        with contextlib.ExitStack() as stack:
            for where, name, stands_in in (
                (run, "machine", lambda: H100),
                (run, "time", time),
                (turning, "time", time),
                (run, "addition", lambda kind: ""),
                (plan, "counter", lambda device: object()),
                (Session, "run", lambda session, *asked: self._measure(session, *asked)),
                (Session, "staying", lambda session, workload: self._staying.get(workload, {})),
                (
                    Lanes,
                    "play_measured",
                    lambda lanes, workload, servers: self._round(workload, servers, measured=True),
                ),
                (Lanes, "play", lambda lanes, *asked: self._play(lanes, *asked)),
            ):
                stack.enter_context(mock.patch.object(where, name, stands_in))
            shown = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            import pytest

            storage = f"--benchmark-storage=file://{folder}"
            code = pytest.main([*ALONE, *SUITE, f"--rootdir={folder}", storage, *options])
        assert code == 0, shown.getvalue()
        self.seconds = self._clock.now

    def _spend(self, name, seconds):
        self.stages[name] += seconds
        self._clock.advance(seconds)

    def _record(self, workload):
        """The record of this workload, or of the same in fp32."""
        return self._records[workload.lane, workload.model, workload.mode]

    def _loading(self, workload):
        """Seconds to load a program, by those that it took to compile."""
        m = self._record(workload)
        return dataclasses.replace(m, stages={"compile": m.stages["compile"]}).loading

    def _stays(self, m):
        """Whether a process may stay: nothing was compiled in it, and it holds little of the GPU's memory."""
        held = m.value("process_device_memory") or m.value("device_peak_memory")
        return (self._loads or m.value("compile_time") is None) and held <= ROOM * 80 * 2**30

    def _measure(self, session, workload, protocol, tell=None):
        first, self._lanes = workload.lane not in self._lanes, self._lanes | {workload.lane}
        self._spend(MEASURING[0], start(workload) * first)
        if workload.mode == "fit":
            self._spend(CHECKS, cost(workload, 1).ready)
            return dataclasses.replace(fitted(workload.lane), workload=workload, protocol=protocol.to_json())
        m, call = self._record(workload), self._record(workload).value("latency_p50")
        stages = {
            "build": m.stages["build"],
            **({"load": self._loading(workload)} if self._loads else {"compile": m.stages["compile"]}),
            "probe": once(workload) * (not self._loads and (workload.lane, workload.precision) not in self._probed),
            "throughput": plan.windows(protocol, call, metered=True),
            "energy": plan.rest(protocol, metered=True) * (first or m.stages["energy"] >= plan.POLLING),
            "check": sum(m.stages.get(stage, 0.0) for stage in _CHECKS),
        }
        self._probed.add((workload.lane, workload.precision))
        for name, seconds in zip(MEASURING[1:], stages.values(), strict=True):
            self._spend(name, seconds)
        self._spend(CHECKS, m.overhead_s)
        self.measured[workload.of_all] = self._clock.now
        if session.stays(workload) and self._stays(m):
            server = SimpleNamespace(settle=lambda: self._staying.pop(workload.of_all, None))
            self._staying.setdefault(workload.of_all, {})[workload.lane] = server
        return measured(
            *(workload.lane, workload.model, workload.mode, workload.batch_size, m.value("throughput")),
            metrics={name: m.metrics[name] for name in ("latency_p50", "device_time") if name in m.metrics},
            samples=(call,) * 7,
            stages=stages,
            overhead_s=m.overhead_s,
            protocol=protocol.to_json(),
            **{name: getattr(workload, name) for name in ("device", "precision")},
        )

    def _play(self, lanes, workloads, arrived):
        starting = sum(start(dataclasses.replace(workloads[0], lane=lane)) for lane in lanes._lanes[workloads[0]])
        if self._batches % servers.OWN == 0 or self._served > servers.STARTS * starting:
            self._batches, self._served = 0, 0.0
            self._spend(TURNS[0], starting)
        self._batches += 1
        served = self._clock.now
        for workload in workloads:
            arrived(workload, self._round(workload, lanes._lanes[workload]))
        self._served += self._clock.now - served

    def _round(self, workload, lanes, measured=False):
        own = [dataclasses.replace(workload, lane=lane) for lane in lanes]
        records = [self._record(each) for each in own]
        calls = [m.workload.samples / m.value("throughput") for m in records]
        busy = [sets_speed(m.value("device_time") or 0.0, call) for m, call in zip(records, calls, strict=True)]
        begun = self._clock.now
        for each, m, call in zip(own, records, calls, strict=True):
            self._spend(TURNS[1], 0.0 if measured else m.stages["build"] + self._loading(each))
            self._spend(TURNS[2], seconds_on_gpu(m.value("latency_p50"), call, busy=all(busy)))
        turns = {
            each.lane: {name: (call * (1 + self._random.gauss(0, _APART[by_gpu])),) for name in ("call", "latency")}
            for each, call, by_gpu in zip(own, calls, busy, strict=True)
        }
        self._rounds[workload] += 1
        if self._rounds[workload] == FEWEST_ROUNDS:
            self.answered[workload] = self._clock.now
        return Round(begun, turns, 0.0, self._clock.now - begun, waited=0.0)


def rehearse(folder, *options):
    """A first run and the next one."""
    return Rehearsal(folder, *options), Rehearsal(folder, *options, loads=True)


def markdown(runs):
    """The tables: seconds of each stage, and after how many seconds each workload is measured and answered."""
    yield from ("| stage | first run | next run |", "|---|--:|--:|")
    for stage in (*MEASURING, *TURNS):
        yield _row(stage, *(f"{of.stages[stage]:.0f} s" for of in runs))
    yield _row("all", *(f"{of.seconds:.0f} s" for of in runs))
    yield from ("", "| workload | measured | answered | next run: measured | answered |", "|---|--:|--:|--:|--:|")
    for each in runs[0].measured:
        name = f"{each.model}, {each.mode}, {each.precision}"
        yield _row(name, *(f"{seconds[each]:.0f} s" for of in runs for seconds in (of.measured, of.answered)))


def _row(*cells):
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as storage:
        made = rehearse(storage, *sys.argv[1:])
    answered = [{each.id: of.answered[each] for each in of.measured} for of in made]
    print("\n".join(markdown(made)), json.dumps(answered), sep="\n\n")
