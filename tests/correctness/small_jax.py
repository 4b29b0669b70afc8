"""The twins of `small_torch` in JAX. A name such as `decay_clip` is that of a twin with one mistake, `clip`."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn import relu, softplus

from fwbench.frameworks.jax.layers import BatchNorm


class Plain:
    """A network as `init` and `apply`, under PyTorch's names and in its layouts."""

    def __init__(self, shapes, apply):
        self._shapes, self.apply = shapes, apply

    def init(self, key):
        tree = {}
        for name, shape in self._shapes.items():
            layer, dot, leaf = name.partition(".")
            (tree.setdefault(layer, {}) if dot else tree)[leaf or layer] = jnp.zeros(shape)
        return tree


def linear(layer, x):
    return x @ layer["weight"].T + layer["bias"]


def _decay(mistake, states=16):
    def apply(p, x):
        dt, log = p["dt"], p["A_log"]
        if mistake == "clip":
            log = jnp.minimum(log, 4)
        if mistake == "floor":
            log = jnp.maximum(log, -12)
        if mistake == "scaled_gradient":
            dt = 1.003 * dt - jax.lax.stop_gradient(0.003 * dt)
        if mistake == "scaled_log_gradient":
            log = 1.003 * log - jax.lax.stop_gradient(0.003 * log)
        if mistake == "bfloat16":
            log = log.astype(jnp.bfloat16).astype(x.dtype)
        x = linear(p["fc"], x)
        steps = softplus(x + dt)
        if mistake == "clipped_steps":
            steps = jnp.minimum(steps, 3.0)
        return linear(p["head"], x * jnp.exp(-jnp.exp(log) * steps / 8))

    names = {"A_log": (states,), "dt": (states,), "fc.weight": (states, 8), "fc.bias": (states,)}
    return Plain({**names, "head.weight": (5, states), "head.bias": (5,)}, apply)


class Conv(nnx.Module):
    def __init__(self, mistake, rate, *, rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), strides=2, padding=1, rngs=rngs)
        if mistake == "frozen":
            self.norm = nnx.BatchNorm(8, momentum=0.9, use_fast_variance=False, rngs=rngs)
        else:
            self.norm = BatchNorm(8, rngs=rngs)
        self.fc = nnx.Linear(8, 5, rngs=rngs)
        self.drop = nnx.Dropout(rate)
        self.frozen = mistake == "frozen"

    def __call__(self, x, rngs=None):
        average = {"use_running_average": True} if self.frozen else {}
        x = relu(self.norm(self.conv(x), **average)).mean((1, 2))
        return self.fc(self.drop(x, rngs=rngs))


def _conv(mistake, rngs):
    return Conv(mistake, {"rate_half": 0.5, "rate_third": 0.3}.get(mistake, 0.0), rngs=rngs)


class Dense(nnx.Module):
    def __init__(self, rate, *, rngs):
        self.up = nnx.Linear(8, 32, rngs=rngs)
        self.drop = nnx.Dropout(rate)
        self.down = nnx.Linear(32, 5, rngs=rngs)

    def __call__(self, x, rngs=None):
        return self.down(self.drop(relu(self.up(x)), rngs=rngs))


def _dense(mistake, rngs):
    return Dense({"rate_half": 0.5, "rate_third": 0.3}.get(mistake, 0.0), rngs=rngs)


_NETWORKS = {"conv": _conv, "dense": _dense}


def __getattr__(name):
    network, _, mistake = name.partition("_")
    if name.startswith("many_states"):
        return lambda: _decay(name.removeprefix("many_states").lstrip("_"), 64)
    if network == "decay":
        return lambda: _decay(mistake)
    if network in _NETWORKS:
        return functools.partial(_NETWORKS[network], mistake)
    raise AttributeError(name)
