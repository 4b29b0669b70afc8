"""The fingerprint of a PyTorch program: the operators that one step dispatches, forward, backward and optimizer."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from fwbench.record.fingerprint import Fingerprint

# Namespaces of operators that compute nothing: marks for the profiler, and questions about a tensor without its data.
_SILENT = ("profiler", "prim")

# An argument that a schedule changes from step to step, so it is state rather than program.
_STATE = "lr"


class Operators(TorchDispatchMode):
    """While entered, notes every operator that is dispatched; for a composite operator its parts.

    Attributes:
        counts: number of dispatches of each operator, by name without its overload.
        dtypes: by element type (NumPy's names), the count of each operator that took or returned it.
        flops: operations of matrix products, convolutions and attention, by PyTorch's own formulas.
        forward_flops: those of `flops` that are no part of a backward pass.
        bytes: bytes that the operators took and returned, without views.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.dtypes: dict[str, Counter[str]] = {}
        self.flops = 0
        self.forward_flops = 0
        self.bytes = 0
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Digest of every operator's name, tensors (type, shape, strides, device) and other arguments, in order."""
        return self._hash.hexdigest()

    def told(self, processor: str, absent: Mapping[str, str], **facts: Any) -> Fingerprint:
        """The fingerprint of the dispatched operators.

        Args:
            processor: the processor for which they were dispatched.
            absent: the reasons for which some fields stay None.
            facts: further fields.
        """
        return Fingerprint(
            form="dispatched operators",
            digest=self.digest,
            operators=dict(sorted(self.counts.items())),
            dtypes={name: dict(sorted(counts.items())) for name, counts in sorted(self.dtypes.items())},
            compiler={"torch": torch.__version__},
            processor=processor,
            flops=self.flops,
            absent=absent,
            **facts,
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _SILENT:
            return func(*args, **kwargs)
        if func._overloadpacket not in _FLOPS:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        # Read before the call, which may change its arguments.
        given = list(_arguments(func, args, kwargs))
        taken = " ".join(f"{name}={_text(value)}" for name, value in given)
        read = [leaf for _, value in given for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        out = func(*args, **kwargs)
        written = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        self._hash.update(f"{func} {taken} -> {_text(out)}\n".encode())
        name = func._overloadpacket.__name__ if func.namespace == "aten" else str(func._overloadpacket)
        self.counts[name] += 1
        for dtype in {_name(tensor.dtype) for tensor in (*read, *written)}:
            self.dtypes.setdefault(dtype, Counter())[name] += 1
        if not func.is_view:
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in (*read, *written))
        if func._overloadpacket in _FLOPS:
            flops = _FLOPS[func._overloadpacket](*args, **kwargs, out_val=out)
            self.flops += flops
            # Operators that checkpoints repeat run within the backward pass, so they do not count either.
            self.forward_flops += flops if torch._C._current_graph_task_id() == -1 else 0
        return out


def _arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name and value of each argument that is part of the program."""
    names = (argument.name for argument in func._schema.arguments)
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        if name != _STATE:
            yield name, value


def _text(value: Any) -> str:
    """A text that is the same in every process: shapes instead of contents, and never an address."""
    if isinstance(value, Tensor):
        strides = tuple(value.stride()) if value.layout is torch.strided else value.layout
        return f"{_name(value.dtype)}{tuple(value.shape)}{strides}@{value.device.type}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text, value))}]"
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return str(value)
    return type(value).__name__


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _native_attention(query: Tensor, *_: Any, **__: Any) -> int:
    """Operations of the fused inference kernel, which has no formula in PyTorch: projections, scores, weighted sums."""
    batch, tokens, width = query.shape
    return 2 * batch * tokens * width * (3 * width + width + 2 * tokens)


_FLOPS = {**flop_registry, torch.ops.aten._native_multi_head_attention: _native_attention}
