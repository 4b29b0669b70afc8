"""fwbench as strangers have it: a wheel, in projects of their own, outside this checkout."""

import os
import shutil
import sys
import venv
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.shared import finish, once

_BUILDS = {"build": "1.2", "pip": "23", "setuptools": "77"}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory, request):
    """fwbench's wheel, built from a copy of the checkout; no network is needed, and nothing is left in the checkout."""
    for name, least in _BUILDS.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"building the wheel needs {name} in {sys.executable}")
        if int(found.partition(".")[0]) < int(least.partition(".")[0]):
            pytest.skip(f"building the wheel needs {name} {least} in {sys.executable}, which has {found}")
    root = request.config.rootpath

    def build(folder):
        source = tmp_path_factory.mktemp("source")
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(root / name, source)
        shutil.copytree(root / "fwbench", source / "fwbench", ignore=shutil.ignore_patterns("__pycache__"))
        _succeed(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)

    (found,) = once(tmp_path_factory, "wheel", build).glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed(tmp_path_factory, wheel):
    """A folder with the wheel installed in it: on PYTHONPATH it comes before the fwbench of this interpreter."""

    def install(folder):
        options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
        _succeed(sys.executable, "-m", "pip", "install", *options, "--target", folder, wheel)

    return once(tmp_path_factory, "installed", install)


@pytest.fixture(scope="session")
def core(tmp_path_factory, installed):
    """An interpreter with what fwbench requires without any extra, and pytest-xdist; it has no fwbench itself."""
    (described,) = installed.glob("fwbench-*.dist-info")
    requirements = [*(metadata.Distribution.at(described).requires or ()), "pytest-xdist"]
    return _environment(tmp_path_factory, "core", requirements)


@pytest.fixture(scope="session")
def tensorflow_alone(tmp_path_factory):
    """An interpreter with TensorFlow, what it requires (NumPy is of that), and nothing else: not even pytest."""
    try:
        metadata.version("tensorflow")
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs TensorFlow in {sys.executable}")
    return _environment(tmp_path_factory, "tensorflow-alone", ["tensorflow"])


@pytest.fixture
def outside(pytester, monkeypatch):
    """An empty folder, and an environment that says nothing of this run: its workers and its options."""
    for name in list(os.environ):
        if name.startswith(("PYTEST_XDIST_", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONPATH")):
            monkeypatch.delenv(name)
    return pytester


@pytest.fixture
def stranger(outside, installed, monkeypatch):
    """An empty project, in whose environment the wheel is installed."""
    monkeypatch.setenv("PYTHONPATH", str(installed))
    return outside


def _environment(tmp_path_factory, name, requirements):
    """A virtual environment's interpreter, in which nothing can be imported but what these requirements come to."""

    def make(folder):
        venv.create(folder, symlinks=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        for distribution in _closure(requirements):
            # Links, because copying NumPy and SciPy would take longer than most of the tests.
            for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
                (packages / top).symlink_to(distribution.locate_file(top))

    return once(tmp_path_factory, name, make) / "bin" / "python"


def _closure(requirements):
    """The distributions that these requirements come to, all the way down."""
    found = {}
    waiting = [Requirement(line) for line in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found[name] = metadata.distribution(name)
            waiting += [Requirement(line) for line in found[name].requires or ()]
    return list(found.values())


def _succeed(*command):
    done = finish(*command)
    assert done.returncode == 0, done.stdout + done.stderr


# A stranger's repository, which tests copy to a place of its own.
collect_ignore = ["repository"]
