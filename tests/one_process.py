"""What tests need that run both frameworks in pytest's own process; to be imported before either of them."""

import os

from fwbench.machine import machine
from fwbench.record.lanes import OWN

# JAX must leave PyTorch some of a GPU's memory. Read when JAX first runs.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

if machine().device == "cpu":
    # As workers have it: JAX's plugin for CUDA is there to compile for a GPU (tests/correctness/test_target.py), not to
    # look for one; beside PyTorch's CUDA libraries and without a driver, that can end the process.
    for variable in ("JAX_PLATFORMS", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"):
        os.environ.setdefault(variable, OWN["jax"].variables(1, "cpu")[variable])
