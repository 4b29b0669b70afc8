"""Networks that raise what ends processes: each costs its own benchmark, and is told as what it is."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fwbench
from fwbench.frameworks.faults import faults
from fwbench.machine import machine
from fwbench.models import ModelError
from fwbench.models.importing import load
from fwbench.models.project import Project
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.client.workers import Workers
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import sides
from tests.unit.plain.plain_lane import LANE
from tests.unit.processes import as_in_a_terminal
from tests.unit.shared import ALONE, UNTIMED, finish, needs

KIND = "exceptions that end processes"
PLAIN = Path(__file__).parents[1] / "plain"
RAISED = ("KeyboardInterrupt", "SystemExit: 0", "SystemExit: done", "GeneratorExit", "CancelledError", "Leave: now")
WHEN = ("built", "called", "called again")
# As in tests/unit/plain/faults.py.
RAISING = {
    (raised, when): f"Raises{number}{when.title().replace(' ', '')}"
    for number, raised in enumerate(RAISED)
    for when in WHEN
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raised")
    made = Project(folder, ())
    names = (*RAISING.values(), "Interrupted", "Net")
    made.add([fwbench.Model(name, plain=f"faults:{name}", inputs=fwbench.normal(2)) for name in names])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (PLAIN, PACKAGE.parent))))
        patch.setenv("FAULT_COMES", str(folder / "comes"))
        yield made


@pytest.fixture(scope="module")
def workers(project):
    """One server for all networks, as no fault may harm the next."""
    # A script that runs these tests in its background has it ignored, and a worker inherits that.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.closing(Workers(machine(), "cpu", {}, project)) as found:
        yield found
    signal.signal(signal.SIGINT, previous)


@pytest.fixture(autouse=True)
def lane(monkeypatch):
    monkeypatch.setitem(LANES._all, LANE.name, LANE)


def measure(workers, name):
    return workers.measure(Workload(LANE.name, name), UNTIMED, lambda stage: None)


def told(failure, raised):
    """What a failure tells of a network that has raised this."""
    assert failure.kind == "error"
    assert f"the network raised {raised}" in failure.message
    assert "faults.py" in failure.message
    return failure.message


@pytest.mark.parametrize(("raised", "when"), RAISING)
def test_what_a_network_raises_is_one_failure(workers, fault, raised, when):
    said = told(measure(workers, RAISING[raised, when]).failure, raised)
    fault(KIND, f"{raised} when {when}", said)


def test_a_true_sigint_to_a_worker_is_told_as_that(workers, fault):
    failure = measure(workers, "Interrupted").failure
    assert measure(workers, "Net").failure is None
    assert (failure.kind, failure.signal) == ("crashed", signal.SIGINT)
    fault(KIND, "SIGINT is sent to a worker", failure.message)


def test_the_sides_of_a_duet_tell_it_too(project, fault):
    """Each pair after the others, with the same servers."""
    asked = {
        (raised, when): Workload(LANE.name, RAISING[raised, when])
        for raised in ("KeyboardInterrupt", "SystemExit: 0")
        for when in WHEN
    }
    with sides(sys.executable, project, {}) as both:
        found = Pairs(*both, project.models, machine(), "cpu", 60.0, seed=0).play([*asked.values()])
    for (raised, when), workload in asked.items():
        fault(KIND, f"{raised} in a duet, when {when}", told(found[workload].failure, raised))


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit(0)", "GeneratorExit", "SystemExit('bye')"])
def test_a_module_that_ends_its_process_is_one_sentence(tmp_path, monkeypatch, fault, raised):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ends_here.py").write_text(f"raise {raised}\n")
    with pytest.raises(ModelError, match="importing 'ends_here' failed: ") as refused:
        load("ends_here:Net")
    with pytest.raises(ModelError, match="'mine' raised "), faults("'mine'"):
        raise eval(raised)
    fault(KIND, f"{raised} when the network's module is imported", str(refused.value))


SUITE = """
import fwbench

mine = fwbench.Model("mine", torch="mine:Net", jax="mine:jax_net", inputs=fwbench.normal(2))


@fwbench.benchmark(mine, lanes=["torch"], modes=["inference"])
def test_speed(fwbench_measure):
    fwbench_measure()
"""
NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {built}

    def forward(self, x):
        {called}
        return 2 * x
"""


def variables():
    """The environment of a run of pytest's own, in which fwbench's plugin is."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**own, "PYTHONPATH": str(PACKAGE.parent), "PYTEST_PLUGINS": "fwbench.plugin"}


@pytest.mark.slow
@needs("proofs")
@pytest.mark.parametrize("when", ["built", "called"])
@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit(0)"])
def test_a_run_and_a_proof_tell_it(tmp_path, fault, raised, when):
    (tmp_path / "conftest.py").touch()
    (tmp_path / "test_mine.py").write_text(SUITE)
    code = {name: f"raise {raised}" if name == when else "pass" for name in ("built", "called")}
    (tmp_path / "mine.py").write_text(NETWORK.format(**code) + "\n\ndef jax_net(x):\n    return 2 * x\n")
    for command in (["pytest", *ALONE, "--benchmark-only"], ["fwbench", "prove", "mine"]):
        done = finish(sys.executable, "-m", *command, cwd=tmp_path, env=variables(), timeout=500)
        output = done.stdout + done.stderr
        assert done.returncode == (1 if command[0] == "pytest" else 4), output
        told = next(line for line in output.splitlines() if raised.partition("(")[0] in line and "mine" in line)
        assert "mine.py" in told
        fault(KIND, f"{raised} when {when}, by `{command[0]}`", told)


@pytest.mark.slow
def test_ctrl_c_still_ends_a_run(tmp_path):
    (tmp_path / "conftest.py").touch()
    (tmp_path / "test_mine.py").write_text(SUITE)
    called = "open('comes', 'w'); import time; time.sleep(3600)"
    (tmp_path / "mine.py").write_text(NETWORK.format(built="pass", called=called))
    command = [sys.executable, "-m", "pytest", *ALONE, "--benchmark-only"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=variables(),
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=as_in_a_terminal,
        text=True,
    ) as run:
        while not (tmp_path / "comes").exists():
            assert run.poll() is None
            time.sleep(0.1)
        os.killpg(run.pid, signal.SIGINT)
        output = run.communicate(timeout=120)[0]
    assert run.returncode == 2
    assert "KeyboardInterrupt" in output
