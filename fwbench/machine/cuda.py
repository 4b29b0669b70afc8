"""The CUDA that installed frameworks are built for, and the driver that it needs, read without importing them."""

import re
from collections.abc import Callable, Mapping
from importlib import metadata

# The oldest driver for each major version of CUDA that the versions of PyTorch and JAX which fwbench supports are built
# for; it works with every minor version (CUDA Compatibility, "minor version compatibility").
DRIVERS: Mapping[int, str] = {12: "525", 13: "580"}

Version = tuple[int, ...]


def _torch() -> Version | None:
    # The distribution's metadata prove nothing: a build for the CPU may list CUDA's libraries, too. This file is the
    # build's own.
    source = metadata.distribution("torch").locate_file("torch/version.py").read_text()
    built = re.search(r"""^cuda\b.*= ['"]([\d.]+)['"]$""", source, re.MULTILINE)
    return tuple(map(int, built[1].split("."))) if built else None


def _jax() -> Version | None:
    # JAX loads all plugins in any order, and a plugin that the driver is too old for may be the last.
    return max(((number,) for number in _plugins()), default=None)


def _plugins() -> set[int]:
    """The major versions of CUDA that JAX's installed plugins are for."""
    plugins = (re.fullmatch(r"jax[-_]cuda(\d+)[-_]plugin", each.name or "") for each in metadata.distributions())
    return {int(plugin[1]) for plugin in plugins if plugin}


# By framework.
_BUILDS: Mapping[str, Callable[[], Version | None]] = {"torch": _torch, "jax": _jax}


def next_step(framework: str, driver: Version, *, built: bool) -> str:
    """Advice on making a framework compute with a driver that supports CUDA up to this version.

    `built` says whether the installed build has CUDA, for a newer driver.
    """
    if driver[0] < (oldest := min(DRIVERS)):
        reason = f"no version of {framework} that fwbench supports is built for CUDA {driver[0]}"
        return f"update the driver to {DRIVERS[oldest]} or newer: {reason}"
    return f"{'update the driver, or ' if built else ''}{how_to_install(framework, driver)}"


def how_to_install(framework: str, driver: Version) -> str:
    """Advice on installing a build for a driver that supports CUDA up to this version."""
    newest = min(driver[0], max(DRIVERS))
    if framework == "jax":
        install = f"`pip install 'jax[cuda{newest}]'`"
        # JAX would load these plugins beside the new one.
        others = [f"jax-cuda{number}-plugin jax-cuda{number}-pjrt" for number in sorted(_plugins() - {newest})]
        return f"`pip uninstall {' '.join(others)}`, then {install}" if others else install
    return f"install a build of {framework} for CUDA {newest}"


def builds() -> dict[str, Version | None]:
    """The CUDA version that each installed framework is built for, if it can be read; None: built without CUDA."""
    versions = {}
    for framework, build in _BUILDS.items():
        try:
            metadata.version(framework)
            versions[framework] = build()
        except (metadata.PackageNotFoundError, FileNotFoundError):
            continue
    return versions
