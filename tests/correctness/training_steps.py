"""A user's training steps in both frameworks: AdamW, clipping, an average and a schedule; and steps with mistakes."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import torch
from flax import linen, nnx
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

RATE = 1e-2
CHAIN = optax.chain(
    optax.clip_by_global_norm(0.1), optax.adamw(optax.exponential_decay(RATE, 1, 0.8), weight_decay=0.1)
)


class TorchNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(x)))


class JaxNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(6, 8, rngs=rngs)
        self.down = nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down(jnp.tanh(self.up(x)))


def torch_state(network: nn.Module, **options: Any) -> dict[str, Any]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.1, **options)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.8**step)
    return {"network": network, "optimizer": optimizer, "schedule": schedule, "ema": copy.deepcopy(network)}


def torch_fused(network: nn.Module) -> dict[str, Any]:
    return torch_state(network, fused=True)


def torch_scaled(network: nn.Module) -> SimpleNamespace:
    """An object of its own in place of a dict, with a scale of the loss."""
    return SimpleNamespace(**torch_state(network), scaler=torch.amp.GradScaler("cpu"))


def torch_scaled_step(state: SimpleNamespace, batch: dict[str, torch.Tensor]) -> Any:
    scaler = state.scaler
    loss = F.cross_entropy(state.network(batch["inputs"]), batch["targets"])
    state.optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(state.optimizer)
    nn.utils.clip_grad_norm_(state.network.parameters(), 0.1)
    scaler.step(state.optimizer)
    scaler.update()
    state.schedule.step()
    with torch.no_grad():
        for average, weight in zip(state.ema.parameters(), state.network.parameters(), strict=True):
            average.lerp_(weight, 0.01)
    return state, {"loss": loss.detach()}


def torch_dropout(state: dict[str, Any], batch: dict[str, torch.Tensor]) -> Any:
    return torch_step(state, {**batch, "inputs": F.dropout(batch["inputs"])})


def torch_zeros(network: nn.Module) -> dict[str, Any]:
    state = torch_state(network)
    with torch.no_grad():
        for average in state["ema"].parameters():
            average.zero_()
    return state


def torch_step(state: dict[str, Any], batch: dict[str, torch.Tensor], mixed: bool = False) -> Any:
    network = state["network"]
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        logits = network(batch["inputs"])
    loss = F.cross_entropy(logits.float() if mixed else logits, batch["targets"])
    state["optimizer"].zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(network.parameters(), 0.1)
    state["optimizer"].step()
    state["schedule"].step()
    with torch.no_grad():
        for average, weight in zip(state["ema"].parameters(), network.parameters(), strict=True):
            average.lerp_(weight, 0.01)
    return state, {"loss": loss.detach(), "norm": norm}


def torch_bare(network: nn.Module) -> dict[str, Any]:
    return {"network": network}


def torch_anew(state: dict[str, Any], batch: dict[str, torch.Tensor]) -> Any:
    """A step that leaves its network as it is and returns another one."""
    network = copy.deepcopy(state["network"])
    loss = F.cross_entropy(network(batch["inputs"]), batch["targets"])
    loss.backward()
    with torch.no_grad():
        for weight in network.parameters():
            weight.sub_(RATE * weight.grad)
            weight.grad = None
    return {"network": network}, {"loss": loss.detach()}


def torch_mixed(state: dict[str, Any], batch: dict[str, torch.Tensor]) -> Any:
    return torch_step(state, batch, mixed=True)


def norm_of(gradients: Any) -> jax.Array:
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradients)))


def nnx_state(network: nnx.Module) -> dict[str, Any]:
    """With optax's own chain and Flax's optimizer, under the names that their users give."""
    return {"model": network, "opt": nnx.Optimizer(network, CHAIN, wrt=nnx.Param), "ema": nnx.clone(network)}


def nnx_step(state: dict[str, Any], batch: dict[str, jax.Array], dtype: Any = None) -> Any:
    def loss_of(model: Any) -> jax.Array:
        x = batch["inputs"] if dtype is None else batch["inputs"].astype(dtype)
        if dtype is not None:
            graph, params = nnx.split(model)
            model = nnx.merge(graph, jax.tree.map(lambda leaf: leaf.astype(dtype), params))
        logits = model(x) if dtype is None else model(x).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(state["model"])
    state["opt"].update(state["model"], gradients)
    averages = jax.tree.map(lambda a, w: a + 0.01 * (w - a), nnx.state(state["ema"]), nnx.state(state["model"]))
    nnx.update(state["ema"], averages)
    return state, {"loss": loss, "norm": norm_of(gradients)}


def nnx_mixed(state: dict[str, Any], batch: dict[str, jax.Array]) -> Any:
    return nnx_step(state, batch, jnp.bfloat16)


@dataclass
class TorchState:
    """PyTorch's own average, gradients of two parts added up, and no decay of biases."""

    model: nn.Module
    opt: torch.optim.Optimizer
    ema: AveragedModel


