"""Settings that a network's own code changes: the record says what was in force after the last call."""

import contextlib
import dataclasses
import os
import sys

import pytest

import fwbench
from fwbench.compare.cases import by_workload, cases
from fwbench.compare.parity import OTHER_SETTINGS, apart, comparable_lanes
from fwbench.machine import machine
from fwbench.models.project import Project
from fwbench.record.lanes import LANES
from fwbench.record.measurement import CHANGED
from fwbench.record.workload import Workload
from fwbench.report.summary import cautions
from fwbench.worker.client.workers import Workers
from fwbench.worker.process import witness
from tests.tensorflow import TENSORFLOW, XLA
from tests.unit.faults.projects import PACKAGE, mine
from tests.unit.plain.plain_lane import LANE
from tests.unit.recorded import measured
from tests.unit.shared import UNTIMED
from tests.unit.suites import commit

KIND = "settings that the network changes"

__all__ = ["mine"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")

HERE = dataclasses.replace(machine(), device="cpu")
# The second of two CPUs, or the only one.
LAST = HERE.cpus[-1]


def measure(folder, *networks, lane=LANE.name, **threads):
    """The measurement of each network, in processes of one server."""
    project = Project(folder, (folder,))
    models = [
        fwbench.Model(f"mine{number}", **{LANES[lane].framework: network}, inputs=fwbench.normal(4))
        for number, network in enumerate(networks)
    ]
    project.add(models)
    asked = [Workload(lane, model.name, batch_size=2) for model in models]
    with contextlib.closing(Workers(dataclasses.replace(HERE, **threads), "cpu", {}, project)) as workers:
        found = [workers.measure(workload, UNTIMED, lambda stage: None) for workload in asked]
    assert [each.failure for each in found if each.failure] == []
    return found


# What a network does to its process, the setting that changes, and its value then.
STATEMENTS = [
    ("os.environ['OMP_NUM_THREADS'] = '1'", "OMP_NUM_THREADS", "1"),
    ("os.environ.pop('OMP_NUM_THREADS')", "OMP_NUM_THREADS", None),
    ("os.nice(3)", "niceness", os.nice(0) + 3),
]
# A process on the only CPU can have no fewer.
if len(HERE.cpus) > 1:
    STATEMENTS.append((f"os.sched_setaffinity(0, [{LAST}])", "cpus", [LAST]))
PLACED = [(place, *each) for place in ("constructor", "call") for each in STATEMENTS]
# Once, as it takes seconds to import PyTorch.
PLACED.append(("call", "__import__('torch').set_flush_denormal(True)", "denormal numbers", "flushed to zero"))


def test_what_surrounds_a_process_is_read_after_its_last_call(mine, monkeypatch, fault):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    networks = ["net:Net"]
    for number, (place, statement, _, _) in enumerate(PLACED):
        networks.append(f"net{number}:Net")
        if place == "call":
            mine.edits(statement, more="import os")
        else:
            mine.edits(more=f"import os\n{statement}")
        (mine.path / "net.py").rename(mine.path / f"net{number}.py")
    mine.edits()
    unchanged, *changed = measure(mine.path, *networks, threads=2)
    assert not {CHANGED, "caution"} & unchanged.settings.keys()
    for found, (place, statement, name, value) in zip(changed, PLACED, strict=True):
        assert (found.settings[name], found.settings[CHANGED]) == (value, [name])
        said = found.settings["caution"]
        assert name in said
        fault(KIND, f"{statement} in the network's {place}", said)


# What is made of it


def test_a_lane_whose_threads_have_changed_is_compared_with_no_other(fault):
    """Its record says so in the settings, and the report in a sentence."""
    before, after = {"num_threads": 2}, {"num_threads": 1}
    own = witness.changed(before, after, "the caution that it had anyhow")
    assert own["num_threads"] == 1
    assert own["caution"].startswith("the caution that it had anyhow; ")
    assert witness.changed(before, before, "a caution") == {}
    given = [measured("torch", settings=own), measured("jax", throughput=90.0)]
    (lanes,) = by_workload(cases(given)).values()
    assert apart(*lanes.values()) == OTHER_SETTINGS
    assert [*comparable_lanes(lanes)] == ["torch"]
    said = next(line for line in cautions(given) if "num_threads" in line)
    alike = [measured("torch", settings=own), measured("jax", throughput=90.0, settings=own)]
    (lanes,) = by_workload(cases(alike)).values()
    assert [*comparable_lanes(lanes)] == ["torch", "jax"]
    fault(KIND, "a lane whose network has changed its threads stands beside one that has not", said)


@pytest.mark.slow
def test_a_duet_says_which_side_has_changed_settings(mine, fault):
    commit(mine.path)
    mine.edits(more="import os\nos.environ['OMP_NUM_THREADS'] = '1'")
    result = mine.run("--fwbench-against=HEAD", "--fwbench-threads=2", "-k", "b1")
    said = next(line for line in result.outlines if "has changed OMP_NUM_THREADS" in line)
    assert said.startswith("plain-mine-inference-b1, head: ")
    assert not any("base: the network" in line for line in result.outlines)
    fault(KIND, "the head of a duet sets OMP_NUM_THREADS where it is imported, and base does not", said)


# Frameworks

TORCH = """
import os
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        CONSTRUCTOR

    def forward(self, x):
        FORWARD
        return super().forward(x)
"""
JAX = """
import os
import jax
from flax import nnx

class Net(nnx.Linear):
    def __init__(self, rngs):
        super().__init__(4, 4, rngs=rngs)
        CONSTRUCTOR

    def __call__(self, x):
        FORWARD
        return super().__call__(x)
"""
KERAS = """
import os
import keras
import tensorflow as tf

def net():
    CONSTRUCTOR
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
"""


def network(folder, number, lane, constructor, forward):
    source, name = {"torch": (TORCH, "Net"), "jax": (JAX, "Net"), "tensorflow": (KERAS, "net")}[LANES[lane].framework]
    text = source.replace("CONSTRUCTOR", constructor).replace("FORWARD", forward)
    (folder / f"own{number}.py").write_text(text)
    return f"own{number}:{name}"


# By lane: what the constructor and the call do, and what is then changed. Without that it is whatever is told.
SET = {
    "torch": [
        ("torch.set_num_threads(1)", "pass", {"num_threads": 1}),
        ("pass", "torch.set_num_threads(1)", {"num_threads": 1}),
        (
            "torch.get_num_interop_threads() == 3 or torch.set_num_interop_threads(3)",
            "pass",
            {"num_interop_threads": 3},
        ),
        ("torch.backends.mkldnn.enabled = False", "pass", {"backends.mkldnn.enabled": False}),
        ("pass", "torch.set_float32_matmul_precision('high')", {"float32_matmul_precision": "high"}),
        ("torch.use_deterministic_algorithms(True)", "pass", {"deterministic_algorithms": True}),
        ("torch.autograd.set_detect_anomaly(True)", "pass", {"anomaly_detection": True}),
        ("pass", "torch.set_default_dtype(torch.float64)", {"default_dtype": "torch.float64"}),
    ],
    "torch-compile": [("torch.set_num_threads(1)", "pass", {"num_threads": 1})],
    "jax": [
        ("jax.config.update('jax_enable_x64', True)", "pass", {"jax_enable_x64": True}),
        (
            "pass",
            "jax.config.update('jax_default_matmul_precision', 'bfloat16')",
            {"jax_default_matmul_precision": "bfloat16"},
        ),
        ("os.environ['XLA_FLAGS'] = '--xla_cpu_multi_thread_eigen=false'", "pass", None),
    ],
    "tensorflow": [
        ("tf.config.optimizer.set_jit(True)", "pass", {"optimizer.jit": "autoclustering"}),
        ("tf.config.threading.set_intra_op_parallelism_threads(1)", "pass", None),
        ("keras.config.set_floatx('float64')", "pass", {"floatx": "float64"}),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("lane", [TENSORFLOW if lane == "tensorflow" else lane for lane in SET])
def test_what_a_framework_is_set_to_is_read_after_the_last_call(tmp_path, fault, lane):
    statements = [(constructor, forward) for constructor, forward, _ in SET[lane]]
    networks = [network(tmp_path, number, lane, *each) for number, each in enumerate(statements)]
    records = measure(tmp_path, *networks, lane=lane, threads=2)
    for found, (constructor, forward, expected) in zip(records, SET[lane], strict=True):
        changed = expected or {name: found.settings[name] for name in found.settings[CHANGED]}
        assert set(changed) <= set(found.settings[CHANGED])
        assert {name: found.settings[name] for name in changed} == changed
        said = found.settings["caution"]
        statement, place = (constructor, "constructor") if forward == "pass" else (forward, "call")
        fault(KIND, f"{statement} in the {place} of a network of {lane}'s", said)


@pytest.mark.parametrize("precisions", [["fp32"], pytest.param(["fp64", "bf16"], marks=pytest.mark.slow)], ids="-".join)
@pytest.mark.parametrize(
    "lane",
    [
        "torch",
        "jax",
        TENSORFLOW,
        pytest.param("torch-compile", marks=pytest.mark.slow),
        pytest.param(*XLA.values, marks=[*XLA.marks, pytest.mark.slow]),
    ],
)
def test_a_lane_itself_changes_no_setting_that_it_does_not_state(monkeypatch, lane, precisions):
    asked = [
        Workload(lane, "mlp", mode, 2, precision=precision)
        for precision in precisions
        for mode in (("inference", "train_step") if precision == "fp32" else ("train_step",))
    ]
    with contextlib.closing(Workers(HERE, "cpu", {}, Project(PACKAGE.parent, ()))) as workers:
        job = workers.job
        # Ceilings are measured in the first mode alone: the lane's libraries reach the same in another.
        monkeypatch.setattr(
            workers,
            "job",
            lambda workload, *given: (
                job(workload, *given) | ({"facts": None} if workload.mode != asked[0].mode else {})
            ),
        )
        found = [workers.measure(workload, UNTIMED, lambda stage: None) for workload in asked]
    for each in found:
        assert each.failure is None or each.failure.kind == "unavailable"
        assert CHANGED not in each.settings
