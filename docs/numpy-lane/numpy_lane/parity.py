"""What `fwbench prove` asks of NumPy: the network's answers in float64."""

import numpy as np

from fwbench.parity.case import ADAM, SGD, STEPS, Backward, Forward, Side
from numpy_lane import mlp
from numpy_lane.adapter import network


class NumPySide(Side):
    """The network at the canonical weights."""

    def __init__(self, case):
        super().__init__(case)
        self.network = network(case.model)
        self.weights = case.weights(self.network.shapes())
        self.x = case.inputs()[""]

    @staticmethod
    def shapes(model, sizes):
        return network(model).shapes()

    def losses(self, optimizer):
        weights = {name: array.copy() for name, array in self.weights.items()}
        if optimizer == "sgd":
            descent, rate = mlp.SGD(weights, SGD["momentum"]), SGD["learning_rate"]
        else:
            descent, rate = mlp.Adam(weights), ADAM["learning_rate"]
        losses = []
        for _ in range(STEPS):
            loss, gradients = self.network.backward(weights, self.x, self._labels())
            losses.append(loss)
            descent.step(weights, gradients, rate)
        return np.array(losses)

    def _forward(self):
        logits = self.network.forward(self.weights, self.x)
        loss, _ = self.network.loss(logits, self._labels())
        return Forward(logits, float(loss), statistics={})

    def _backward(self):
        loss, gradients = self.network.backward(self.weights, self.x, self._labels())
        return Backward(float(loss), gradients)

    def _labels(self):
        return self.case.targets((self.case.batch_size, self.case.model.classes))
