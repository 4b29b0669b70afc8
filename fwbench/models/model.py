"""The description of a model: import paths to its networks, their inputs, and the place of their output."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Literal

from fwbench.models import importing
from fwbench.models.inputs import Input
from fwbench.record.fields import Axes, Size

ConvInit = Literal["kaiming_normal_fan_out", "lecun_trunc_normal"]
LinearInit = Literal["uniform_fan_in", "uniform_fan_out", "normal_0.01", "xavier_uniform"]
LOSSES = ("cross_entropy", "mse")
QUANTITIES = ("output", "loss", "gradients", "statistics", "sgd", "adam")

# A model's canonical names and layouts are this framework's, if the model has a network in it.
REFERENCE = "torch"

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")


class Model:
    """A model that one or several frameworks can build.

    A framework's network is named by an import path, `package.module:name`, so that pytest's process need not import
    it. The path names a class or a factory, which is called without arguments but for axes of the same name
    (and `rngs` in Flax NNX, `key` in Equinox); an object with `init` and `apply`; or a plain function of the inputs.

    Args:
        name: in ids and records; letters, digits, `_`, `.`, `+` and `-`.
        inputs: the only input, which the network gets as its first argument, or inputs by name, which it gets as
            keyword arguments.
        axes: sizes that inputs and builders refer to by name. A tuple of values makes a parameter of the benchmarks,
            which is part of their ids; a single number is fixed. A list among the values, as in
            `{"length": [(17, 128, 33)]}`, is one workload, whose call takes these sizes in turn.
        output: the place of the output in what the network returns: an index, a key or an attribute, or one of these by
            framework. Default, also for frameworks that are not named: it returns an array.
        loss: `cross_entropy` over the output's last axis, `mse`, or import paths by framework to functions that return
            a scalar, of the output and, if there are any, the targets.
        targets: what the loss compares the output with. Default: random classes for `cross_entropy`, standard-normal
            numbers of the output's shape for `mse`, nothing for a loss of your own.
        weights: how another framework's names become the reference's: regular expressions and their replacements, tried
            in order on every name, or the import path of a function from its weights by name to the reference's.
        tolerance: largest relative error that a proof in float64 admits, by quantity, if the usual one does not fit:
            `output`, `loss`, `gradients`, `statistics`, `sgd`, `adam`.
        title: for readers. Default: the name.
        classes, parameters, macs: published figures: length of the logits, count of trainable numbers, and
            multiply-accumulates of one sample's forward pass (convolutions, matrix products and attention). The built
            model must match the second exactly and the third within 2 %.
        source: of the definition and of the figures.
        conv, linear: rules by which `fwbench.models.weights` draws these layers' weights.
        published: whether torchvision publishes weights under the model's name.
        proof_axes: values of axes in proofs that differentiate, if the usual ones would take too long.
        proof_batch: samples in proofs in training mode. Default: 8 for a network with running statistics, else 2.
        checkpoint: a file in the format safetensors, by its path from the project's root, with weights under the
            reference's names: the networks are compared at these too.
        state: import paths by framework to functions that make the empty state of a batch, such as a cache: any tree of
            arrays. A function gets `batch_size` and those of the axes that its signature names. With a state the
            network's call takes it as `state` and returns the pair (output, state); without one (`state`
            is None) it computes the whole sequence at once, and returns a pair, too.
        train_step: import paths by framework to training steps of the user's own, with which `train_step` measures in
            place of fwbench's. A step takes a state and a batch (a dict of the inputs by name, `inputs` if there is
            only one, and of `targets` if the model declares any) and returns the pair (state, metrics).
        train_state: import paths by framework to functions that make such a step's state of the network.
        buckets: sizes to the next of which each size of a list is padded, with zeros in every input, before a network
            is called; or these by name of a network, where one framework has several. Default: nothing is padded.
        networks: import paths by framework: `torch="mine.net:Net", jax="mine.flax_net:Net"`. Several networks in one
            framework have names: `torch={"eager": "mine.net:Net", "fused": "mine.fused:Net"}`. Each is measured, in
            lanes such as `torch:fused`; the first one stands for the framework in proofs, and its weights have the
            names that all of them have.

    Raises:
        ValueError: an argument makes no sense; the sentence says which, and why.
    """

    def __init__(
        self,
        name: str,
        *,
        inputs: Input | Mapping[str, Input],
        axes: Mapping[str, int | Sequence[int | Sequence[int]]] = MappingProxyType({}),
        output: str | int | Mapping[str, str | int] | None = None,
        loss: str | Mapping[str, str] = "cross_entropy",
        targets: Input | None = None,
        weights: str | Mapping[str, str] | None = None,
        tolerance: Mapping[str, float] = MappingProxyType({}),
        title: str = "",
        classes: int = 0,
        parameters: int | None = None,
        macs: float | None = None,
        source: str = "",
        conv: ConvInit = "kaiming_normal_fan_out",
        linear: LinearInit = "uniform_fan_in",
        published: bool = False,
        proof_axes: Mapping[str, int] = MappingProxyType({}),
        proof_batch: int | None = None,
        checkpoint: str | None = None,
        state: Mapping[str, str] = MappingProxyType({}),
        train_step: Mapping[str, str] = MappingProxyType({}),
        train_state: Mapping[str, str] = MappingProxyType({}),
        buckets: Sequence[int] | Mapping[str, Sequence[int]] = (),
        **networks: str | Mapping[str, str],
    ) -> None:
        self.name = name
        # One network in each framework; and all of them, by name, if there are several.
        self.networks = {framework: _first(given) for framework, given in networks.items()}
        self.variants = {framework: dict(given) for framework, given in networks.items() if not isinstance(given, str)}
        # A single input has no name.
        self.inputs: dict[str, Input] = {"": inputs} if isinstance(inputs, Input) else dict(inputs)
        self.axes: dict[str, int | tuple[Size, ...]] = {axis: _tuples(values) for axis, values in axes.items()}
        self.output: str | int | dict[str, str | int] | None = dict(output) if isinstance(output, Mapping) else output
        self.loss: str | dict[str, str] = loss if isinstance(loss, str) else dict(loss)
        self.targets = targets
        self.weights: str | dict[str, str] | None = weights if isinstance(weights, str | None) else dict(weights)
        self.tolerance = dict(tolerance)
        self.title = title or name
        self.classes = classes
        self.parameters = parameters
        self.macs = macs
        self.source = source
        self.conv: ConvInit = conv
        self.linear: LinearInit = linear
        self.published = published
        self.proof_axes = dict(proof_axes)
        self.proof_batch = proof_batch
        self.checkpoint = checkpoint
        self.state = dict(state)
        self.train_step = dict(train_step)
        self.train_state = dict(train_state)
        self.buckets: tuple[int, ...] | dict[str, tuple[int, ...]] = _tuples(buckets)
        try:
            self._check()
        except ValueError as error:
            raise ValueError(f"fwbench.Model({name!r}): {error}") from None

    def _check(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError("a name is made of letters, digits, _, ., + and -, and begins with a letter or a digit")
        for framework, given in self.variants.items():
            if not given:
                raise ValueError(f"{framework} names no network")
            for name in given:
                if not isinstance(name, str) or not _NAME.fullmatch(name):
                    raise ValueError(f"{name!r} names a network in {framework}; use letters, digits, _, ., + and -")
        losses = self.loss.values() if isinstance(self.loss, dict) else ()
        steps = (*self.train_step.values(), *self.train_state.values())
        mapping = (self.weights,) if isinstance(self.weights, str) else ()
        for path in (*self.paths, *losses, *self.state.values(), *steps, *mapping):
            importing.split(path)
        for pattern in self.weights if isinstance(self.weights, dict) else ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} in weights is no regular expression ({error})") from None
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            raise ValueError(
                f"unknown loss {self.loss!r}: choose from {', '.join(LOSSES)}, or name a function by framework"
            )
        outputs = self.output if isinstance(self.output, dict) else {}
        for field, by_framework in (("output", outputs), ("state", self.state), ("train_step", self.train_step)):
            if unknown := sorted(by_framework.keys() - self.networks.keys()):
                raise ValueError(f"{field} names {unknown[0]!r}, in which the model has no network")
        for place in outputs.values() if isinstance(self.output, dict) else [self.output or 0]:
            if isinstance(place, bool) or not isinstance(place, int | str):
                raise ValueError(f"the output {place!r} is neither an index nor a key or attribute")
        if not self.inputs:
            raise ValueError("a model has at least one input")
        for axis, values in self.axes.items():
            for value in (values,) if isinstance(values, int) else values or (0,):
                if isinstance(value, tuple) and len(value) < 2:
                    raise ValueError(f"axis {axis!r} has the list {list(value)} as a value; give at least two sizes")
                for size in value if isinstance(value, tuple) else (value,):
                    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                        raise ValueError(f"axis {axis!r} has the value {size!r}; give whole numbers of at least 1")
            if axis in ("framework", "model", "mode", "batch_size", "precision"):
                raise ValueError(f"axis {axis!r} has the name of another parameter of every benchmark: rename it")
        named = {size for given in self._arrays() for size in given.shape if isinstance(size, str)}
        if unknown := sorted((named | set(self.proof_axes)) - set(self.axes)):
            raise ValueError(
                f"{unknown[0]!r} is the name of no axis: add it to axes, as in axes={{{unknown[0]!r}: 128}}"
            )
        self._check_lists(named)
        self._check_calls()
        if wrong := sorted(set(self.tolerance) - set(QUANTITIES)):
            raise ValueError(f"unknown quantity {wrong[0]!r} in tolerance: choose from {', '.join(QUANTITIES)}")

    def _check_lists(self, named: Set[str]) -> None:
        lists = {axis: of for axis, values in self.axes.items() if (of := _lists(values))}
        if len(lists) > 1:
            raise ValueError(f"the axes {' and '.join(lists)} have lists of sizes: give one of them a list")
        if unused := sorted(lists.keys() - named):
            raise ValueError(f"axis {unused[0]!r} has a list of sizes, and is the size of no input")
        if self.buckets and not lists:
            raise ValueError("buckets pad a list of sizes, and no axis has one, as in axes={'length': [(17, 33)]}")
        by_name = self.buckets if isinstance(self.buckets, dict) else {"": self.buckets} if self.buckets else {}
        if unknown := sorted(by_name.keys() - {"", *(name for of in self.variants.values() for name in of)}):
            raise ValueError(
                f"buckets names {unknown[0]!r}, which is no network: name several in a framework, as in "
                "torch={'exact': 'mine.net:Net', 'padded': 'mine.net:Net'}"
            )
        for sizes in by_name.values():
            if any(isinstance(size, bool) or not isinstance(size, int) for size in sizes):
                raise ValueError(f"the buckets are {sizes}; give whole numbers")
            if max(sizes, default=0) < (most := max(map(max, lists[self.mixed]))):
                raise ValueError(f"the buckets are {sizes}, and {self.mixed} has the size {most}")

    def _check_calls(self) -> None:
        if self.state and not self.sequence:
            raise ValueError(
                "a model with a state takes a sequence, so the first size of an input is an axis's name, as in "
                "fwbench.tokens('length', ...)"
            )
        if self.state and "state" in self.inputs:
            raise ValueError("the call of a model with a state takes that as `state`: rename the input")
        if self.train_step.keys() != self.train_state.keys():
            raise ValueError("train_step and train_state name functions in the same frameworks: a step, and its state")
        if self.train_step and {"inputs", "targets"} & set(self.inputs):
            raise ValueError("a training step's batch has `inputs` and `targets` of its own: rename the input")

    def _arrays(self) -> Iterator[Input]:
        yield from self.inputs.values()
        if self.targets:
            yield self.targets

    @property
    def paths(self) -> list[str]:
        """The import paths of all its networks."""
        named = (path for of in self.variants.values() for path in of.values())
        return list(dict.fromkeys((*self.networks.values(), *named)))

    def functions(self, framework: str) -> list[str]:
        """The import paths of a framework's functions besides its network: its loss and its training step."""
        by_framework = (self.loss if isinstance(self.loss, dict) else {}, self.train_step, self.train_state)
        return [paths[framework] for paths in by_framework if framework in paths]

    @property
    def reference(self) -> str:
        """The framework whose names and layouts of weights are the canonical ones: PyTorch, or else the first."""
        return REFERENCE if REFERENCE in self.networks else next(iter(self.networks), REFERENCE)

    @property
    def sequence(self) -> str:
        """The axis of the sequence that a model with a state takes: an input's first size; empty if none has a name."""
        firsts = (given.shape[0] for given in self.inputs.values() if given.shape)
        return next((size for size in firsts if isinstance(size, str)), "")

    def output_of(self, framework: str) -> str | int | None:
        """The place of the output in what a framework's network returns; None if it returns an array."""
        return self.output.get(framework) if isinstance(self.output, dict) else self.output

    @property
    def mixed(self) -> str:
        """The axis that has a list of sizes as a value; empty if none has."""
        return next((axis for axis, values in self.axes.items() if _lists(values)), "")

    def declared(self, axis: str) -> list[int]:
        """Every size of an axis, those of lists among them, each once."""
        return list(dict.fromkeys(size for value in _several(self.axes[axis]) for size in _several(value)))

    def sweep(self) -> list[Axes]:
        """Every combination of values of the axes with several values; a single empty combination if there is none."""
        swept = [[(axis, value) for value in values] for axis, values in self.axes.items() if isinstance(values, tuple)]
        return list(itertools.product(*swept))

    def sizes(self, chosen: Axes = ()) -> dict[str, int]:
        """The value of every axis: the chosen value, or else the fixed or the first one; of a list the largest size."""
        values = {axis: _several(values)[0] for axis, values in self.axes.items()} | dict(chosen)
        return {axis: max(_several(value)) for axis, value in values.items()}

    @property
    def input_shape(self) -> tuple[int, ...]:
        """A sample's shape in the only input, at the axes' first values; images are (height, width, channels).

        Several inputs raise a ValueError.
        """
        if len(self.inputs) > 1:
            raise ValueError(f"{self.name} has several inputs: {', '.join(self.inputs)}")
        return next(iter(self.inputs.values())).sizes(self.sizes())

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON primitives."""
        fields = {name: value for name, value in vars(self).items() if name not in ("inputs", "targets", "variants")}
        # Left out if they are empty, so that the proofs of models without them still hold.
        for name in ("state", "train_step", "train_state", "buckets"):
            if not fields[name]:
                del fields[name]
        return {
            **fields,
            **({"variants": self.variants} if self.variants else {}),
            "inputs": {name: given.to_json() for name, given in self.inputs.items()},
            "targets": self.targets.to_json() if self.targets else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Model":
        """The inverse of `to_json`."""
        fields = dict(data)
        networks, targets = fields.pop("networks"), fields.pop("targets")
        networks = {**networks, **fields.pop("variants", {})}
        inputs = {name: Input.from_json(given) for name, given in fields.pop("inputs").items()}
        only = inputs.get("")
        return cls(
            inputs=inputs if only is None else only,
            targets=Input.from_json(targets) if targets else None,
            **fields,
            **networks,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"fwbench.Model({self.name!r})"


def _first(given: str | Mapping[str, str]) -> str:
    """A framework's only network, or the first of several; empty if there is none."""
    return given if isinstance(given, str) else next(iter(given.values()), "")


def _tuples(given: Any) -> Any:
    """Sequences as tuples, also those in a mapping or in another sequence."""
    if isinstance(given, Mapping):
        return {key: _tuples(value) for key, value in given.items()}
    return tuple(map(_tuples, given)) if isinstance(given, Iterable) and not isinstance(given, str) else given


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _lists(values: int | tuple[Size, ...]) -> list[tuple[int, ...]]:
    return [value for value in _several(values) if isinstance(value, tuple)]
