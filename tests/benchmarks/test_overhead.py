"""What the harness itself costs: an empty step, an empty program, and a fixed step against a bare loop.

The figures stand in the record's `extra_info`: `start_s` and `overhead_s` of every benchmark, and the metric
`bare_loop_ratio` of the fixed step.
"""

import dataclasses
import json
import statistics
import subprocess
import sys

import fwbench
from fwbench.machine import machine
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Metric
from fwbench.worker.client.starting import environment

PAIRS = 3
CALLS = 40
BARE_LOOP = f"""
import json, os, sys, time
os.sched_setaffinity(0, json.loads(sys.argv[1]))
import numpy as np
numbers = np.random.default_rng(0).random(200_000)
samples = []
for _ in range({CALLS}):
    start = time.perf_counter()
    np.sort(numbers)
    samples.append(time.perf_counter() - start)
print(json.dumps(samples))
"""


@fwbench.benchmark("noop", lanes=["noop"])
def test_empty_step(fwbench_measure):
    """A round of nothing: what the harness adds to every other round."""
    fwbench_measure()


@fwbench.benchmark("resnet50", modes=["dispatch"], lanes=["jax"])
def test_dispatch(fwbench_measure):
    """A call of a program that takes ResNet-50's weights and computes nothing: JAX's price of a call."""
    fwbench_measure()


@fwbench.benchmark("noop", modes=["fixed"], lanes=["noop"])
def test_fixed_step_against_bare_loop(fwbench_workload, fwbench_measure, fwbench_session, benchmark):
    """The latency that a worker reports for a fixed step, over that of a bare loop in a script, taking turns."""
    # Rounds alone, without the windows that energy and throughput would wait for.
    protocol = dataclasses.replace(
        fwbench_session.selection.protocol, min_rounds=CALLS, max_time=0.0, throughput_time=0.0, energy_time=0.0
    )
    ratios = []
    for _ in range(0 if benchmark.disabled or protocol.programs else PAIRS):
        bare = statistics.median(run_bare_loop())
        ours = fwbench_session.run(fwbench_workload, protocol)
        ratios.append(statistics.median(ours.samples) / bare)
    fwbench_measure()
    if ratios:
        ratio = Metric(statistics.median(ratios), f"median of {PAIRS} alternating pairs, {CALLS} calls each")
        benchmark.extra_info["metrics"]["bare_loop_ratio"] = ratio.to_json("bare_loop_ratio")


def run_bare_loop() -> list[float]:
    here = machine()
    output = subprocess.run(
        [sys.executable, "-c", BARE_LOOP, json.dumps(here.cpus)],
        env=environment({}, here.threads, "cpu", LANES["noop"]),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    return json.loads(output)
