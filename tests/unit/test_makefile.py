"""The Python that `make` sets `.venv` up with, on machines made up for the purpose, and what it then runs."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
RUNS, NOT_FOUND = "exit 0", "echo 'pyenv: command not found' >&2; exit 127"
# As Debian's without python3-venv.
NO_ENSUREPIP = 'case "$2" in *"import ensurepip"*) exit 1; esac'

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def script(path, text):
    """A shell script, which stands for a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def chosen(folder, *arguments, variables=None, **pythons):
    """What `make` chooses where only these are on the path, each a shell script under a name without its dots."""
    for name, text in pythons.items():
        script(folder / name.replace("_", "."), text)
    done = subprocess.run(
        [shutil.which("make"), "--eval", "chosen: ; @/bin/echo $(PYTHON)", "chosen", *arguments],
        cwd=MAKEFILE.parent,
        env={"PATH": str(folder), "HOME": str(folder / "home"), **(variables or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_newest_is_chosen(tmp_path):
    assert chosen(tmp_path, python3=RUNS, python3_11=RUNS, python3_12=RUNS, python3_13=RUNS) == "python3.13"


@pytest.mark.parametrize("fault", [NOT_FOUND, NO_ENSUREPIP])
def test_one_that_makes_no_virtual_environment_is_passed_over(tmp_path, fault):
    assert chosen(tmp_path, python3=RUNS, python3_12=RUNS, python3_13=fault) == "python3.12"


def test_without_a_known_version_it_is_python3(tmp_path):
    assert chosen(tmp_path, python3=RUNS) == "python3"


@pytest.mark.parametrize("named", [False, True])
def test_one_of_pyenvs_is_chosen_though_its_command_on_the_path_fails(tmp_path, named):
    root = tmp_path / ("elsewhere" if named else "home/.pyenv")
    for version in ("3.11.7", "3.12.1", "3.13.0", "3.13.0t"):
        script(root / "versions" / version / "bin/python", RUNS)
    shims = {"python3": RUNS, "python3_11": RUNS, "python3_12": NOT_FOUND, "python3_13": NOT_FOUND}
    variables = {"PYENV_ROOT": str(root)} if named else {}
    assert chosen(tmp_path, variables=variables, **shims) == f"{root}/versions/3.13.0/bin/python"
    # No wheel of a framework is for Python without its global lock.
    shutil.rmtree(root / "versions/3.13.0")
    assert chosen(tmp_path, variables=variables) == f"{root}/versions/3.12.1/bin/python"


def test_one_of_uvs_is_chosen(tmp_path):
    script(tmp_path / "uvs/python3.13", RUNS)
    # `--system`: not the one of a virtual environment, as this clone's own.
    found = f'[ "$*" = "python find --system 3.13" ] && echo {tmp_path}/uvs/python3.13'
    assert chosen(tmp_path, uv=found, python3=RUNS, python3_12=RUNS) == f"{tmp_path}/uvs/python3.13"
    script(tmp_path / "uvs/python3.13", NOT_FOUND)
    assert chosen(tmp_path) == "python3.12"


def test_the_first_of_the_named_versions_is_found(tmp_path):
    """As .ci/run asks for another one than that which `make` has chosen."""
    for name in ("python3.11", "python3.13"):
        script(tmp_path / name, RUNS)
    command = [MAKEFILE.parent / ".ci" / "python"]
    for versions, told in ((("3.11", "3.13"), "python3.11"), (("3.12", "3.13"), "python3.13"), (("3.12",), "")):
        done = subprocess.run([*command, *versions], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
        assert (done.returncode, done.stdout.strip()) == (0, told)


def test_a_given_one_is_taken(tmp_path):
    assert chosen(tmp_path, "PYTHON=/opt/mine", python3_13=RUNS) == "/opt/mine"


@pytest.mark.parametrize("pythons", [{}, {"python3": "exit 1"}])
def test_without_a_python_that_works_it_says_what_is_needed(tmp_path, pythons):
    assert chosen(tmp_path, **pythons) == ""
    done = subprocess.run(
        [shutil.which("make"), "-f", MAKEFILE, f"VENV={tmp_path}/venv", f"{tmp_path}/venv/.installed"],
        cwd=MAKEFILE.parent,
        env={"PATH": f"{tmp_path}:/no/such/folder"},
        capture_output=True,
        text=True,
    )
    assert done.returncode
    assert "fwbench needs Python 3.11 or newer: make PYTHON=/path/to/it" in done.stderr


# Ray's package needs fwbench: pip 23 takes the packages in the order in which they are named.
BOTH = '".[all,dev]" --editable engines/ray'


def done_by(folder, *arguments, gpu=False):
    """The commands that `make` would run where nothing is set up yet: what pip installs in which folder, and pytest."""
    for name in ("python3.13", *(["nvidia-smi"] if gpu else [])):
        script(folder / name, RUNS)
    told = subprocess.run(
        [shutil.which("make"), "--dry-run", "--always-make", "-f", MAKEFILE, "VENV=v", *arguments],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    installed = [
        (line.partition("/bin/python")[0], line.partition(" --editable ")[2].strip())
        for line in told
        if " pip " in line
    ]
    return installed, [line.partition(" pytest ")[2] for line in told if " pytest " in line]


def test_bench_alone_installs_no_tensorflow(tmp_path):
    installed, (measured,) = done_by(tmp_path, "bench")
    assert installed == [("v", BOTH)]
    assert "fwbench" not in measured
    assert done_by(tmp_path, "bench", "FRAMEWORKS=torch,jax")[0] == installed


def test_bench_installs_the_packages_of_the_lanes_that_are_named(tmp_path):
    installed, (measured,) = done_by(tmp_path, "bench", "FRAMEWORKS=torch,onnxruntime,keras-jax,torch-aoti")
    assert sorted(installed[1:]) == [("v", f"lanes/{lane}") for lane in ("keras", "onnxruntime", "torch-aoti")]
    assert "--fwbench-lanes=torch,onnxruntime,keras-jax,torch-aoti" in measured.split()


@pytest.mark.parametrize("lane", ["tensorflow", "tensorflow-xla"])
def test_bench_installs_and_measures_tensorflow_where_it_is_named(tmp_path, lane):
    installed, (measured,) = done_by(tmp_path, "bench", f"FRAMEWORKS=torch,jax,{lane}", "ARGS=-k mlp")
    assert installed == [("v", BOTH), ("v", '".[tensorflow]"')]
    assert measured.split()[-3:] == [f"--fwbench-lanes=torch,jax,{lane}", "-k", "mlp"]
    assert "--fwbench-python" not in measured


def test_on_a_gpu_jax_comes_with_cuda_and_tensorflow_in_an_environment_of_its_own(tmp_path):
    installed, (measured,) = done_by(tmp_path, "bench", "FRAMEWORKS=torch,jax,tensorflow", gpu=True)
    assert installed == [("v", BOTH.replace("dev", "dev,cuda")), ("v-tensorflow", '".[data,tensorflow-cuda]"')]
    assert "--fwbench-python=tensorflow=v-tensorflow/bin/python" in measured.split()
    installed, (measured,) = done_by(tmp_path, "bench", gpu=True)
    assert installed == [("v", BOTH.replace("dev", "dev,cuda"))]
    assert "fwbench" not in measured


@pytest.mark.parametrize("gpu", [False, True])
def test_the_tests_are_run_with_tensorflow_beside_the_others(tmp_path, gpu):
    installed, runs = done_by(tmp_path, "test", gpu=gpu)
    lanes = sorted(path.parent.name for path in MAKEFILE.parent.glob("lanes/*/pyproject.toml"))
    assert installed[1] == ("v", '".[tensorflow]"')
    assert sorted(installed[2:]) == [("v", f"lanes/{lane}") for lane in lanes]
    # Each folder whose tests import the frameworks has processes of its own, which grow with every test.
    folders = [
        ["tests/strangers", "tests/unit", "tests/ext", "engines"],
        ["lanes"],
        [
            "tests/training",
            *(f"tests/ext/{of}" for of in ("tensorflow", "derived", "epochs/frameworks", "sizes", "whole_step")),
        ],
        ["tests/correctness"],
    ]
    told = [[part for part in run.split() if part.startswith(("tests/", "engines", "lanes"))] for run in runs]
    assert told == folders
    # The slow ones, too; those of lanes by two processes.
    runs[1] = f"{runs[1].rstrip()} -n 2"
    _, all_runs = done_by(tmp_path, "test-all", "ARGS=-x", gpu=gpu)
    assert all_runs == [f'{run.rstrip()} -x -m "slow or not slow"' for run in runs]
