"""What every framework's training step shares: the labels, the optimizers' constants, the learning rate's schedule."""

import math

import numpy as np
from numpy.typing import NDArray

from fwbench.models import Model
from fwbench.record.workload import Workload

# The paper's Adam at 1e-4 (betas 0.9 and 0.999, epsilon 1e-8: both frameworks' defaults); SGD as torchvision trains.
LEARNING_RATE = {"adam": 1e-4, "sgd": 1e-2}
MOMENTUM = 0.9

# Steps over which the rate falls to zero in a benchmark of single steps: more than any benchmark makes.
HORIZON = 100_000


def learning_rate(workload: Workload) -> float:
    """The workload's own, or its optimizer's default."""
    return LEARNING_RATE[workload.optimizer] if workload.learning_rate is None else workload.learning_rate


def cosine(step: int, horizon: int) -> float:
    """The learning rate's factor at a step, from 1 to 0 (Loshchilov and Hutter, arXiv:1608.03983, without restarts)."""
    return 0.5 * (1 + math.cos(math.pi * min(step, horizon) / horizon))


def labels(workload: Workload, model: Model) -> NDArray[np.int32]:
    """A class for each sample of the workload's batch, uniformly random: int32 of shape (batch_size,)."""
    rng = np.random.default_rng([workload.seed, workload.batch_size, 1])
    return rng.integers(0, model.classes or 1, workload.batch_size, dtype=np.int32)
