"""Records as a run leaves them, small enough to be read in a test."""

import dataclasses
import json

import numpy as np

from fwbench.machine import Machine
from fwbench.record.journal import ROUND, SCHEMA
from fwbench.record.measurement import Failure, Measurement, Metric, unavailable
from fwbench.record.rounds import PlayedRound
from fwbench.record.sketch import Sketch
from fwbench.record.workload import Workload

MACHINE = Machine("cpu", "no GPU", None, None, "Some CPU", (0, 1), 2, 2**34, "Linux 6.1")
QUICK = {"profile": "quick", "min_rounds": 5}


def outputs(size=1.0, **fields):
    """What a side of a duet computes: one number."""
    one = np.full(1, size, np.float32)
    sketch = Sketch(("output",), one[None], one, one / 2**20)
    return {"weights": "abc", "numbers": 1, "check": {"output": sketch.to_json()}, **fields}


# All lanes compute this.
CHECK = outputs()["check"]


def measured(lane="torch", model="mlp", mode="inference", batch_size=1, throughput=100.0, **fields):
    """A measurement of three samples; keywords that are a workload's go there."""
    own = {name: fields.pop(name) for name in list(fields) if name in Workload.__dataclass_fields__}
    metrics = {
        "throughput": Metric(throughput, "24 calls, one wait every 24"),
        "energy_per_sample": unavailable("energy counter", "no counter here"),
        **fields.pop("metrics", {}),
    }
    samples = fields.pop("samples", (0.25, 0.125, 0.5))
    fields.setdefault("parity", {"weights": "abc", "proof": proof(lane), "check": CHECK})
    return Measurement(
        Workload(lane, model, mode, batch_size, **own), samples, metrics, fields.pop("protocol", QUICK), **fields
    )


def proof(lane, state="", **fields):
    """What a record says of its lane's proof: by default PyTorch is the reference, a program that another compiler
    makes has none, and all else is proved."""
    framework = lane.removesuffix("-compile").removesuffix("-xla")
    errors = {} if framework == "torch" else {"errors": {"output": 1e-14, "gradients": 1e-12}}
    usual = "derived" if lane != framework else "proved" if errors else "reference"
    return {"framework": framework, "state": state or usual, **errors, **fields}


def metric(value, source="a test"):
    """A metric that has a value."""
    return Metric(value, source)


def fitted(lane="torch", seed=0, epochs=(9.0, 4.0, 5.0), model="mlp", data="digits", scale=1.0, **fields):
    """A training of so many seconds an epoch, whose losses fall from `scale` on."""
    values = {
        "first_epoch_time": epochs[0],
        "epoch_time": sorted(epochs[1:])[len(epochs) // 2 - 1],
        "train_loss": scale / len(epochs),
        "validation_top1": 0.5,
    }
    records = [
        {
            "seconds": seconds,
            "training": seconds,
            "waiting": 0.5,
            "computing": seconds - 1.0,
            "evaluating": 0.5,
            "samples": 64,
            "train_loss": scale / number,
            "train_top1": 0.25,
            "validation": {"loss": 1.0, "top1": 1 - scale / (number + 1), "top5": 1.0},
            "energy": None,
        }
        for number, seconds in enumerate(epochs, 1)
    ]
    training = {"epochs": records, "losses": [scale, scale / 2, scale / 3], "accuracies": [0.25, 0.5, 0.75]}
    return measured(
        lane,
        model,
        "fit",
        64,
        seed=seed,
        data=data,
        epochs=len(epochs),
        samples=tuple(epochs),
        training=training,
        metrics={name: metric(value) for name, value in values.items()},
        **fields,
    )


def failed(kind="crashed", message="killed by SIGKILL", lane="jax", model="mlp", mode="inference", batch_size=1):
    return Measurement(
        Workload(lane, model, mode, batch_size), protocol=QUICK, failure=Failure(kind, message, "latency")
    )


def rounds(*measurements):
    """The rounds in which they took their turns, as JSON primitives."""
    played = {}
    for m in measurements:
        for turns in m.turns:
            workload = dataclasses.replace(m.workload, lane="")
            new = PlayedRound(workload, turns["begun"], {}, turns.get("pace", 0.0))
            of_lanes = played.setdefault((workload, turns["begun"]), new).turns
            of_lanes[m.workload.lane] = {name: values for name, values in turns.items() if isinstance(values, list)}
    return [each.to_json() for each in played.values()]


def saved(*measurements, machine=MACHINE, versions=None, data=True, **top):
    """What pytest-benchmark saves of them, as JSON primitives; failures where the plugin puts them."""
    benchmarks = []
    for m in measurements:
        if m.failure:
            continue
        extra = m.to_json()
        samples = list(extra.pop("samples"))
        del extra["failure"]
        stats = {"median": sorted(samples)[len(samples) // 2], "rounds": len(samples), "mean": 1.0, "stddev": 0.0}
        benchmarks.append(
            {
                "name": f"test[{m.workload.id}]",
                "fullname": f"tests/x.py::test[{m.workload.id}]",
                "group": None,
                "extra_info": extra,
                "stats": {**stats, "data": samples} if data else stats,
            }
        )
    record = {
        "machine_info": {"node": "vm", "fwbench": {**machine.to_json(), "versions": versions or {}}},
        "commit_info": {"id": "f00d", "branch": "main", "dirty": False},
        "benchmarks": benchmarks,
        "datetime": "2026-11-21T09:10:10.493063+00:00",
        "version": "5.3.1",
        "fwbench": {
            "schema": SCHEMA,
            "failures": [m.to_json() for m in measurements if m.failure],
            "rounds": rounds(*measurements),
        },
        **top,
    }
    return json.loads(json.dumps(record))


def plain(name="tests/y.py::test_sort", **stats):
    """A benchmark of somebody's own function."""
    numbers = {"median": 0.002, "mean": 0.0021, "stddev": 0.0001, "rounds": 2, "data": [0.002, 0.0022], **stats}
    return {"name": name.rpartition(":")[2], "fullname": name, "group": "sorting", "extra_info": {}, "stats": numbers}


def write(path, record):
    """A record as a file; a list is a journal's lines."""
    lines = record if isinstance(record, list) else [record]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def journal(*measurements, machine=MACHINE, **header):
    """A journal's lines."""
    first = {
        "schema": SCHEMA,
        "started": "2026-11-21T09:05:35+00:00",
        "profile": "quick",
        "machine": machine.to_json(),
        **header,
    }
    return json.loads(
        json.dumps([first, *(m.to_json() for m in measurements), *({ROUND: each} for each in rounds(*measurements))])
    )
