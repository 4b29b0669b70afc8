"""PyTorch programs for a GPU that is not here: the operators that inference dispatches, on tensors without numbers."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.func import functional_call

from fwbench.frameworks.torch.fingerprint import Operators
from fwbench.frameworks.torch.networks import called_with
from fwbench.machine import targets
from fwbench.record.fingerprint import Fingerprint

# The reason for which a training step has no fingerprint.
TRAINING = "PyTorch tells no training step for a GPU that is not here: its backward pass wants a CUDA context"

# The reasons for fields that `Operators` cannot fill.
_UNTOLD = ("memory", "memory_parts", "fusions", "libraries", "precisions", "aliased", "graph_breaks")


def fingerprint(module: torch.nn.Module, inputs: Mapping[str, Tensor], target: str) -> Fingerprint | str:
    """Call a module with fake tensors of the device `cuda`; return the fingerprint, or the reason why there is none.

    Eager and compiled lanes get the same fingerprint: of the code that Dynamo would trace.

    Args:
        module: in the mode and layout in which the lane runs it; stays as it is.
        inputs: inputs by name, as from `fwbench.frameworks.torch.networks.place_inputs`.
        target: a name in `fwbench.machine.targets.NAMES`.
    """
    # Tensors that a network holds besides its state are real tensors.
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        state = {name: _fake(tensor) for name, tensor in (*module.named_parameters(), *module.named_buffers())}
        positional, named = called_with({name: _fake(tensor) for name, tensor in inputs.items()})
        try:
            with Operators() as operators:
                functional_call(module, state, positional, named)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            return f"what the network computes depends on its numbers, which are not here ({error.func})"
    absent = dict.fromkeys(_UNTOLD, "the program is neither compiled nor run, for its device is not here")
    absent |= dict.fromkeys(("compilations", "recompilations"), absent["memory"])
    return operators.told(targets.title(target), absent, bytes_accessed=operators.bytes)


def _fake(tensor: Tensor) -> Tensor:
    """A fake tensor of the same shape, layout and type, on the GPU that this machine lacks."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
