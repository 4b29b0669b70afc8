"""The parts of training steps that all frameworks share: targets, optimizers' constants, learning-rate schedule."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.models import Model
from fwbench.record.workload import Workload

# The paper's Adam at 1e-4 (betas 0.9 and 0.999, epsilon 1e-8: PyTorch's and optax's defaults); SGD as torchvision
# trains.
LEARNING_RATE = {"adam": 1e-4, "sgd": 1e-2}
MOMENTUM = 0.9
# Factor from the first moment after the first step to the gradient.
FIRST_MOMENT = {"adam": 1 / (1 - 0.9), "sgd": 1.0}

# Steps over which the rate falls to zero when single steps are measured: more than any benchmark makes.
HORIZON = 100_000


def learning_rate(workload: Workload) -> float:
    """The workload's own learning rate, or its optimizer's default."""
    return LEARNING_RATE[workload.optimizer] if workload.learning_rate is None else workload.learning_rate


def cosine(step: int, horizon: int) -> float:
    """The learning rate's factor at a step, from 1 to 0 (Loshchilov and Hutter, arXiv:1608.03983, without restarts)."""
    return 0.5 * (1 + math.cos(math.pi * min(step, horizon) / horizon))


def classifies(model: Model) -> bool:
    """True if a model makes logits of shape (batch, classes) from one floating-point input, as `fit` requires."""
    floating = [given.dtype == "float32" for given in model.inputs.values()]
    return floating == [True] and model.classes > 0 and model.loss == "cross_entropy" and model.targets is None


def targets(workload: Workload, model: Model, output: tuple[int, ...]) -> NDArray[Any] | None:
    """Draw the targets with which the loss compares a batch's output.

    Args:
        output: shape of the output, batch included.

    Returns:
        Numbers as the model declares its targets. If it declares none: for `cross_entropy` uniformly random classes,
        int32 of the output's shape without its last axis, which counts the classes; for `mse` standard-normal float32
        numbers of the output's shape; None for a loss of the user's own, which then takes no targets.
    """
    rng = np.random.default_rng([workload.seed, workload.batch_size, 1])
    if model.targets:
        sizes = model.targets.sizes(model.sizes(workload.axes))
        return model.targets.sample((workload.batch_size, *sizes), rng)
    if model.loss == "cross_entropy":
        return rng.integers(0, output[-1], output[:-1], dtype=np.int32)
    if model.loss == "mse":
        return rng.standard_normal(output, dtype=np.float32)
    return None


def step_targets(workload: Workload, model: Model, sample: Callable[[], tuple[int, ...]]) -> NDArray[Any] | None:
    """The targets of a training step, as `targets` draws them.

    Args:
        sample: finds the shape of the output for a sample; called only if nothing else tells the targets' shape.
    """
    # Targets that the model declares, and a loss without targets, do not depend on the shape of the output.
    known = classifies(model) or bool(model.targets) or isinstance(model.loss, dict)
    return targets(workload, model, (workload.batch_size, *((model.classes,) if known else sample())))
