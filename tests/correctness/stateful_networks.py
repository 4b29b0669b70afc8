"""Small networks with a state, in both frameworks: an RNN, and attention over a cache that grows."""

from typing import Any

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from torch import nn

WIDTH = 8


class TorchRnn(nn.Module):
    """PyTorch's own layer, which returns a new hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor, state: Any = None) -> Any:
        x, state = self.rnn(x, state)
        return self.head(x), state


def torch_hidden(batch_size: int) -> torch.Tensor:
    return torch.zeros(1, batch_size, WIDTH)


class TorchRnnInPlace(TorchRnn):
    """Writes its new hidden state over the old one."""

    def forward(self, x: torch.Tensor, state: Any = None) -> Any:
        output, after = super().forward(x, state)
        return output, after if state is None else state.copy_(after)


class JaxRnn(nnx.Module):
    """The same as a loop over steps."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.weight_ih_l0 = nnx.Param(jnp.zeros((WIDTH, WIDTH)))
        self.weight_hh_l0 = nnx.Param(jnp.zeros((WIDTH, WIDTH)))
        self.bias_ih_l0 = nnx.Param(jnp.zeros(WIDTH))
        self.bias_hh_l0 = nnx.Param(jnp.zeros(WIDTH))
        self.head = nnx.Linear(WIDTH, 4, rngs=rngs)

    def __call__(self, x: jax.Array, state: Any = None) -> Any:
        state = jnp.zeros((1, len(x), WIDTH), x.dtype) if state is None else state
        outputs = []
        for step in range(x.shape[1]):
            state = jnp.tanh(
                x[:, step] @ self.weight_ih_l0[...].T
                + self.bias_ih_l0[...]
                + state @ self.weight_hh_l0[...].T
                + self.bias_hh_l0[...]
            )
            outputs.append(state[0])
        return self.head(jnp.stack(outputs, 1)), state


def jax_hidden(batch_size: int) -> jax.Array:
    return jnp.zeros((1, batch_size, WIDTH))


class TorchGrowing(nn.Module):
    """Mean of all steps so far: the state is a list to which each call puts a longer array."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor, state: Any = None) -> Any:
        seen = [x[:, :0]] if state is None else state
        before = seen[0].shape[1]
        seen[0] = torch.cat([seen[0], x], 1)
        counts = torch.arange(1, seen[0].shape[1] + 1)[:, None]
        return self.head((seen[0].cumsum(1) / counts)[:, before:]), seen


def torch_nothing(batch_size: int) -> list[torch.Tensor]:
    return [torch.zeros(batch_size, 0, WIDTH)]


class JaxGrowing(nnx.Module):
    """The same, with a list of its own for each call."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.head = nnx.Linear(WIDTH, 4, rngs=rngs)

    def __call__(self, x: jax.Array, state: Any = None) -> Any:
        before = x[:, :0] if state is None else state[0]
        seen = jnp.concatenate([before, x], 1)
        mean = jnp.cumsum(seen, 1) / jnp.arange(1, seen.shape[1] + 1)[:, None]
        return self.head(mean[:, before.shape[1] :]), [seen]


def jax_nothing(batch_size: int) -> list[jax.Array]:
    return [jnp.zeros((batch_size, 0, WIDTH))]


def no_pair(x: Any, state: Any = None) -> Any:
    return x


def of_text(batch_size: int) -> dict[str, str]:
    return {"kind": "none"}
