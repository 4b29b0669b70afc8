"""The adapter without a framework: an empty step, and a fixed one in NumPy whose bare time anyone can measure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import CompileTimes, Framework, Program, Ranks
from fwbench.frameworks.precision import Operands, Products, reference
from fwbench.frameworks.training import HORIZON
from fwbench.models import Model
from fwbench.models.weights import Shape, Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.workload import Workload


class Empty(Program):
    """A step that does nothing: its time is the overhead that the harness adds to every other step."""

    def __init__(self, ranks: Ranks | None = None) -> None:
        self.ranks = ranks
        self.settings: dict[str, Any] = {}

    def compile(self) -> CompileTimes:
        return CompileTimes(None, None, "nothing is compiled")

    def step(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def output(self) -> NDArray[Any]:
        return np.zeros((1, 1), np.float32)

    def weights(self) -> Weights:
        return {}

    def relocate(self) -> None:
        pass

    def fingerprint(self) -> Fingerprint:
        return Fingerprint.untold("no framework, no program: a step is plain Python")


class Fixed(Empty):
    """A step of fixed work (sorting 200,000 numbers, about a millisecond) that waits for nothing."""

    def __init__(self, seed: int, ranks: Ranks | None = None) -> None:
        super().__init__(ranks)
        self.numbers = np.random.default_rng(seed).random(200_000)

    def step(self) -> None:
        np.sort(self.numbers)

    def relocate(self) -> None:
        self.numbers = self.numbers.copy()


class Noop(Framework):
    """Mode `fixed` is the fixed step; every other mode is empty. Ranks have nothing to exchange."""

    def join(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def unavailable(self, workload: Workload, model: Model) -> str | None:
        return None

    def weight_shapes(self, model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return {}

    def build(self, workload: Workload, model: Model, weights: Weights, horizon: int = HORIZON) -> Program:
        return Fixed(workload.seed, self.ranks) if workload.mode == "fixed" else Empty(self.ranks)

    def probe(self, workload: Workload, operands: Operands) -> Products:
        return reference(operands, np.float32)


FRAMEWORK = Noop()
