"""What a measurement compiles, the processes that take turns later load."""

import contextlib
import dataclasses
import re
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
from fwbench.worker.turns import rounds
from fwbench.worker.turns.lanes import Lanes, Round
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import Side

MODEL = Workload("jax", "mlp", "train_step", 2)


def programs(folder):
    return sorted(path.name for path in folder.glob("jax/*-cache"))


class Keeping(Workers):
    """Keeps what compilers make on a CPU, too, where no other process compiles for it."""

    def _loads(self, *given):
        return False

    def job(self, workload, protocol):
        return {**super().job(workload, protocol), "keep": True}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize(
    "workload",
    [MODEL, Workload("torch-compile", "mlp", "inference", 2)],
    ids=lambda workload: workload.lane,
)
def test_a_later_run_loads_the_same_program(workload, tmp_path):
    quick, made = PROFILES["quick"], []
    for run in ("first", "second"):
        given = {"compiled": tmp_path / run, "facts": tmp_path / "facts"}
        with contextlib.closing(Keeping(machine(), "cpu", {}, Project(Path(), ()), **given)) as workers:
            made.append(workers.measure(workload, quick, lambda stage: None))
    first, second = made
    assert [each.failure for each in made] == [None, None]
    assert ("compile" in first.stages, "load" in first.stages) == (True, False)
    assert ("compile" in second.stages, "load" in second.stages) == (False, True)
    assert second.program == first.program
    assert second.settings == first.settings
    assert second.sources == first.sources
    assert second.parity["check"] == first.parity["check"]
    assert second.value("compile_time") == first.value("compile_time")
    # The second run has not compiled the program: its files are those that the first one wrote. Beside other load it
    # measures the ceilings again, whose programs are others.
    pattern = "*step*-cache" if workload.lane == "jax" else "*.so"
    own = [
        {path.name: path.stat().st_mtime_ns for path in (tmp_path / run).rglob(pattern)} for run in ("first", "second")
    ]
    assert own[1]
    assert own[1].items() <= own[0].items()


@pytest.mark.slow
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
            assert not server._made.exists()
            # The server empties its jobs' folder at a moment of its own.
            (jobs,) = re.findall(r"\0TMPDIR=([^\0]+)", Path(f"/proc/{server.channel._process.pid}/environ").read_text())
            assert not server._made.is_relative_to(jobs)
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("cold", [[], [MODEL]], ids=["shared", "cold"])
def test_a_warm_start_loads_what_the_first_process_has_compiled(tmp_path, monkeypatch, cold):
    """With the first one's compiling timed or not."""
    start_again, seen = rounds._start_again, []

    def watched(partner, job):
        folder = Path(partner._caches["JAX_COMPILATION_CACHE_DIR"]).parent
        before = programs(folder)
        seconds = start_again(partner, job)
        seen.append((before, programs(folder), seconds))
        return seconds

    monkeypatch.setattr(rounds, "_start_again", watched)
    monkeypatch.setattr(Pairs, "amounts", dataclasses.replace(Pairs.amounts, placings=1, blocks=1))
    sides = [Side(name, name, PACKAGE, tmp_path / "caches", PACKAGE.parent) for name in ("base", "head")]
    played = Pairs(*sides, CATALOG, machine(), "cpu", 600.0, cold=cold, warm=[MODEL])
    pair = played.play([MODEL])[MODEL]
    assert [any("step" in name for name in before) for before, _, _ in seen] == [True, True]
    assert [after for _, after, _ in seen] == [before for before, _, _ in seen]
    values = [pair.values[side] for side in ("base", "head")]
    assert sorted(value["warm_start"] for value in values) == sorted(seconds for _, _, seconds in seen)
    assert all(("compile_time" in value) == bool(cold) for value in values)
    assert "warm_start" in pair.differences
