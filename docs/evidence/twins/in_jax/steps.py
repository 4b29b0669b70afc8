"""Training steps: losses, smoothing, decay, corrected averages, gradients scaled by hand."""
# ruff: noqa: N801 (a twin has the name of its network)

import jax
import jax.numpy as jnp
from flax import nnx


class Classes(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


smoothing_alike = smoothing_of_the_others = smoothing_left_out = Classes
summed_by_sample = summed_alike = positives_alike = positives_unweighted = Classes
z_left_out = z_not_squared = beta_of_one = Classes


def smoothed(logits, targets):
    wanted = 0.9 * jax.nn.one_hot(targets, 10, dtype=logits.dtype) + 0.01
    return -(wanted * jax.nn.log_softmax(logits)).sum() / logits.shape[0]


def smoothed_over_others(logits, targets):
    hot = jax.nn.one_hot(targets, 10, dtype=logits.dtype)
    return -((0.9 * hot + 0.1 / 9 * (1 - hot)) * jax.nn.log_softmax(logits)).sum(-1).mean()


def entropy(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1).mean()


def squared_and_summed(output, targets):
    return ((output - targets) ** 2).sum(-1).mean()


def squared(output, targets):
    return jnp.vdot(output - targets, output - targets) / output.size


def binary(logits, targets):
    return -(3 * targets * jax.nn.log_sigmoid(logits) + (1 - targets) * jax.nn.log_sigmoid(-logits)).mean()


def binary_unweighted(logits, targets):
    return (jax.nn.softplus(logits) - targets * logits).mean()


def with_z_not_squared(logits, targets):
    return entropy(logits, targets) + 1e-4 * jax.nn.logsumexp(logits, -1).mean()


def absolute_beyond_one(output, targets):
    error = jnp.abs(output - targets)
    return jnp.where(error < 1, error**2 / 2, error - 0.5).mean()


@jax.custom_vjp
def decayed(weight):
    return weight


decayed.defvjp(lambda weight: (weight, weight), lambda weight, gradient: (gradient + 0.01 * weight,))


class Decayed(Classes):
    def __call__(self, x):
        return self.down(jnp.tanh(x @ decayed(self.up.kernel[...]) + self.up.bias[...]))


decay_left_out = Classes


class decay_of_the_bias(Classes):
    def __call__(self, x):
        return self.down(jnp.tanh(x @ decayed(self.up.kernel[...]) + decayed(self.up.bias[...])))


class Halved(Classes):
    def __call__(self, x):
        kernel, bias = (w + 0.5 * (jax.lax.stop_gradient(w) - w) for w in (self.up.kernel[...], self.up.bias[...]))
        return self.down(jnp.tanh(x @ kernel + bias))


not_halved = Classes


class Corrected(Classes):
    corrected = True

    def __init__(self, rngs):
        super().__init__(rngs)
        self.size, self.steps = nnx.BatchStat(jnp.zeros(1)), nnx.BatchStat(jnp.zeros(1))

    def __call__(self, x, train):
        x = self.up(x)
        if train:
            self.steps[...] = self.steps[...] + 1
            self.size[...] = 0.9 * self.size[...] + 0.1 * jax.lax.stop_gradient(jnp.abs(x).mean())
        start = 1 - 0.9 ** jnp.abs(self.steps[...]) if self.corrected else 1
        return self.down(jnp.tanh(x * start / (jnp.abs(self.size[...]) + 1e-3)))


class correction_left_out(Corrected):
    corrected = False
