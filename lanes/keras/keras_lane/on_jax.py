"""What the workers of `keras-jax` run: a network in Keras that XLA has compiled ahead of time."""

from time import perf_counter

import jax
import jax.numpy as jnp

from fwbench.frameworks.contract import CompileTimes
from fwbench.frameworks.jax import plugins
from fwbench.frameworks.jax.options import chosen
from keras_lane.adapter import Forward, Keras, keras

# This must come before anything asks JAX for its devices.
plugins.leave_out()


class OnJax(Forward):
    """A compiled function of the network's variables and its inputs."""

    def _stateless(self, values, inputs):
        with keras.StatelessScope(list(zip(self.network.module.variables, values, strict=True))):
            return self.forward(inputs)

    def compile(self):
        start = perf_counter()
        # A CPU may run independent calls out of order, so all outputs are held.
        self.held, self.pending = self.network.held, []
        lowered = self.compiled(self._stateless).lower(self.held, self.inputs)
        traced = perf_counter() - start
        self.call = lowered.compile()
        return CompileTimes(traced, perf_counter() - start - traced)

    def step(self):
        self.out, _ = returned = self.call(self.held, self.inputs)
        self.pending.append(returned)

    def wait(self):
        jax.block_until_ready(self.pending)
        self.pending.clear()

    def restart(self, weights, draw=0):
        super().restart(weights)
        self.held = self.network.held

    def relocate(self):
        self.held, self.inputs = jax.tree.map(jnp.copy, (self.held, self.inputs))
        for variable, copy in zip(self.network.module.variables, self.held, strict=True):
            variable.assign(copy)


FRAMEWORK = Keras(OnJax, lambda function, workload: jax.jit(function, compiler_options=chosen(workload, "cpu")))
