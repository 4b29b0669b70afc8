"""What float64 hides: overflow, detours through half precision, cancellation."""
# ruff: noqa: N801 (a twin has the name of its network)

import jax
import jax.numpy as jnp
from flax import nnx


class Similar(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.head = nnx.Linear(16, 24, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)

    def weights(self, scores):
        return jnp.exp(jax.nn.log_softmax(scores))

    def __call__(self, x):
        x = self.embed(x)
        x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
        return self.head(self.weights(100 * x @ x.mT) @ x).mean(1)


class softmax_without_maximum(Similar):
    def weights(self, scores):
        weights = jnp.exp(scores)
        return weights / weights.sum(-1, keepdims=True)


class Hashed(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.head = nnx.Embed(61, 24, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)

    def bucket(self, ids):
        return (ids % 61 * (40503 % 61) + 7) % 61

    def __call__(self, ids):
        return self.head(self.embed(self.bucket(ids)).mean(1))


class hash_overflows(Hashed):
    def bucket(self, ids):
        return (ids * 40503 + 7) % 61


class Plain(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(24, 48, rngs=rngs), nnx.Linear(48, 10, rngs=rngs)

    def cast(self, x):
        return x

    def __call__(self, x):
        x = self.cast(jnp.tanh(self.up(x))).astype(x.dtype)
        return jnp.einsum("bi,io->bo", x, self.down.kernel[...]) + self.down.bias[...]


class through_bfloat16(Plain):
    def cast(self, x):
        return x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x


class through_float16(Plain):
    def cast(self, x):
        return x.astype({"float64": "float32", "float32": "float16"}[x.dtype.name])


class weights_rounded(Plain):
    """Weights are held in bfloat16 if they come in float32."""

    def __call__(self, x):
        kernel = self.up.kernel[...]
        kernel = kernel.astype(jnp.bfloat16).astype(x.dtype) if kernel.dtype == jnp.float32 else kernel
        return self.down(jnp.tanh(x @ kernel + self.up.bias[...]))


class Spread(nnx.Module):
    def __init__(self, rngs):
        self.head = nnx.Linear(24, 10, rngs=rngs)

    def __call__(self, x):
        mean, square = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
        return self.head((x - mean) / jnp.sqrt(square - mean * mean + 1e-5))


moments_far_from_zero = moments_near_zero = Spread


class Small(nnx.Module):
    def __init__(self, rngs):
        self.head = nnx.Linear(24, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(2e5 * jnp.arctanh(1e-5 * x / (2 + 1e-5 * x)))


class one_added_to_little(Small):
    def __call__(self, x):
        return self.head(1e5 * jnp.log(1 + 1e-5 * x))


class Soft(nnx.Module):
    def __init__(self, rngs):
        self.head = nnx.Linear(24, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(jnp.logaddexp(x, 0))


class exponential_overflows(Soft):
    def __call__(self, x):
        return self.head(jnp.log(1 + jnp.exp(x)))


class Near(nnx.Module):
    def __init__(self, rngs):
        self.head = nnx.Linear(12, 10, rngs=rngs)

    def __call__(self, x):
        square = (x * x).sum(-1)
        return self.head(square[:, :, None] + square[:, None] - 2 * x @ x.mT).mean(1)


distances_far_from_zero = distances_near_zero = Near


class Clock(nnx.Module):
    def __init__(self, rngs):
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def phase(self, seconds, dtype):
        return 2 * jnp.pi * (seconds % 60).astype(dtype) / 60

    def __call__(self, seconds):
        turn = jnp.exp(1j * self.phase(seconds, self.head.kernel[...].dtype))
        return self.head(jnp.concatenate([turn.imag, turn.real], -1))


class clock_of_large_numbers(Clock):
    def phase(self, seconds, dtype):
        return 2 * jnp.pi / 60 * seconds.astype(dtype)


class Energy(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(24, 160, rngs=rngs)

    def __call__(self, x):
        parts = self.up(x).reshape(-1, 10, 16)
        return jax.lax.fori_loop(1, 16, lambda i, total: jnp.logaddexp(total, parts[:, :, i]), parts[:, :, 0])
