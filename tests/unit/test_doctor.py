"""`fwbench doctor` and `fwbench list`, on machines made up for the purpose."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fwbench.commands import doctor
from fwbench.commands.cli import main
from fwbench.commands.list import listing
from fwbench.machine import nvml
from fwbench.meters.epochs import Epoch, fitting
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.metrics import METRICS
from fwbench.record.workload import Workload
from fwbench.suite.studies import STUDIES
from fwbench.worker.run import Measuring
from tests.unit.fakes import FakeFramework, FakeProgram
from tests.unit.recorded import MACHINE


class Gpu(nvml.Gpu):
    """A GPU in whatever state a test is about."""

    def state(self):
        return self.handle


def gpu(power_limit=700.0, **state):
    calm = {
        "persistent": True,
        "clock": 1980.0,
        "most_clock": 1980.0,
        "default_power_limit": 700.0,
        "processes": 0,
        **state,
    }
    return Gpu(nvml.State(**calm), "H100", "GPU-1", "580.1", 80 * 2**30, power_limit)


def examined(tmp_path, environment=(), found="no GPU here", meter="no counter"):
    findings = doctor.examine(
        MACHINE, dict(environment), tmp_path, lambda _: None, found, lambda device: f"{meter}" if meter else object()
    )
    return {finding.subject: finding for finding in findings}


def test_every_finding_that_is_not_good_has_a_next_step(tmp_path):
    for found in ("no GPU here", gpu(500.0, persistent=False, processes=3)):
        for finding in examined(tmp_path, {"XLA_FLAGS": "--x"}, found).values():
            assert (finding.level == "good") == (finding.next_step == ""), finding


def test_a_gpus_state_becomes_findings(tmp_path):
    calm = examined(tmp_path, found=gpu())
    assert {calm[name].level for name in ("GPU", "persistence", "power limit")} == {"good"}
    assert "GPU load" not in calm
    worse = examined(tmp_path, found=gpu(500.0, persistent=False, processes=3))
    assert worse["persistence"].next_step == "`sudo nvidia-smi -pm 1`"
    assert (worse["power limit"].level, worse["power limit"].found) == ("better", "500 W of 700 W by default")
    assert worse["GPU load"].found.startswith("3 other processes")


def test_what_the_driver_does_not_tell_is_no_finding(tmp_path):
    silent = gpu(None, persistent=None, clock=None, default_power_limit=None)
    assert not {"persistence", "GPU clock", "power limit"} & examined(tmp_path, found=silent).keys()


def test_a_counter_that_needs_root_says_how_to_open_it(tmp_path):
    assert "chmod" in examined(tmp_path, meter="reading energy_uj needs root")["energy"].next_step


@pytest.mark.parametrize(
    ("governors", "level"), [(["performance"] * 2, "good"), (["performance", "powersave"], "better")]
)
def test_the_governor_of_every_cpu_counts(tmp_path, governors, level):
    for number, governor in enumerate(governors):
        folder = tmp_path / f"devices/system/cpu/cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    assert examined(tmp_path)["CPU governor"].level == level


@pytest.mark.parametrize(
    ("path", "content", "level"),
    [
        ("intel_pstate/no_turbo", "0", "better"),
        ("intel_pstate/no_turbo", "1", "good"),
        ("cpufreq/boost", "1", "better"),
    ],
)
def test_boost(tmp_path, path, content, level):
    switch = tmp_path / "devices/system/cpu" / path
    switch.parent.mkdir(parents=True)
    switch.write_text(content)
    assert examined(tmp_path)["CPU boost"].level == level


def test_variables_that_change_what_is_measured_are_named(tmp_path):
    found = examined(tmp_path, {"XLA_FLAGS": "--x", "MALLOC_ARENA_MAX": "1", "HOME": "/"})["environment"]
    assert found.found.startswith("MALLOC_ARENA_MAX, XLA_FLAGS set")
    assert "environment" not in examined(tmp_path, {"JAX_COMPILATION_CACHE_DIR": "/x"})


def test_one_framework_is_enough_and_none_is_not(tmp_path, monkeypatch):
    def only(*installed):
        monkeypatch.setattr(doctor, "versions", lambda names: {name: "1" for name in names if name in installed})
        return {name: examined(tmp_path)[name].level for name in ("torch", "jax")}

    assert only("torch", "torchvision") == {"torch": "good", "jax": "better"}
    assert only("jax") == {"torch": "missing", "jax": "missing"}


def test_the_exit_code_says_whether_measuring_is_possible(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_WATCHED", 0.0)
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["possible"] is True
    monkeypatch.setattr(doctor, "versions", lambda names: {})
    assert main(["doctor"]) == 1
    assert "pip install" in capsys.readouterr().out


def test_the_list_names_all_there_is(capsys):
    assert main(["list", "--json"]) == 0
    everything = json.loads(capsys.readouterr().out)
    names = {kind: [row["name"] for row in rows] for kind, rows in everything.items()}
    assert names["models"] == [name for name in CATALOG if name != "noop"]
    assert names["lanes"] == [name for name, lane in LANES.items() if not lane.internal]
    assert names["studies"] == list(STUDIES)
    assert names["frameworks"] == ["torch", "jax"]
    assert {row["name"]: row["unit"] for row in everything["metrics"]}["latency_p50"] == "s"
    assert main(["list"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for rows in names.values() for name in rows)


def test_the_list_is_plain_data():
    assert json.loads(json.dumps(listing())) == listing()


def test_every_metric_that_is_made_is_listed_and_no_other(clock, protocol):
    measuring = Measuring(Workload("noop", "noop"), LANES["noop"], CATALOG["noop"], protocol, lambda _: None, clock)
    measuring._measure_program(FakeFramework(), FakeProgram(clock))
    epoch = Epoch(3.0, 2.0, 0.5, 1.5, 1.0, 64, 0.1, 0.9, SimpleNamespace(loss=0.1, top1=0.9, top5=1.0), None)
    made = measuring.metrics | fitting([epoch, epoch], None, "no counter")
    # A duet makes the one, a benchmark of the harness the other.
    assert {*made, "cpu_time", "bare_loop_ratio"} == set(METRICS)


@pytest.mark.parametrize("command", ["list", "doctor"])
def test_no_framework_is_imported(command, tmp_path):
    code = (
        f"import sys; from fwbench.commands.cli import main; main(['{command}'])\n"
        "print({'torch', 'jax', 'tensorflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr
