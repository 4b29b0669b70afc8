"""What fwbench's workers run: a network that torchax has written as a JAX function, compiled by XLA."""

import dataclasses
import platform

import jax
import numpy as np

from fwbench.ext.derived.adapter import Derived, Loaded
from fwbench.frameworks.hlo import lowered
from fwbench.frameworks.jax import plugins
from fwbench.frameworks.jax.adapter import FRAMEWORK as JAX
from fwbench.frameworks.jax.fingerprint import flags, told
from fwbench.machine import versions


class Function(Loaded):
    """A compiled function, with its weights and its batch on the device."""

    def __init__(self, folder, inputs):
        program = jax.export.deserialize((folder / "program.jax").read_bytes())
        with np.load(folder / "weights.npz") as weights:
            self.arguments = jax.device_put((dict(weights), tuple(inputs.values())))
        self.lowered = jax.jit(program.call).lower(*self.arguments)
        self.compiled = self.lowered.compile()
        self.settings = {"matmul_precision": "highest", "jax_enable_x64": jax.config.jax_enable_x64}

    def run(self):
        self.out = self.compiled(*self.arguments).block_until_ready()

    def output(self):
        return np.asarray(self.out)

    def fingerprint(self):
        compiler = {**versions(("jax", "jaxlib")), "XLA_FLAGS": flags()}
        processor = f"{platform.machine()} {jax.devices()[0].device_kind}"
        return told(lowered(self.lowered.as_text()), self.compiled, compiler, processor)


class Torchax(Derived):
    """The lane `torchax`: on a CPU in float32."""

    title = "torchax"
    exporter = "torchax_lane:export"

    def unavailable(self, workload, model):
        # This must come before anything asks JAX for its devices.
        plugins.leave_out()
        return super().unavailable(workload, model)

    def load(self, folder, inputs, workload):
        return Function(folder, inputs)

    def probe(self, workload, operands):
        # `plain`, because the lane itself compiles with XLA's defaults.
        with jax.default_matmul_precision("highest"):
            return JAX.probe(dataclasses.replace(workload, plain=True), operands)


FRAMEWORK = Torchax()
