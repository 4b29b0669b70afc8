"""The pinned versions: one of each for every Python, and those of the CUDA libraries fit each other.

No machine without a GPU, and no single Python, would show the faults that these tests find.
"""

import platform
from importlib.metadata import PackageNotFoundError, metadata, requires
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fwbench.commands.doctor.looks import NEEDS_PYTHON

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("all", "dev", "docs", "cuda", "ray", "target", "tensorflow", "tensorflow-cuda")
HERE = ".".join(platform.python_version_tuple()[:2])


def pinned_for(python):
    """(name, version) of every line that holds for a Python."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    environment = {"python_version": python}
    return [
        (canonicalize_name(requirement.name), str(requirement.specifier).removeprefix("=="))
        for requirement in wanted
        if requirement.marker is None or requirement.marker.evaluate(environment)
    ]


def pins(python=HERE):
    return dict(pinned_for(python))


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_has_one_version_of_each(python):
    names = [name for name, _ in pinned_for(python)]
    assert sorted(names) == sorted({name for each in PYTHONS for name, _ in pinned_for(each)})


@pytest.mark.parametrize("python", PYTHONS)
def test_jax_and_its_plugin_are_of_one_version(python):
    pinned = pins(python)
    assert {pinned[name] for name in ("jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt")} == {pinned["jax"]}


@pytest.mark.slow
def test_what_is_pinned_for_a_python_can_be_installed_in_it():
    refused = []
    for name, version in pins().items():
        try:
            told = metadata(name)
        except PackageNotFoundError:  # of an extra that is not installed
            continue
        accepted = SpecifierSet(told.get("Requires-Python", ""))
        if told["Version"] == version:
            refused += [(name, each) for each in PYTHONS if pins(each)[name] == version and each not in accepted]
    assert not refused


def test_whatever_an_installation_needs_is_pinned():
    pinned, refused, seen = pins(), [], set()
    wanted = [("fwbench", extra) for extra in EXTRAS]
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            needed = canonicalize_name(requirement.name)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            if needed not in ("fwbench", "fwbench-ray") and (
                needed not in pinned or pinned[needed] not in requirement.specifier
            ):
                refused.append(f"{name} needs {requirement}, pinned: {pinned.get(needed)}")
            wanted += [(needed, each) for each in ("", *requirement.extras)]
    assert not refused


def test_the_doctor_knows_what_an_older_python_cannot_have():
    held = {
        (name, python)
        for before, python in pairwise(PYTHONS)
        for name in ("torch", "jax", "tensorflow")
        if pins(before)[name] != pins(python)[name]
    }
    told = {(what.split()[0], ".".join(map(str, python))) for what, python in NEEDS_PYTHON.items()}
    assert told == held
    for what, python in NEEDS_PYTHON.items():
        name, version = what.split()
        assert SpecifierSet(f"=={version}.*").contains(pins(".".join(map(str, python)))[name])


def test_the_compilers_of_cuda_are_of_one_toolkit():
    pinned = pins()
    parts = ("nvcc", "crt", "nvrtc", "runtime")
    assert {pinned[f"nvidia-cuda-{part}"] for part in parts} == {pinned["nvidia-nvvm"]} == {pinned["nvidia-nvjitlink"]}


def test_torch_and_its_cuda_toolkit_accept_every_pin():
    pinned = pins()
    wanted = [Requirement(line) for line in requires("torch")]
    (toolkit,) = (requirement for requirement in wanted if requirement.name == "cuda-toolkit")
    for line in requires("cuda-toolkit"):
        requirement = Requirement(line)
        if any(requirement.marker.evaluate({"extra": extra}) for extra in toolkit.extras):
            wanted.append(requirement)
    refused = [
        str(requirement)
        for requirement in wanted
        if requirement.name.startswith(("nvidia", "cuda"))
        and not requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])
    ]
    assert not refused