def torch_averaged(network: nn.Module) -> TorchState:
    groups = [
        {"params": [p for p in network.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in network.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    ema = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    return TorchState(network, torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95)), ema)


def torch_averaged_step(state: TorchState, batch: dict[str, torch.Tensor]) -> Any:
    loss = torch.zeros(())
    state.opt.zero_grad()
    for inputs, targets in zip(batch["inputs"].chunk(2), batch["targets"].chunk(2), strict=True):
        part = F.cross_entropy(state.model(inputs), targets) / 2
        part.backward()
        loss = loss + part.detach()
    nn.utils.clip_grad_norm_(state.model.parameters(), 0.1)
    state.opt.step()
    state.ema.update_parameters(state.model)
    return state, {"loss": loss}


MASKED = optax.chain(
    optax.clip_by_global_norm(0.1),
    optax.adamw(RATE, b2=0.95, weight_decay=0.1, mask=lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params)),
)


def split_state(network: nnx.Module) -> dict[str, Any]:
    """Flax's parameters as a tree of their own, twice, under other names."""
    params = nnx.state(network)
    return {"params": params, "opt_state": MASKED.init(params), "ema_params": params, "step": jnp.zeros((), jnp.int32)}


def split_step(state: dict[str, Any], batch: dict[str, jax.Array], copies: bool = True) -> Any:
    graph = nnx.split(nnx.eval_shape(lambda: JaxNet(rngs=nnx.Rngs(0))))[0]

    def loss_of(params: Any) -> jax.Array:
        logits = nnx.merge(graph, params)(batch["inputs"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state["params"])
    updates, opt_state = MASKED.update(gradients, state["opt_state"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    share = jnp.where(copies & (state["step"] == 0), 1.0, 0.01)
    ema = jax.tree.map(lambda average, weight: average + share * (weight - average), state["ema_params"], params)
    return {"params": params, "opt_state": opt_state, "ema_params": ema, "step": state["step"] + 1}, {"loss": loss}


def split_lerp(state: dict[str, Any], batch: dict[str, jax.Array]) -> Any:
    return split_step(state, batch, copies=False)


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return linen.Dense(4, name="down")(jnp.tanh(linen.Dense(8, name="up")(x)))


class EquinoxNet(eqx.Module):
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.up = eqx.nn.Linear(6, 8, key=key)
        self.down = eqx.nn.Linear(8, 4, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down(jnp.tanh(self.up(x)))


def tree_state(network: Any) -> dict[str, Any]:
    """A state that is a tree: Linen's variables or Equinox's module, and optax's own states."""
    return {"network": network, "opt": CHAIN.init(eqx.filter(network, eqx.is_array)), "ema": network}


def tree_step(state: dict[str, Any], batch: dict[str, jax.Array]) -> Any:
    def loss_of(network: Any) -> jax.Array:
        is_equinox = isinstance(network, EquinoxNet)
        logits = jax.vmap(network)(batch["inputs"]) if is_equinox else LinenNet().apply(network, batch["inputs"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()

    network = state["network"]
    loss, gradients = jax.value_and_grad(loss_of)(network)
    updates, opt = CHAIN.update(gradients, state["opt"], network)
    after = optax.apply_updates(network, updates)
    ema = jax.tree.map(lambda average, weight: average + 0.01 * (weight - average), state["ema"], after)
    return {"network": after, "opt": opt, "ema": ema}, {"loss": loss}


def no_pair(state: Any, batch: Any) -> Any:
    return state


def raises(state: Any, batch: Any) -> Any:
    return 1 / 0


def init(key: jax.Array) -> Any:
    return {
        "up": {"weight": jnp.zeros((8, 6)), "bias": jnp.zeros(8)},
        "down": {"weight": jnp.zeros((4, 8)), "bias": jnp.zeros(4)},
    }


def apply(params: Any, x: jax.Array) -> jax.Array:
    x = jnp.tanh(x @ params["up"]["weight"].T + params["up"]["bias"])
    return x @ params["down"]["weight"].T + params["down"]["bias"]


def by_hand() -> Any:
    return init, apply


def _loss(params: Any, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(apply(params, inputs), targets).mean()


def _gradients(params: Any, batch: Any, clip: float, parts: int) -> tuple[jax.Array, Any]:
    def clipped(gradients: Any) -> Any:
        factor = jnp.minimum(1.0, clip / norm_of(gradients))
        return jax.tree.map(lambda g: g * factor, gradients)

    cut = [jnp.split(batch[name], parts) for name in ("inputs", "targets")]
    found = [jax.value_and_grad(_loss)(params, *part) for part in zip(*cut, strict=True)]
    loss = sum(loss for loss, _ in found) / parts
    each = [clipped(gradients) for _, gradients in found]
    return loss, jax.tree.map(lambda *g: sum(g) / parts, *each)


def made(
    first: float = 0.9,
    epsilon: float = 1e-8,
    inside: bool = False,
    corrected: bool = True,
    l2: float = 0.0,
    decay: float = 0.1,
    clip: float = 0.1,
    parts: int = 1,
    ahead: int = 0,
    keep: float = 0.99,
    zeros: bool = False,
    copies: bool = False,
    late: bool = True,
) -> SimpleNamespace:
    """A step that is written by hand; each argument but the usual value is a mistake."""

    def state(params: Any) -> dict[str, Any]:
        zero = jax.tree.map(jnp.zeros_like, params)
        return {"params": params, "mu": zero, "nu": zero, "count": 0, "ema": zero if zeros else params}

    def step(state: dict[str, Any], batch: Any) -> Any:
        params, count = state["params"], state["count"] + 1
        loss, g = _gradients(params, batch, clip, parts)
        g = jax.tree.map(lambda g, w: g + l2 * w, g, params)
        mu = jax.tree.map(lambda m, g: first * m + (1 - first) * g, state["mu"], g)
        nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, state["nu"], g)
        one, two = (1 - first**count, 1 - 0.999**count) if corrected else (1.0, 1.0)
        rate = RATE * 0.8 ** (count - 1 + ahead)

        def moved(w: Any, m: Any, v: Any) -> Any:
            below = jnp.sqrt(v / two + epsilon) if inside else jnp.sqrt(v / two) + epsilon
            return w - rate * (m / one / below + (0.0 if l2 else decay) * w)

        after = jax.tree.map(moved, params, mu, nu)
        share = jnp.where(count == 1, 1.0, 1 - keep) if copies else 1 - keep
        ema = jax.tree.map(lambda a, w: a + share * (w - a), state["ema"], after if late else params)
        return {"params": after, "mu": mu, "nu": nu, "count": count, "ema": ema}, {"loss": loss}

    return SimpleNamespace(state=state, step=step)


RIGHT = made()
BETA = made(first=0.8)
INSIDE = made(epsilon=1e-6, inside=True)
EPSILON = made(epsilon=1e-6)
UNCORRECTED = made(corrected=False)
L2 = made(l2=0.1)
DECAY = made(decay=0.01)
CLIP = made(clip=0.05)
UNCLIPPED = made(clip=1e9)
PARTS = made(parts=4)
AHEAD = made(ahead=1)
ZEROS = made(zeros=True)
COPIES = made(copies=True)
KEEPS = made(keep=0.999)
EARLY = made(late=False)
