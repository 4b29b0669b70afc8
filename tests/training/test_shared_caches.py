"""What a measurement compiles, the processes that take turns later load."""

import contextlib
import sys
from pathlib import Path

import pytest

from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.models.project import Project
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.client.workers import Workers
from fwbench.worker.turns.lanes import Lanes, Round
from fwbench.worker.turns.sides import Side

MODEL = Workload("jax", "mlp", "train_step", 2)


def programs(folder):
    return sorted(path.name for path in folder.glob("jax/*-cache"))


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_each_measurement_compiles_and_rounds_load(tmp_path):
    caches = tmp_path / "caches"
    workers = Workers(machine(), "cpu", {}, Project(Path(), ()), compiled=caches)
    tell, quick = (lambda stage: None), PROFILES["quick"]
    made = []
    with contextlib.closing(workers):
        for _ in range(2):
            made.append(workers.measure(MODEL, quick, tell))
            server = workers._servers["jax"]
            assert not (server._caches.path / "compiled").exists()
            # The server empties its jobs' folder at a moment of its own.
            assert not server._caches.path.is_relative_to(server._scratch.path)
    assert [each.failure for each in made] == [None, None]
    compiled = programs(caches)
    assert compiled
    assert made[0].settings.keys() == made[1].settings.keys()
    assert not any(name.startswith("JAX_ENABLE_COMPILATION_CACHE") for name in made[0].settings)
    here = Side("here", "this run", PACKAGE, caches, PACKAGE.parent)
    turns = Workload("", MODEL.model, MODEL.mode, MODEL.batch_size)
    played = Lanes(here, {turns: ["jax"]}, CATALOG, machine(), "cpu", 600.0).play([turns])[turns]
    assert isinstance(played, Round)
    assert len(played.values["jax"]["call"]) > 4
    # The program itself; what lays it elsewhere in memory is the rounds' own.
    assert any("step" in name for name in compiled)
    assert not any("step" in name for name in programs(caches) if name not in compiled)
