"""One folder a framework: its adapter and its networks. Only a worker imports them."""

import importlib

from fwbench.frameworks.contract import Framework
from fwbench.record.lanes import LANES


def load(lane: str) -> Framework:
    """Import the framework that a lane belongs to.

    Raises:
        ImportError: the framework is not installed in this interpreter.
    """
    module = importlib.import_module(f"fwbench.frameworks.{LANES[lane].framework}")
    framework: Framework = module.FRAMEWORK
    return framework
