"""What the workers of `keras-torch` run: a network in Keras that `torch.compile` has compiled."""

from time import perf_counter

import torch._inductor.compile_fx  # now, so that compile time holds no import of the compiler

from fwbench.frameworks.contract import CompileTimes
from keras_lane.adapter import Forward, Keras


class OnTorch(Forward):
    """A compiled call of the network."""

    def session(self):
        return torch.inference_mode()

    def compile(self):
        start = perf_counter()
        self.call = self.compiled(self.forward)
        self.step()
        return CompileTimes(None, perf_counter() - start)

    def step(self):
        self.out, _ = self.call(self.inputs)

    def wait(self):
        """Nothing to wait for: on a CPU a call returns when it is done."""

    def relocate(self):
        tensors = [*self.network.held, *self.inputs.values()]
        # All copies are made before the first move, or one tensor would come to lie where another was.
        for tensor, copy in zip(tensors, [tensor.data.clone() for tensor in tensors], strict=True):
            tensor.data = copy


FRAMEWORK = Keras(OnTorch, lambda function, workload: torch.compile(function))
