"""One folder for each framework of the core: its adapter and its networks. Only a worker imports them."""

import importlib

from fwbench.frameworks.contract import Framework


def load(adapter: str) -> Framework:
    """Import a lane's adapter, which a `Lane` names by its import path, `package.module:name`.

    Raises:
        ImportError: the adapter or its framework is not installed in this interpreter.
        TypeError: the path names no framework's adapter.
    """
    module, _, name = adapter.partition(":")
    framework = getattr(importlib.import_module(module), name, None)
    if not isinstance(framework, Framework):
        raise TypeError(
            f"{adapter!r} is no instance of fwbench.frameworks.contract.Framework: correct the lane's adapter"
        )
    return framework
