"""A forward pass over each batch of a list of sizes in JAX, by a program for each shape, as under `jax.jit`."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import CompileTimes
from fwbench.frameworks.jax.flops import counted
from fwbench.frameworks.jax.program import Forward
from fwbench.models import Model, mixed
from fwbench.models.weights import Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.workload import Workload


class MixedForward(Forward):
    """A call takes all batches in order. Arguments are those of `Forward`."""

    def __init__(self, workload: Workload, model: Model, weights: Weights) -> None:
        super().__init__(workload, model, weights)
        self.workload = workload
        self._take([self._placed(batch) for batch in mixed.batches(model, workload)])
        self.programs: dict[tuple[Any, ...], Any] = {}
        self.outputs: list[Any] = []

    def compile(self) -> CompileTimes:
        times = []
        # In the order of their sizes, so that the memory of the last one, the largest, is the program's.
        for inputs in sorted(self.ring, key=lambda inputs: sum(array.size for array in inputs.values())):
            if _shapes(inputs) not in self.programs:
                self.inputs = inputs
                times.append(super().compile())
                self.programs[_shapes(inputs)] = self.compiled
        trace, compiled, total = (sum(getattr(each, name) for each in times) for name in ("trace", "compile", "total"))
        self.calls = [self.programs[_shapes(inputs)] for inputs in self.ring]
        return CompileTimes(trace, compiled, total=total)

    def step(self) -> None:
        self.outputs = [call(self.leaves, inputs) for call, inputs in zip(self.calls, self.ring, strict=True)]
        self.pending.append(self.outputs)

    def output(self) -> NDArray[Any]:
        arrays = [np.asarray(output).astype(np.float32, copy=False) for output, _ in self.outputs]
        return mixed.together(self.network.model, self.workload, arrays)

    def forward_flops(self) -> float:
        return sum(counted(self.function, self.leaves, inputs) for inputs in self.ring)

    def fingerprint(self) -> Fingerprint:
        return Fingerprint.untold("a list of sizes has a program for each shape")


def _shapes(inputs: dict[str, jax.Array]) -> tuple[Any, ...]:
    return tuple(array.shape for array in inputs.values())
