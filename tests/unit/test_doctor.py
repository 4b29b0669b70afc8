"""`fwbench doctor` and `fwbench list`, on machines made up for the purpose."""

import dataclasses
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from fwbench.commands import cli, doctor
from fwbench.commands.cli import main
from fwbench.commands.doctor import card, looks
from fwbench.commands.doctor.card import REMEDIES, Card
from fwbench.commands.doctor.findings import Finding
from fwbench.commands.doctor.looks import Looks
from fwbench.errors import Absent
from fwbench.extensions import extensions
from fwbench.machine import cuda, nvml
from fwbench.machine.facts import Facts, asked
from fwbench.meters.energy import RaplCounter, counter
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.machine import AcceleratorState
from fwbench.record.metrics import METRICS
from fwbench.record.workload import Workload
from fwbench.suite.studies import studies
from fwbench.worker.process.passes import measure_program
from fwbench.worker.process.run import Measuring
from tests.unit.fakes import FakeFramework, FakeProgram
from tests.unit.nvml import told
from tests.unit.recorded import MACHINE
from tests.unit.shared import extension, needs
from tests.unit.test_meters import make_rapl


@pytest.fixture(autouse=True)
def no_watching(monkeypatch):
    monkeypatch.setattr(looks, "_WATCHED", 0.0)


class Gpu(nvml.Gpu):
    """A GPU in whatever state a test is about."""

    def state(self):
        return self.handle


def gpu(cuda=(13, 0), **state):
    return Gpu(AcceleratorState(**state), None, "H100", "GPU-1", "580.1", cuda, 80 * 2**30)


def looked(tmp_path, **fields):
    """Findings by subject, on a machine with a sysfs in `tmp_path`."""
    absent = {"gpu": Absent("no GPU here", "find one"), "meter": Absent("no counter")}
    usual = {"machine": MACHINE, **absent, "environment": {}, "system": tmp_path, "python": (3, 13, 1)}
    return {finding.subject: finding for finding in Looks(**usual | fields).findings()}


# Of a GPU's state: the line that tells of it, its level, and a part of what it says.
STATES = {
    "calm clocks": ({}, "throttling", "good", "at 34 degrees"),
    "nobody else": ({}, "GPU load", "good", "nobody else"),
    "default compute mode": ({}, "compute mode", "good", "default"),
    "default power limit": ({}, "power limit", "good", "700 W of 700 W"),
    "power limit lowered": ({"power_limit": 500}, "power limit", "warning", "500 W of 700 W"),
    "power limit raised": ({"power_limit": 750}, "power limit", "warning", "750 W of 700 W"),
    "power capped": ({"clock_event_reasons": "0x4"}, "throttling", "warning", "power cap"),
    "too hot": (
        {"clock_event_reasons": "0x60", "temperature": 88},
        "throttling",
        "warning",
        "thermal limit, hardware thermal slowdown, at 88 degrees",
    ),
    "neighbour": (
        {"processes": f"77:{2**30} 78:na", "utilisation": 97},
        "GPU load",
        "warning",
        "process 77 (1.00 GiB), process 78 (memory not told), and it computes 97%",
    ),
    "neighbour that is not seen": ({"used_memory": 3 * 2**30}, "GPU load", "warning", "3.00 GiB are held"),
    "neighbour that is not seen and computes": (
        {"used_memory": 2**29, "utilisation": 97},
        "GPU load",
        "warning",
        "512 MiB are held by processes that are not seen, and it computes 97%",
    ),
    "a screen": (
        {"graphics": f"70:{2**28} 71:{2**27}", "used_memory": 2**29, "utilisation": 3},
        "GPU load",
        "good",
        "2 processes draw a screen",
    ),
    "a screen with a film": (
        {"graphics": f"70:{2**28} 71:{2**27}", "used_memory": 2**28, "utilisation": 40},
        "GPU load",
        "warning",
        "2 processes draw a screen, and it computes 40%",
    ),
    "little memory in use": ({"used_memory": 2**20}, "GPU load", "good", "nobody else"),
    "processes denied": ({"nvmlDeviceGetComputeRunningProcesses_v3": 4}, "GPU load", "warning", "does not tell"),
    "exclusive process": ({"compute_mode": 3}, "compute mode", "warning", "exclusive process"),
    "prohibited": ({"compute_mode": 2}, "compute mode", "bad", "prohibited"),
    "ECC off": ({"ecc": 0}, "ECC", "warning", "off"),
    "not persistent": ({"persistent": 0}, "persistence", "warning", "off"),
    "no libcuda": ({"nvmlSystemGetCudaDriverVersion_v2": 12}, "CUDA", "bad", "libcuda"),
    "MIG": ({"slices": 1}, "GPU", "good", "MIG 1g.10gb, 10.0 GiB, driver 580.95.05"),
    "MIG without a slice": ({"slices": 0}, "GPU", "warning", "(MIG), and there is none"),
}


@pytest.mark.parametrize(("state", "subject", "level", "said"), STATES.values(), ids=STATES)
def test_a_gpus_state_becomes_a_finding(nvml_stub, state, subject, level, said):
    code = """
import json
from pathlib import Path
from fwbench.commands.doctor.findings import as_json
from fwbench.commands.doctor.looks import Looks
from fwbench.machine import nvml
print(json.dumps(as_json(list(Looks(None, nvml.find(), None, {})._gpu()))))
"""
    (found,) = (each for each in told(nvml_stub(**state), code)["findings"] if each["subject"] == subject)
    assert (found["level"], said in found["found"]) == (level, True), found


def test_the_page_on_gpus_tells_what_doctor_says_of_each_state():
    page = (Path(__file__).parents[2] / "docs/gpu.md").read_text()
    for name, (_, subject, level, said) in STATES.items():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {name} | `{level}` {subject}: "))
        assert said in row


def test_doctor_runs_on_a_machine_with_a_gpu(nvml_stub):
    code = "from fwbench.commands.cli import main; main(['doctor', '--json'])"
    older = nvml_stub(processes=f"77:{2**30}", driver="570.86.15", cuda=12080)
    said = {finding["subject"]: finding["found"] for finding in told(older, code)["findings"]}
    assert said["GPU"] == "NVIDIA H100 80GB HBM3, 80.0 GiB, driver 570.86.15 for CUDA up to 12.8"
    assert "process 77 (1.00 GiB)" in said["GPU load"]
    assert "NVML" in said["energy"]


@pytest.mark.parametrize(
    ("device", "finding", "options", "begin"),
    [
        ("gpu", Finding("x", "x"), [], "doctor --check"),
        ("gpu", Finding("x", "x"), ["--check"], "pytest"),
        # What is bad must be mended first.
        ("gpu", Finding("x", "x", "mend it", bad=True), [], ""),
        ("cpu", Finding("x", "x"), [], ""),
    ],
)
def test_on_a_gpu_doctor_says_where_to_begin(monkeypatch, capsys, device, finding, options, begin):
    monkeypatch.setattr(Looks, "findings", lambda _: [finding])
    monkeypatch.setattr(doctor, "needed", lambda *_: lambda here, tell: ([], []))
    monkeypatch.setattr(doctor, "machine", lambda: dataclasses.replace(MACHINE, device=device))
    assert main(["doctor", *options]) == (finding.level == "bad")
    begun = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Begin with")]
    assert [begin in line for line in begun] == ([True] if begin else [])


def test_what_holds_the_clocks_down_has_a_remedy_each():
    assert REMEDIES.keys() == set(nvml.THROTTLE_REASONS.values())


def test_what_the_driver_does_not_tell_is_no_finding(tmp_path):
    found = looked(tmp_path, gpu=gpu()).keys()
    assert {"persistence", "compute mode", "ECC", "GPU clock", "power limit", "throttling"} & found == set()


@pytest.mark.parametrize(
    ("driver", "torch", "jax", "levels"),
    [
        ((13, 0), (13, 2), (13,), {"torch's CUDA": "good", "jax's CUDA": "good"}),
        ((14, 0), (12, 8), None, {"torch's CUDA": "good", "jax's CUDA": "warning"}),
        ((12, 8), (13, 2), (12,), {"torch's CUDA": "warning", "jax's CUDA": "good"}),
        # Nothing that is installed computes on this GPU.
        ((12, 8), (13, 2), None, {"torch's CUDA": "bad", "jax's CUDA": "bad"}),
    ],
)
def test_the_driver_is_compared_with_what_the_frameworks_are_built_for(
    tmp_path, monkeypatch, driver, torch, jax, levels
):
    monkeypatch.setattr(cuda, "builds", lambda: {"torch": torch, "jax": jax})
    monkeypatch.setattr(cuda, "_plugins", set)
    monkeypatch.setattr(card, "versions", lambda names: dict.fromkeys(names, "1.2"))
    found = looked(tmp_path, gpu=gpu(driver))
    assert {name: found[name].level for name in levels} == levels
    if driver == (12, 8):
        said = "torch 1.2 is built for CUDA 13.2, which needs driver 580 or newer; this driver is 580.1"
        assert found["torch's CUDA"].found == said
        assert found["torch's CUDA"].next_step == "update the driver, or install a build of torch for CUDA 12"
    if jax is None:
        # And of no CUDA that there is none for yet.
        assert found["jax's CUDA"].next_step == f"`pip install 'jax[cuda{min(driver[0], 13)}]'`"


def test_torch_compile_needs_a_compiler_and_headers_on_a_gpu(tmp_path, monkeypatch):
    installed = ["triton"]
    monkeypatch.setattr(cuda, "builds", dict)
    monkeypatch.setattr(card, "_HEADERS", tmp_path)
    monkeypatch.setattr(card, "versions", lambda names: {name: "1" for name in names if name in installed})

    def found(**environment):
        findings = Card(gpu(), {"PATH": str(tmp_path), **environment}, AcceleratorState()).findings()
        return [(each.level, each.found.split()[-1]) for each in findings if each.subject == "C compiler"]

    assert found() == [("warning", "compiler")]
    for name in ("clang", "mycc"):
        (tmp_path / name).touch(mode=0o755)
    assert found() == [("warning", "headers")]
    (tmp_path / "Python.h").touch()
    assert found() == [("good", "clang")]
    assert found(CC="mycc") == [("good", "mycc")]
    # Triton takes what CC names, and looks no further.
    assert found(CC="none") == [("warning", "compiler")]
    installed.clear()
    assert found() == []


def test_what_a_framework_is_built_for_is_read_without_importing_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    def install(name, version):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert cuda.builds() == {}
    install("jax", "0.11.2")
    assert cuda.builds() == {"jax": None}
    install("jax_cuda12_plugin", "0.11.2")
    assert cuda.builds() == {"jax": (12,)}
    install("torch", "2.11.0")
    (tmp_path / "torch").mkdir()
    source = tmp_path / "torch/version.py"
    for content, build in (
        ("from typing import Optional\ncuda: Optional[str] = '12.8'\nraise RuntimeError\n", (12, 8)),
        ("cuda = '13.0'\n", (13, 0)),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.3'\n", None),
    ):
        source.write_text(content)
        assert cuda.builds()["torch"] == build
    assert "torch" not in sys.modules


@pytest.mark.parametrize(
    ("plugins", "step"),
    [
        ((), "`pip install 'jax[cuda12]'`"),
        ((12,), "`pip install 'jax[cuda12]'`"),
        ((13,), "`pip uninstall jax-cuda13-plugin jax-cuda13-pjrt`, then `pip install 'jax[cuda12]'`"),
        ((12, 13), "`pip uninstall jax-cuda13-plugin jax-cuda13-pjrt`, then `pip install 'jax[cuda12]'`"),
    ],
)
def test_a_plugin_of_jaxs_that_the_driver_is_too_old_for_must_go_before_another_helps(monkeypatch, plugins, step):
    installed = [SimpleNamespace(name=f"jax-cuda{number}-plugin") for number in plugins]
    monkeypatch.setattr(cuda.metadata, "distributions", lambda: installed)
    assert cuda.how_to_install("jax", (12, 8)) == step


@pytest.mark.parametrize("built", [True, False])
def test_a_driver_that_no_supported_framework_is_built_for_is_to_be_updated(built):
    for framework in ("jax", "torch"):
        assert cuda.next_step(framework, (11, 8), built=built) == (
            f"update the driver to 525 or newer: no version of {framework} that fwbench supports is built for CUDA 11"
        )


def refuse(*_):
    raise PermissionError


def test_a_counter_that_needs_root_says_how_to_open_it_and_another_that_it_is_absent(tmp_path, monkeypatch):
    make_rapl(tmp_path, [1])
    # Where the superuser runs the tests, no file's mode refuses anything.
    monkeypatch.setattr(RaplCounter, "__init__", refuse)
    finding = looked(tmp_path, meter=counter("cpu", tmp_path))["energy"]
    assert (finding.level, f"`sudo chmod -R a+r {tmp_path}/*/energy_uj`" in finding.next_step) == ("warning", True)
    assert looked(tmp_path)["energy"].level == "warning"


@pytest.mark.parametrize(
    ("files", "subject", "level"),
    [
        ({}, "CPU governor", "warning"),
        ({f"cpu{each}/cpufreq/scaling_governor": "performance" for each in (0, 1)}, "CPU governor", "good"),
        # Every CPU's counts.
        (
            {"cpu0/cpufreq/scaling_governor": "performance", "cpu1/cpufreq/scaling_governor": "powersave"},
            "CPU governor",
            "warning",
        ),
        ({}, "CPU boost", "good"),
        ({"intel_pstate/no_turbo": "0"}, "CPU boost", "warning"),
        ({"intel_pstate/no_turbo": "1"}, "CPU boost", "good"),
        ({"cpufreq/boost": "1"}, "CPU boost", "warning"),
        ({"cpufreq/boost": "0"}, "CPU boost", "good"),
    ],
)
def test_what_moves_the_clock_of_the_cpus(tmp_path, files, subject, level):
    for path, content in files.items():
        file = tmp_path / "devices/system/cpu" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    found = looked(tmp_path)[subject]
    assert found.level == level
    if subject == "CPU boost" and level == "warning":
        ((switch, content),) = files.items()
        assert f"echo {1 - int(content)} | sudo tee /sys/devices/system/cpu/{switch}`" in found.next_step


def test_variables_that_change_what_is_measured_are_named(tmp_path):
    found = looked(tmp_path, environment={"XLA_FLAGS": "--x", "MALLOC_ARENA_MAX": "1", "HOME": "/"})["environment"]
    assert (found.level, found.next_step[:34]) == ("warning", "`unset MALLOC_ARENA_MAX XLA_FLAGS`")
    found = looked(tmp_path, environment={"JAX_COMPILATION_CACHE_DIR": "/x"})
    assert "environment" not in found
    assert "JAX_COMPILATION_CACHE_DIR" in found["compiler caches"].found


def test_one_framework_is_enough_and_none_is_not(tmp_path, monkeypatch):
    def only(*installed):
        monkeypatch.setattr(looks, "versions", lambda names: {name: "1" for name in names if name in installed})
        return {name: looked(tmp_path)[name].level for name in ("torch", "jax")}

    assert only("torch", "torchvision") == {"torch": "good", "jax": "warning"}
    assert only("jax") == {"torch": "bad", "jax": "bad"}


@pytest.mark.parametrize("framework", ["torch", "jax", pytest.param("tensorflow", marks=needs("tensorflow"))])
def test_what_a_lane_of_ours_lacks_an_extra_brings(tmp_path, monkeypatch, framework):
    monkeypatch.setattr(looks, "versions", lambda names: {})
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    brought = {Requirement(line).name for line in pyproject["project"]["optional-dependencies"][framework]}
    findings = looked(tmp_path)
    lanes = [lane for lane in LANES.values() if lane.framework == framework]
    assert lanes
    for lane in lanes:
        found = findings[lane.name]
        assert f"`pip install 'fwbench[{framework}]'`" in found.next_step
        assert sys.executable in found.found
        # jaxlib comes with jax, and Keras with TensorFlow.
        assert lane.distributions[0] in brought


@pytest.mark.parametrize(
    ("python", "level", "found"),
    [
        ((3, 11, 7), "warning", "jax 0.12 needs 3.12"),
        ((3, 12, 0), "good", "3.12.0"),
        ((3, 13, 0), "warning", "torch-compile"),
        ((3, 13, 1), "good", "3.13.1"),
    ],
)
def test_a_python_on_which_a_framework_is_old_or_slow_is_named(tmp_path, python, level, found):
    finding = looked(tmp_path, python=python)["Python"]
    assert (finding.level, found in finding.found) == (level, True)


def test_the_exit_code_says_whether_measuring_is_possible(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"] is True
    monkeypatch.setattr(looks, "versions", lambda names: {})
    assert main(["doctor"]) == 1
    assert "pip install" in capsys.readouterr().out


def test_the_list_names_all_there_is(capsys):
    assert main(["list", "--json"]) == 0
    everything = json.loads(capsys.readouterr().out)
    names = {kind: [row["name"] for row in rows] for kind, rows in everything.items()}
    assert names["models"] == [name for name in CATALOG if name != "noop"]
    assert names["lanes"] == [name for name, lane in LANES.items() if not lane.internal]
    assert names["studies"] == list(studies())
    assert names["frameworks"] == ["torch", "jax", *(["tensorflow"] if extension("tensorflow") else [])]
    assert {row["name"]: row["unit"] for row in everything["metrics"]}["latency_p50"] == "s"
    assert main(["list"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for rows in names.values() for name in rows)


def test_every_metric_that_is_made_is_listed_and_no_other(clock, protocol, tmp_path):
    facts = Facts(asked(tmp_path, "a run", MACHINE))
    measuring = Measuring(
        Workload("noop", "noop"), LANES["noop"], CATALOG["noop"], protocol, lambda _: None, clock, facts
    )
    offered = dict.fromkeys(("product", "convolution", "copy"), lambda amount: clock.advance(amount / 1e11))
    measure_program(measuring, FakeFramework(offered=offered), FakeProgram(clock))
    # Of epochs, which the extension `epochs` measures.
    fits = {name for name in METRICS if "epoch" in name or name.startswith(("train_", "validation_", "test_"))}
    # A duet makes these, a benchmark of the harness the next, a derived lane, several ranks, a lower precision, a model
    # with a state, and a GPU.
    others = {"cpu_time", "warm_start_time"} | {"bare_loop_ratio"} | {"exported_size"}
    others |= {"join_time", "rank_spread", "communication_time"} | {"output_error", "loss_error", "gradient_error"}
    others |= {"time_to_first_token", "time_per_output_token", "tokens_per_second", "energy_per_token", "state_memory"}
    assert {*measuring.metrics, *fits, *others, "device_time"} == set(METRICS)


@pytest.mark.parametrize("command", ["list", "doctor"])
def test_a_command_imports_no_framework_and_nothing_that_only_others_need(command):
    """SciPy alone takes longer to import than either of these takes to run."""
    code = (
        "import sys\nfrom fwbench.commands.cli import main\n"
        f"try:\n    main([{command!r}])\nexcept SystemExit:\n    pass\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted({'torch', 'jax', 'tensorflow', 'scipy', 'matplotlib', 'msgspec', 'jinja2', 'pytest'} & tops))\n"
        "from fwbench.commands.cli import commands\n"
        "print(sorted(name for name, (_, module) in commands().items() if module in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-2:] == ["[]", str([command])], done.stderr


def test_the_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    # Each module or folder that declares a command.
    modules = [*Path(cli.__file__).parent.glob("*.py"), *Path(cli.__file__).parent.glob("*/__init__.py")]
    declaring = [path for path in modules if "\ndef add(" in path.read_text()]
    names = {path.parent.name if path.stem == "__init__" else path.stem for path in declaring}
    names.update(*(added.commands for added in extensions()))
    assert {line.split()[0] for line in told.splitlines() if re.match(r"    \w", line)} == names
