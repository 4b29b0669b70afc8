"""A training step of the user's own in PyTorch: eager, or under `torch.compile`."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from fwbench.ext.own_steps import states
from fwbench.ext.own_steps.states import Names
from fwbench.frameworks.faults import faults
from fwbench.frameworks.own_steps import WEIGHTS, Arithmetic
from fwbench.frameworks.torch.fingerprint import Operators
from fwbench.frameworks.torch.networks import place, shapes, weights_of
from fwbench.frameworks.torch.program import Placed
from fwbench.frameworks.training import targets
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload


class OwnStep(Placed):
    """The user's step on a batch that lies on the device. Its arithmetic is the user's, whatever the precision.

    A state is updated in place or returned anew. `restart` makes a new state from a new module, as the build does.
    """

    blamed = "training step"

    def __init__(self, workload: Workload, model: Model, weights: Weights) -> None:
        super().__init__(workload, model, weights, torch.float64 if workload.precision == "fp64" else torch.float32)
        self.make_state, step = states.functions(model, "torch")
        self.inputs = {name or "inputs": tensor for name, tensor in self.inputs.items()}
        if model.targets:
            wanted: Any = targets(workload, model, ())
            self.inputs["targets"] = place(wanted, self.device, self.dtype)
        self.settings["train_step"] = model.train_step["torch"]
        self.seed = workload.seed
        self.call = self._compiled(step)
        self.state: Any = None
        self.returned: Any = {}
        self._begin()

    def _begin(self) -> None:
        self.module.train()
        self.state = None
        torch.manual_seed(self.seed)
        with faults(f"{self.model.train_state['torch']!r}"):
            self.state = self.make_state(self.module)

    def step(self) -> None:
        try:
            returned = self.call(self.state, self.inputs)
        except Exception as error:
            self._blame(error, self.call, self.state, self.inputs)
            raise
        self.state, self.returned = states.divided(self.model, "torch", returned)

    def metrics(self) -> dict[str, float]:
        named = {path or "loss": _array(leaf) for path, leaf in _walked("", self.returned, {})}
        return states.scalars(self.model, named)

    def output(self) -> NDArray[Any]:
        return np.array(list(self.metrics().values()))

    def weights(self) -> Weights:
        before = f"{WEIGHTS}."
        leaves = self.state_leaves().items()
        return {leaf.removeprefix(before): array for leaf, array in leaves if leaf.startswith(before)}

    def state_leaves(self) -> dict[str, NDArray[Any]]:
        canonical = shapes(self.module)
        arrays = dict(_leaves(self.state))
        names = Names(self.model, {path: tuple(np.shape(leaf)) for path, leaf in arrays.items()}, canonical)
        return states.gathered((".".join(filter(None, names.of[path])), _array(leaf)) for path, leaf in arrays.items())

    def arithmetic(self) -> Arithmetic:
        before = self._generators()
        with torch.compiler.set_stance("force_eager"), Operators() as operators:
            self.call_and_wait()
        drawn = any(not torch.equal(one, other) for one, other in zip(before, self._generators(), strict=True))
        return Arithmetic(frozenset(operators.dtypes), drawn)

    def _generators(self) -> list[Tensor]:
        on_gpu = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        return [torch.get_rng_state(), *on_gpu]

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        self.state = None
        self.module = self._module(weights)
        self._begin()

    def _held(self) -> list[Tensor]:
        leaves = (leaf for _, leaf in _leaves(self.state) if isinstance(leaf, Tensor))
        return list({id(leaf): leaf for leaf in (*super()._held(), *leaves)}.values())


def _leaves(state: Any) -> Iterator[tuple[str, Any]]:
    """The arrays and numbers of a state by path. An optimizer's paths end in the name of the parameter."""
    names: dict[int, str] = {}
    for module in _modules(state, set()):
        for name, parameter in module.named_parameters():
            names.setdefault(id(parameter), name)
    return _walked("", state, names)


def _modules(part: Any, seen: set[int]) -> Iterator[torch.nn.Module]:
    """The modules in a state."""
    if isinstance(part, torch.nn.Module):
        yield part
    elif id(part) not in seen:
        seen.add(id(part))
        for _, inner in _parts(part):
            yield from _modules(inner, seen)


def _walked(
    path: str, part: Any, names: Mapping[int, str], around: frozenset[int] = frozenset()
) -> Iterator[tuple[str, Any]]:
    """The arrays and numbers of a part by path. An object within itself is not entered again."""
    before = f"{path}." if path else ""
    if isinstance(part, Tensor | bool | int | float):
        yield path, part
    elif isinstance(part, torch.nn.Module):
        for name, tensor in weights_of(part).items():
            yield f"{before}{name}", tensor
    elif isinstance(part, torch.optim.Optimizer):
        steps = []
        for parameter, state in part.state.items():
            for key, value in state.items():
                if key == "step":
                    steps.append(value)
                elif value is not None:
                    yield f"{before}{key}.{names.get(id(parameter), '')}", value
        # All parameters have the same step.
        yield from ((f"{before}step", step) for step in steps[:1])
    elif isinstance(part, torch.amp.GradScaler):
        yield f"{before}scale", part.get_scale()
    elif id(part) not in around:
        for key, inner in _parts(part):
            yield from _walked(f"{before}{key}", inner, names, around | {id(part)})


def _parts(part: Any) -> list[tuple[str, Any]]:
    """The parts of an object by name; a dict's in the order of its keys, as in JAX."""
    if isinstance(part, Mapping):
        return sorted((str(key), value) for key, value in part.items())
    if hasattr(part, "_fields"):
        return [(name, getattr(part, name)) for name in part._fields]
    if isinstance(part, list | tuple):
        return [(str(number), value) for number, value in enumerate(part)]
    if is_dataclass(part) and not isinstance(part, type):
        return [(field.name, getattr(part, field.name)) for field in fields(part)]
    # A schedule's numbers follow from the steps that were made.
    if isinstance(part, (torch.optim.Optimizer, LRScheduler, torch.amp.GradScaler, type)):
        return []
    return [(name, value) for name, value in getattr(part, "__dict__", {}).items() if not name.startswith("_")]


def _array(leaf: Any) -> NDArray[Any]:
    if not isinstance(leaf, Tensor):
        return np.array(leaf, np.float64)
    leaf = leaf.detach().cpu()
    wide = leaf.float() if leaf.is_floating_point() and leaf.dtype is not torch.float64 else leaf
    return np.array(wide.contiguous().numpy())
