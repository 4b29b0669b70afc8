"""What `fwbench prove` asks of NumPy: the network's answers in float64."""

import numpy as np

from fwbench.ext.proofs.case import ADAM, MAIN, SGD, STEPS, Backward, Forward, Side
from numpy_lane import mlp
from numpy_lane.adapter import network


class NumPySide(Side):
    """The network at the weights and inputs of any point."""

    def __init__(self, case):
        super().__init__(case)
        self.network = network(case.model)

    @staticmethod
    def shapes(model, sizes):
        return network(model).shapes()

    def losses(self, optimizer):
        weights, x = self._at(MAIN)
        if optimizer == "sgd":
            descent, rate = mlp.SGD(weights, SGD["momentum"]), SGD["learning_rate"]
        else:
            descent, rate = mlp.Adam(weights), ADAM["learning_rate"]
        losses = []
        for _ in range(STEPS):
            loss, gradients = self.network.backward(weights, x, self._labels())
            losses.append(loss)
            descent.step(weights, gradients, rate)
        return np.array(losses)

    def _forward(self, point):
        weights, x = self._at(point)
        logits = self.network.forward(weights, x)
        loss, _ = self.network.loss(logits, self._labels())
        return Forward(logits, float(loss), statistics={})

    def _backward(self, point):
        weights, x = self._at(point)
        loss, gradients = self.network.backward(weights, x, self._labels())
        return self._forward(point), Backward(float(loss), gradients)

    def _at(self, point):
        weights = self.case.weights(self.network.shapes(), point)
        return weights, self.case.inputs(point)[""]

    def _labels(self):
        return self.case.targets((self.case.batch_size, self.case.model.classes))
