"""A run that is spread by a real Ray on this machine, over two accelerators that it only pretends to have."""

import os
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from fwbench.record.reading import read
from tests.unit.processes import descendants, gone, started_with
from tests.unit.suites import suite  # noqa: F401

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not find_spec("ray"), reason="reads /proc, and starts Ray")

PACKAGE = Path(__file__).parents[1]

# Each benchmark takes a second or two, in which a process can be killed.
SUITE = """
import os
import fwbench

@fwbench.benchmark("noop", modes=["fixed"], lanes=["noop"], batch_sizes=[1, 2, 3, 4])
def test_noop(fwbench_measure):
    fwbench_measure()
"""


def workers(run):
    """The processes that Ray has started for a run and that measure, each with its command line."""
    commands = {}
    for pid in descendants(run.pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue
        if words.startswith(b"ray::RaySlot.measure"):
            commands[pid] = words
    return commands


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The package, as an editable installation leaves it."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    told = tmp_path / "site" / "fwbench_ray-0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    ((group, points),) = project["entry-points"].items()
    (told / "entry_points.txt").write_text(
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items())])
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(PACKAGE), str(told.parent)]))


@pytest.mark.slow
def test_two_pretended_accelerators_and_a_worker_that_is_killed(suite, installed, tmp_path, monkeypatch):  # noqa: F811
    """Nothing is lost, never do two measure on one device, all stays on this machine, and nothing is left."""
    if os.cpu_count() < 2:
        pytest.skip("two accelerators need two cores")
    suite.makepyfile(test_suite=SUITE)
    # Of Ray's own: what a machine is said to have.
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"fwbench_cpu": 2}')
    # And not to have.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("FWBENCH_TEST_RAY", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    options = "--fwbench-workers=ray --fwbench-set=patience=0 --benchmark-max-time=1 --fwbench-profile=ci"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--benchmark-only",
        "--benchmark-json=run.json",
        *options.split(),
    ]
    run = subprocess.Popen(command, cwd=suite.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while not (processes := workers(run)) and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    victim = min(processes)
    everybody = descendants(run.pid)
    os.kill(victim, 9)
    said, _ = run.communicate(timeout=180)
    assert run.returncode == 0, said
    assert "4 passed" in said
    assert "2 accelerators measure at the same time, through Ray" in said
    record = read(suite.path / "run.json")
    lost = [m for m in record.measurements if m.node.lost]
    assert len(record.measurements) == 4
    assert len(lost) == 1
    assert f"{lost[0].workload.id}: lost with its process on" in said
    # Of each accelerator the benchmarks' CPUs are its own.
    assert {tuple(m.settings["cpus"]) for m in record.measurements} == {(0,), (1,)}
    for m in record.measurements:
        assert m.node.accelerator == f"CPUs {m.settings['cpus'][0]}"
        assert m.node.accelerators == 2
    assert gone(everybody)
    assert not started_with(f"FWBENCH_TEST_RAY={tmp_path}")
    assert not (tmp_path / ".ray").exists()
