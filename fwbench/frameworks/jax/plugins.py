"""JAX's plugins for devices other than the CPU."""

import functools
import importlib.util
import pkgutil
import sys
from importlib.metadata import entry_points
from types import ModuleType


def has_cuda() -> bool:
    """Whether a plugin for NVIDIA's GPUs, as `jax-cuda13-plugin` brings, is installed."""
    return any(name.startswith("jax_plugins.xla_cuda") for name in _names())


def leave_out() -> None:
    """Let JAX find plugins that register nothing, unless it has loaded them already.

    JAX imports every plugin that is installed and calls its `initialize`, whatever JAX_PLATFORMS says. CUDA's loads
    300 MB, which would count as the memory of a program on the CPU.
    """
    for name in _names() - sys.modules.keys():
        nothing = ModuleType(name)
        vars(nothing)["initialize"] = lambda: None
        sys.modules[name] = nothing


def _names() -> set[str]:
    """The modules in which JAX looks for plugins."""
    package = importlib.util.find_spec("jax_plugins")
    folders = package.submodule_search_locations if package else None
    found = {module.name for module in pkgutil.iter_modules(folders or [], "jax_plugins.")}
    return found | registered()


@functools.cache
def registered() -> frozenset[str]:
    """Those that installed distributions register, whose files are read once in a process."""
    return frozenset(point.value for point in entry_points(group="jax_plugins"))
