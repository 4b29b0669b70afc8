"""Inference whose calls can take several batches in turn."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from numpy.typing import NDArray

from fwbench.frameworks.slices import shares
from fwbench.frameworks.tensorflow.imported import tf
from fwbench.frameworks.tensorflow.parallel import Replicas
from fwbench.frameworks.tensorflow.program import DTYPE, Forward
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload


class RotatingForward(Forward):
    """A forward pass whose calls can take several batches in turn. Arguments are those of `Forward`."""

    def __init__(self, workload: Workload, model: Model, weights: Weights, replicas: Replicas | None = None) -> None:
        super().__init__(workload, model, weights, replicas)
        self.dtype = DTYPE[workload.precision]
        self._take([self.inputs])

    def _take(self, ring: list[dict[str, Any]]) -> None:
        self.ring, self.inputs = ring, ring[0]
        self.batches = cycle(ring)

    def rotate(self, batches: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """The method of `fwbench.frameworks.optional.Rotating`."""
        with tf.device(self.device):
            self._take([self.network.place(shares(self.ranks, batch), self.dtype) for batch in batches])
        self.wait()

    def relocate(self) -> None:
        self.inputs = self.ring[0]
        super().relocate()
        with tf.device(self.device):
            copies = [
                {name: tf.raw_ops.DeepCopy(x=tensor) for name, tensor in inputs.items()} for inputs in self.ring[1:]
            ]
        self._take([self.inputs, *copies])

    def step(self) -> None:
        self.inputs = next(self.batches)
        super().step()
