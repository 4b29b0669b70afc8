"""What fwbench's workers run: the forward pass and the training step of a network in NumPy."""

import numpy as np

from fwbench.frameworks.contract import CompileTimes, Framework, Program
from fwbench.frameworks.precision import Products
from fwbench.frameworks.training import HORIZON, MOMENTUM, cosine, learning_rate, targets
from fwbench.models.importing import load
from fwbench.models.inputs import draw
from numpy_lane.mlp import SGD, Adam


class Inference(Program):
    """A forward pass."""

    def __init__(self, workload, model, weights):
        self.settings = {}
        self.network = network(model)
        self.held = {name: array.copy() for name, array in weights.items()}
        self.x = draw(model.inputs, workload.batch_size, workload.seed, model.sizes(workload.axes))[""]

    def compile(self):
        return CompileTimes(None, None, "NumPy runs operator by operator; nothing is compiled")

    def step(self):
        self.result = self.network.forward(self.held, self.x)

    def wait(self):
        """Nothing to wait for: a step returns when it is done."""

    def output(self):
        return self.result

    def weights(self):
        return {name: array.copy() for name, array in self.held.items()}

    def restart(self, weights, draw=0):
        for name, array in weights.items():
            self.held[name][:] = array

    def relocate(self):
        # All copies before the first is let go, or one array would come to lie where another was.
        self.held, self.x = self.weights(), self.x.copy()


class TrainStep(Inference):
    """An optimizer step; the output is its loss."""

    def __init__(self, workload, model, weights, horizon):
        super().__init__(workload, model, weights)
        self.labels = targets(workload, model, (workload.batch_size, model.classes))
        self.descent, self.rate, self.horizon = workload.optimizer, learning_rate(workload), horizon
        self.restart(weights)

    def restart(self, weights, draw=0):
        super().restart(weights)
        self.optimizer = SGD(self.held, MOMENTUM) if self.descent == "sgd" else Adam(self.held)
        self.steps = 0

    def step(self):
        self.result, self.latest = self.network.backward(self.held, self.x, self.labels)
        rate = np.float32(self.rate * cosine(self.steps, self.horizon))
        self.optimizer.step(self.held, self.latest, rate)
        self.steps += 1

    def gradients(self):
        return self.latest

    def output(self):
        return np.array([self.result])


class NumPy(Framework):
    """The lane `numpy`: on a CPU, in IEEE float32."""

    def unavailable(self, workload, model):
        if "numpy" not in model.networks:
            return f"{model.name} names no network in NumPy"
        if workload.mode not in ("inference", "train_step"):
            return f"the NumPy lane has no mode {workload.mode!r}"
        if workload.device != "cpu" or workload.precision != "fp32":
            return "NumPy computes on the CPU and in fp32 alone"
        if workload.accumulate != 1 or workload.remat:
            return "the NumPy lane has neither gradient accumulation nor activation checkpointing"
        return None

    def weight_shapes(self, model, sizes):
        return network(model).shapes()

    def build(self, workload, model, weights, horizon=HORIZON):
        if workload.mode == "inference":
            return Inference(workload, model, weights)
        return TrainStep(workload, model, weights, horizon)

    def probe(self, workload, operands):
        images = np.pad(operands.images, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
        convolution = np.einsum("bhwcij,ocij->bhwo", windows, operands.kernel, optimize=True)
        return Products(operands.left @ operands.right, convolution)


def network(model):
    """The model's network: an object with `shapes`, `forward` and `backward`."""
    return load(model.networks["numpy"])()


FRAMEWORK = NumPy()
