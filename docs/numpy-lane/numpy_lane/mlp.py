"""The suite's MLP, and the optimizers that train it."""

import numpy as np


class MLP:
    """784-256-128-10 with ReLU, over weights under torchvision's names and in its layouts."""

    layers = ("fc1", "fc2", "fc3")
    widths = (784, 256, 128, 10)

    def shapes(self):
        """Name to shape of every weight."""
        found = {}
        for layer, given, made in zip(self.layers, self.widths, self.widths[1:], strict=False):
            found |= {f"{layer}.weight": (made, given), f"{layer}.bias": (made,)}
        return found

    def forward(self, weights, x):
        """Logits of shape (batch, 10) from pixels of shape (batch, 784)."""
        return self._activations(weights, x)[-1]

    def loss(self, logits, labels):
        """Mean cross-entropy, and its gradient with respect to the logits."""
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_shares = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        of_label = np.arange(len(labels)), labels
        error = np.exp(log_shares)
        error[of_label] -= 1
        return -log_shares[of_label].mean(), error / len(labels)

    def backward(self, weights, x, labels):
        """The loss, and its gradient with respect to every weight."""
        *inputs, logits = self._activations(weights, x)
        loss, error = self.loss(logits, labels)
        gradients = {}
        for layer, given in zip(reversed(self.layers), reversed(inputs), strict=True):
            gradients |= {f"{layer}.weight": error.T @ given, f"{layer}.bias": error.sum(axis=0)}
            if given is not x:
                error = (error @ weights[f"{layer}.weight"]) * (given > 0)
        return loss, gradients

    def _activations(self, weights, x):
        """The input, and what each layer makes of it."""
        found = [x]
        for layer in self.layers:
            made = found[-1] @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
            found.append(made if layer == self.layers[-1] else np.maximum(made, 0))
        return found


class SGD:
    """Gradient descent with momentum, as PyTorch defines it."""

    def __init__(self, weights, momentum):
        self.momentum = momentum
        self.velocity = {name: np.zeros_like(array) for name, array in weights.items()}

    def step(self, weights, gradients, rate):
        """Change the weights in place."""
        for name, gradient in gradients.items():
            self.velocity[name] *= self.momentum
            self.velocity[name] += gradient
            weights[name] -= rate * self.velocity[name]


class Adam:
    """Kingma and Ba, arXiv:1412.6980, with the constants that every framework has by default."""

    def __init__(self, weights):
        self.steps = 0
        self.first = {name: np.zeros_like(array) for name, array in weights.items()}
        self.second = {name: np.zeros_like(array) for name, array in weights.items()}

    def step(self, weights, gradients, rate):
        """Change the weights in place."""
        self.steps += 1
        for name, gradient in gradients.items():
            self.first[name] += 0.1 * (gradient - self.first[name])
            self.second[name] += 0.001 * (gradient * gradient - self.second[name])
            mean, square = self.first[name] / (1 - 0.9**self.steps), self.second[name] / (1 - 0.999**self.steps)
            weights[name] -= rate * mean / (np.sqrt(square) + 1e-8)
