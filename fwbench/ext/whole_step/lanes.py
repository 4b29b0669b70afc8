"""The lane `torch-compile-step`; PyTorch is not imported."""

import dataclasses

from fwbench.record.lanes import OWN

# Measured only when it is asked for.
LANES = (
    dataclasses.replace(
        OWN["torch-compile"],
        name="torch-compile-step",
        title="PyTorch (torch.compile, whole training step)",
        adapter=f"{__package__}.adapter:FRAMEWORK",
        parity=None,
        profiles=(),
        gpu_profiles=(),
        processes={},
    ),
)
