"""State over calls: running statistics, moving averages, counters."""
# ruff: noqa: N801 (a twin has the name of its network)

import jax
import jax.numpy as jnp
from flax import nnx


class Norm(nnx.Module):
    """Batch normalisation with PyTorch's running statistics."""

    def __init__(self, momentum=0.1, correction=1, updated=("train",)):
        self.weight, self.bias = nnx.Param(jnp.ones(32)), nnx.Param(jnp.zeros(32))
        self.running_mean, self.running_var = nnx.BatchStat(jnp.zeros(32)), nnx.BatchStat(jnp.ones(32))
        self.momentum, self.correction, self.updated = momentum, correction, updated

    def moved(self, variable, value):
        variable[...] = (1 - self.momentum) * variable[...] + self.momentum * value

    def __call__(self, x, train):
        mean, var = x.mean(0), x.var(0)
        if ("train" if train else "eval") in self.updated:
            self.moved(self.running_mean, jax.lax.stop_gradient(mean))
            self.moved(self.running_var, jax.lax.stop_gradient(var * x.shape[0] / (x.shape[0] - self.correction)))
        if not train:
            mean, var = self.running_mean[...], self.running_var[...]
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * self.weight[...] + self.bias[...]


class Batch(nnx.Module):
    def __init__(self, rngs, **options):
        self.up, self.down = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.norm = Norm(**options)

    def __call__(self, x, train):
        return self.down(jnp.tanh(self.norm(self.up(x), train)))


def momentum_reversed(rngs):
    return Batch(rngs, momentum=0.9)


def momentum_of_eleven_hundredths(rngs):
    return Batch(rngs, momentum=0.11)


def statistics_biased(rngs):
    return Batch(rngs, correction=0)


def statistics_fixed(rngs):
    return Batch(rngs, updated=())


def not_cumulative(rngs):
    return Batch(rngs)


class VarianceAlone(Norm):
    def moved(self, variable, value):
        if variable is not self.running_mean:
            super().moved(variable, value)


class mean_left_out(Batch):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.norm = VarianceAlone()


class Centre(nnx.Module):
    decay, before = 0.95, False

    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.centre = nnx.BatchStat(jnp.zeros(32))

    def __call__(self, x, train):
        x = jnp.tanh(self.up(x))
        centre = self.centre[...]
        if train:
            self.centre[...] = centre + (1 - self.decay) * (jax.lax.stop_gradient(x.mean(0)) - centre)
        return self.down(x - (centre if self.before else self.centre[...]))


class centre_decays_faster(Centre):
    decay = 0.9


class centre_of_the_last_call(Centre):
    before = True


class centre_with_gradient(Centre):
    def __call__(self, x, train):
        x = jnp.tanh(self.up(x))
        centre = self.centre[...]
        if train:
            centre = 0.95 * centre + 0.05 * x.mean(0)
            self.centre[...] = jax.lax.stop_gradient(centre)
        return self.down(x - centre)
