"""fwbench: which framework runs my model faster, leaner and cheaper on this machine, and has that changed?

The public face: a `Model` by import paths, what goes into it, and the decorators that make a test measure or prove it.
Importing it imports no framework, no NumPy, and nothing of its own until it is used: pytest does so in every project
of an environment that fwbench is installed in.

PYTEST_DONT_REWRITE: a plugin whose modules pytest-benchmark's own command has imported before pytest looks at them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from fwbench.frameworks.jax.layout import torch_layout as torch_layout
    from fwbench.models.inputs import Input, image, integers, normal, ones, tokens, uniform
    from fwbench.models.model import Model

__version__ = "0.1.0"

# Without `torch_layout`, which imports JAX.
__all__ = ["Input", "Model", "benchmark", "image", "integers", "normal", "ones", "proof", "tokens", "uniform"]


def __getattr__(name: str) -> Any:
    """What `__all__` names and this module does not define itself, imported when it is first used."""
    if name == "Model":
        from fwbench.models.model import Model

        return Model
    if name == "torch_layout":
        # For functions that map weights, which run in a worker.
        from fwbench.frameworks.jax.layout import torch_layout

        return torch_layout
    if name in __all__:
        from fwbench.models import inputs

        return getattr(inputs, name)
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
        models: `Model` objects, or names of the suite's own. None at all: what the run's profile or study measures, of
            these modes.
        modes: `inference`, `prefill`, `decode`, `train_step`, or `fit`.
        batch_sizes: samples per step, unless `--fwbench-batch-sizes` names others.
        lanes: these alone. Default: the profile's, of the frameworks that a model has networks in.
    """
    import pytest

    return pytest.mark.fwbench(*models, modes=tuple(modes), batch_sizes=tuple(batch_sizes), lanes=tuple(lanes))


def proof(*models: "Model | str") -> "pytest.MarkDecorator":
    """Make a test prove that a model's networks compute the same thing: once for each framework but the reference.

    The test calls the fixture `fwbench_prove`.
    """
    import pytest

    return pytest.mark.fwbench_proof(*models)
