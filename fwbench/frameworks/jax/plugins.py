"""JAX's plugins for devices other than the CPU."""

import ctypes
import functools
import importlib.util
import logging
import pkgutil
import sys
from importlib.metadata import entry_points
from types import ModuleType

import jax

from fwbench.frameworks.faults import first_line


def no_gpu() -> str | None:
    """The reason why JAX cannot use the GPU, in JAX's words if it has any; None if it can, and the device is open."""
    # Such as that of `jax-cuda13-plugin`.
    if not any(name.startswith("jax_plugins.xla_cuda") for name in _names()):
        return "it has no CUDA plugin; install fwbench[cuda]"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        # CUDA's plugin asks NVML for the driver's version, and ends the process if NVML answers without libcuda.
        return "the driver's libcuda.so.1 is not found"
    said = _Said()
    logger = logging.getLogger("jax._src.xla_bridge")
    logger.addHandler(said)
    try:
        jax.devices("gpu")
    # JAX asserts that every platform in JAX_PLATFORMS has a plugin.
    except (RuntimeError, AssertionError) as error:
        return said.reason or first_line(error)
    finally:
        logger.removeHandler(said)
    return None


class _Said(logging.Handler):
    """Catches the reason, only logged, for which a plugin fails to start; `jax.devices` does not know the backend."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first exception."""
        if not self.reason and record.exc_info and record.exc_info[1]:
            self.reason = first_line(record.exc_info[1])


def leave_out() -> None:
    """Replace plugins that JAX has not loaded yet by modules that register nothing.

    JAX imports every plugin that is installed and calls its `initialize`, whatever JAX_PLATFORMS says. CUDA's plugin
    loads 300 MB, which would count as the memory of a program on the CPU.
    """
    for name in _names() - sys.modules.keys():
        nothing = ModuleType(name)
        vars(nothing)["initialize"] = lambda: None
        sys.modules[name] = nothing


def _names() -> set[str]:
    """The modules in which JAX looks for plugins."""
    package = importlib.util.find_spec("jax_plugins")
    folders = package.submodule_search_locations if package else None
    names = {module.name for module in pkgutil.iter_modules(folders or [], "jax_plugins.")}
    return names | registered()


@functools.cache
def registered() -> frozenset[str]:
    """The plugins that installed distributions register; their files are read once in a process."""
    return frozenset(point.value for point in entry_points(group="jax_plugins"))
