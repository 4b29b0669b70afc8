"""The pinned versions: those of the CUDA libraries must fit each other, which no machine without a GPU would show."""

from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pinned}


def test_jax_and_its_plugin_are_of_one_version():
    pinned = pins()
    assert {pinned[name] for name in ("jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt")} == {pinned["jax"]}


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
