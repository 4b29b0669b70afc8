"""The side of a proof for the program that the lane `torch-compile` makes of PyTorch's module."""

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters

from fwbench.ext.proofs.case import MAIN, Point
from fwbench.ext.proofs.torch import TorchSide
from fwbench.ext.proofs.where.calls import Call
from fwbench.frameworks.torch.program import compile_mode
from fwbench.models import ModelError


class CompiledSide(TorchSide):
    """PyTorch's module through `torch.compile`, in the mode of the lane `torch-compile`.

    Every result is that of a program compiled afresh, as in a lane's process: Dynamo would make sizes symbolic that
    another call has changed.
    """

    def _program(self, module: torch.nn.Module) -> Callable[..., Any]:
        torch.compiler.reset()
        compiled, before = torch.compile(module, mode=compile_mode("torch-compile", self._device)), _graphs()

        def call(*positional: Any, **named: Any) -> Any:
            # Otherwise Dynamo runs a module uncompiled that it has compiled for too many sizes.
            with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
                returned = compiled(*positional, **named)
            # Dynamo compiles nothing where a user's settings or a dispatch mode say so, without an error.
            if _graphs() == before:
                raise ModelError(f"torch.compile has compiled nothing of {self.case.model.name}, and ran it eagerly")
            return returned

        return call

    def calls(self, point: Point = MAIN) -> list[Call]:
        # A compiled program does not call its modules.
        return []


def _graphs() -> int:
    """The number of graphs that this process has compiled."""
    return counters["stats"]["unique_graphs"]
