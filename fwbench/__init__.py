"""fwbench: which framework runs my model faster, leaner and cheaper on this machine, and has that changed?

The public face: a `Model` by import paths, what goes into it, and the decorators that make a test measure or prove it.
Importing it imports no framework, no NumPy, and none of its own modules until they are used, because pytest imports it
in every project of an environment that has fwbench.

PYTEST_DONT_REWRITE: a plugin whose modules pytest-benchmark's own command has imported before pytest looks at them.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from fwbench.frameworks.jax.layout import torch_layout as torch_layout
    from fwbench.models.inputs import Input, image, integers, normal, ones, tokens, uniform
    from fwbench.models.model import Model

__version__ = "0.1.0"

# `torch_layout` is left out because only functions that run in a worker need it.
__all__ = ["Input", "Model", "benchmark", "image", "integers", "normal", "ones", "proof", "tokens", "uniform"]


# Public names that are not among `fwbench.models.inputs`. The last one is for functions that run in a worker.
_ELSEWHERE = {"Model": "fwbench.models.model", "torch_layout": "fwbench.frameworks.jax.layout"}


def __getattr__(name: str) -> Any:
    """Import a public name that this module does not define itself, when it is first used."""
    if name in _ELSEWHERE or name in __all__:
        return getattr(import_module(_ELSEWHERE.get(name, "fwbench.models.inputs")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def benchmark(
    *models: "Model | str",
    modes: Sequence[str] = ("inference",),
    batch_sizes: Sequence[int] = (1,),
    lanes: Sequence[str] = (),
) -> "pytest.MarkDecorator":
    """Make a test measure models: once for each lane, mode, batch size, precision and value of the models' axes.

    The test calls the fixture `fwbench_measure`, and finds its configuration in the fixture `fwbench_workload`.

    Args:
        models: `Model` objects, or names of the suite's models. Default: the models that the run's profile or study
            measures in these modes.
        modes: `inference`, `prefill`, `decode`, `train_step`, or `fit`.
        batch_sizes: samples per step, unless `--fwbench-batch-sizes` names others.
        lanes: the only lanes to measure. Default: the profile's lanes whose framework the model has a network in.
    """
    import pytest

    return pytest.mark.fwbench(*models, modes=tuple(modes), batch_sizes=tuple(batch_sizes), lanes=tuple(lanes))


def proof(*models: "Model | str") -> "pytest.MarkDecorator":
    """Make a test prove that a model's networks compute the same thing: once for each framework but the reference.

    The test calls the fixture `fwbench_prove`.
    """
    import pytest

    return pytest.mark.fwbench_proof(*models)
