"""What both lanes share. A lane's own module imports its backend's framework before this module."""

import importlib
import sys

from fwbench.frameworks.contract import Framework, Program
from fwbench.frameworks.precision import Products
from fwbench.models.inputs import draw
from fwbench.models.sources import sources

# Keras imports these packages if they are installed, and needs none of them. They are hidden because their memory would
# count, and because scikit-learn sets variables of OpenMP for the whole process.
_hidden = dict.fromkeys({"jax", "pandas", "sklearn", "tensorflow", "torch"} - sys.modules.keys())
sys.modules.update(_hidden)
keras = importlib.import_module("keras")
# Keras imports TensorFlow to seed it, too. As that is hidden now, Keras remembers that there is none.
keras.utils.set_random_seed(0)
for _name in _hidden:
    del sys.modules[_name]
Network = importlib.import_module("fwbench.ext.tensorflow.networks").Network


class Forward(Program):
    """A forward pass; a call leaves the model's output in `out`."""

    def __init__(self, workload, model, weights, compiled):
        sizes = model.sizes(workload.axes)
        self.network, self.compiled = Network(model, sizes), compiled
        self.network.load(weights)
        self.inputs = self.network.place(draw(model.inputs, workload.batch_size, workload.seed, sizes), "float32")
        # `jit_compile` is Keras's name for what both lanes do; on PyTorch its default is eager.
        self.settings = {"keras": keras.version(), "keras_backend": keras.backend.backend(), "jit_compile": True}

    def forward(self, inputs):
        """The model's output, and everything that the network returns, so that all of it is computed."""
        returned = self.network.returned(inputs)
        return self.network.output(returned, inputs), returned

    def output(self):
        return keras.ops.convert_to_numpy(self.out).astype("float32")

    def weights(self):
        return self.network.export()

    def restart(self, weights, draw=0):
        self.network.load(weights)


class Keras(Framework):
    """The adapter of a backend's lane: `program` is its class of `Forward`, `compiled` compiles for a workload."""

    def __init__(self, program, compiled):
        self.program, self.compiled = program, compiled

    def unavailable(self, workload, model):
        if "tensorflow" not in model.networks:
            return f"{model.name} names no network in Keras (tensorflow=...)"
        if "fwbench.ext.tensorflow.imported" in sources([model.networks["tensorflow"]]).files:
            return f"the network in Keras of {model.name} calls TensorFlow's own operations, which no other backend has"
        if workload.mode != "inference":
            return f"the lane {workload.lane} has inference alone, and no {workload.mode}"
        if workload.target or (workload.device, workload.precision) != ("cpu", "fp32"):
            return f"the lane {workload.lane} computes in fp32 on a CPU alone"
        return None

    def weight_shapes(self, model, sizes):
        return Network(model, sizes).shapes

    def initial(self, model, sizes, seed):
        return Network(model, sizes, seed=seed).export()

    def build(self, workload, model, weights, horizon=None):
        return self.program(workload, model, weights, lambda function: self.compiled(function, workload))

    def probe(self, workload, operands):
        def products(left, right, images, kernel):
            return keras.ops.matmul(left, right), keras.ops.conv(images, kernel, 1, "same")

        given = (operands.left, operands.right, operands.images, operands.kernel.transpose(2, 3, 1, 0))
        results = self.compiled(products, workload)(*map(keras.ops.convert_to_tensor, given))
        return Products(*map(keras.ops.convert_to_numpy, results))
