"""Finds the library that computes PyTorch's convolutions on a CPU, which depends on the number of threads."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Names of libraries by PyTorch's names of them; other libraries keep PyTorch's name.
_NAMES = {"Mkldnn": "oneDNN", "Slow2d": "PyTorch's own", "Slow3d": "PyTorch's own"}

ONE_THREAD = (
    "with one thread PyTorch computes 1x1 convolutions of small batches as matrix products of its BLAS, with more by "
    "oneDNN, which on some processors is faster; compare lanes at two threads or more"
)


class Convolutions(TorchDispatchMode):
    """While entered, asks PyTorch for the library of every convolution on a CPU.

    Attributes:
        counts: convolutions by library.
        moved: count of convolutions that another library would compute with one more thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.moved = 0

    @property
    def settings(self) -> dict[str, str]:
        """Settings for the record; empty if there are no convolutions."""
        if not self.counts:
            return {}
        used = {"convolutions": ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))}
        return used | ({"caution": ONE_THREAD} if self.moved else {})

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.convolution.default and args[0].device.type == "cpu":
            backend = _backend(args)
            self.counts[_NAMES.get(backend, backend)] += 1
            if torch.get_num_threads() == 1:
                torch.set_num_threads(2)
                self.moved += _backend(args) != backend
                torch.set_num_threads(1)
        return func(*args, **(kwargs or {}))


def _backend(args: tuple[Any, ...]) -> str:
    return str(torch._C._select_conv_backend(*args).name)
