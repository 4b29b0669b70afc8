"""JAX on a CPU: one process compiles a program, and the next one loads it and is measured."""

import dataclasses

import pytest

from fwbench.machine import machine
from fwbench.record.measurement import Failure, Measurement, Metric
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.chain import compiled_by
from fwbench.worker.client import workers as client
from fwbench.worker.client.workers import Workers
from tests.unit.fakes import NO_PROJECT

QUICK = PROFILES["quick"]
NOOP = Workload("jax", "noop")


def timed(workload=NOOP, *, trace, compiling, steady=None, stages, overhead):
    metrics = {"trace_time": trace, "compile_time": compiling, "latency_p50": 0.5, "time_to_steady": steady}
    known = {name: Metric(value, "given") for name, value in metrics.items() if value is not None}
    return Measurement(workload, (0.5,), known, stages=stages, overhead_s=overhead)


MADE = {"trace": 1.0, "compiling": 8.0, "stages": {"build": 0.5, "compile": 9.0}, "overhead": 0.25}
LOADED = {"trace": 1.5, "compiling": 0.5, "stages": {"build": 0.5, "compile": 2.0, "latency": 4.0}, "overhead": 0.5}


class Server:
    """A server of a lane's workers, and of the jobs that it was given: what they ask for, and whether it keeps more."""

    alive, staying = True, None

    def __init__(self, python, lane, cpus, variables, compiled=None):
        self.compiled = compiled
        made.append(self)
        self.jobs = []

    def measure(self, job, workload, tell, *, keeps=False):
        self.jobs.append((job["protocol"]["smoke"], job["stays"], keeps))
        if job["protocol"]["smoke"] and fails:
            return Measurement(workload, failure=Failure("error", "refused"))
        return timed(workload, **(MADE if job["protocol"]["smoke"] else {**LOADED, "steady": 3.0}))

    def settle(self):
        pass

    close = settle


made, fails = [], []


@pytest.fixture
def measure(monkeypatch):
    monkeypatch.setattr(client, "Server", Server)
    monkeypatch.setattr(Workers, "_start", lambda *_: None)
    made.clear(), fails.clear()

    def measured(workload=NOOP, device="cpu", **protocol):
        workers = Workers(machine(), device, {}, NO_PROJECT, stays=lambda workload: True)
        return workers.measure(workload, dataclasses.replace(QUICK, **protocol), lambda stage: None), made[-1]

    return measured


def test_a_process_that_loads_is_measured_and_has_the_times_of_the_one_that_compiled(measure):
    found, server = measure()
    assert server.jobs == [(True, False, True), (False, True, False)]
    assert server.compiled is not None
    values = {name: metric.value for name, metric in found.metrics.items()}
    # Three seconds from the start of loading, which took two; compiling took nine.
    assert values == {"trace_time": 1.0, "compile_time": 8.0, "latency_p50": 0.5, "time_to_steady": 10.0}
    assert found.stages == {"build": 1.0, "compile": 11.0, "latency": 4.0}
    assert found.overhead_s == pytest.approx(0.75, abs=0.1)


def test_a_program_that_does_not_compile_is_not_loaded(measure):
    fails.append(True)
    found, server = measure()
    assert found.failure.message == "refused"
    assert len(server.jobs) == 1


@pytest.mark.parametrize(
    ("workload", "device", "protocol"),
    [
        (Workload("torch", "noop"), "cpu", {}),
        (dataclasses.replace(NOOP, device="gpu"), "gpu", {}),
        (Workload("jax", "noop", mode="fit"), "cpu", {}),
        (NOOP, "cpu", {"smoke": True}),
        (NOOP, "cpu", {"programs": True}),
    ],
)
def test_elsewhere_one_process_does_all(measure, workload, device, protocol):
    _, server = measure(workload, device, **protocol)
    assert len(server.jobs) == 1
    assert server.jobs[0][2] is False


def test_a_time_that_is_not_known_stays_unknown():
    loaded = timed(**LOADED)
    assert "time_to_steady" not in compiled_by(timed(**MADE), loaded).metrics
