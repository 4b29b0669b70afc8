"""The TensorFlow lanes: `tensorflow` (`tf.function`) and `tensorflow-xla` (compiled by XLA)."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.tensorflow import parallel
from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.networks import Network
from fwbench.ext.tensorflow.program import CPU, DTYPE, Forward, device_of
from fwbench.ext.tensorflow.training import TrainStep
from fwbench.frameworks.contract import Framework, Offered, Program, Ranks
from fwbench.frameworks.definitions import lacking
from fwbench.frameworks.precision import Operands, Products
from fwbench.frameworks.training import HORIZON
from fwbench.models import Model
from fwbench.models.weights import Shape, Weights
from fwbench.record.workload import TRAINING, Workload

# TensorFlow's settings that a network may change, by name.
_SETTINGS: Mapping[str, Callable[[], Any]] = {
    "intra_op_parallelism_threads": lambda: tf.config.threading.get_intra_op_parallelism_threads(),
    "inter_op_parallelism_threads": lambda: tf.config.threading.get_inter_op_parallelism_threads(),
    "tensor_float_32": lambda: tf.config.experimental.tensor_float_32_execution_enabled(),
    "functions_run_eagerly": lambda: tf.config.functions_run_eagerly(),
    "optimizer.jit": lambda: str(tf.config.optimizer.get_jit()),
    "floatx": lambda: tf.keras.config.floatx(),
    "dtype_policy of Keras": lambda: tf.keras.config.dtype_policy().name,
}

_NODE = re.compile(r"(?<=: )\{\{.*?\}\} ?")


class TensorFlow(Framework):
    """Both lanes. A workload over several devices has a process for each device.

    Attributes:
        replicas: the ranks as TensorFlow's workers; None: this process is alone.
    """

    def __init__(self) -> None:
        self.replicas: parallel.Replicas | None = None

    def join(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.replicas = parallel.Replicas(ranks)

    def unavailable(self, workload: Workload, model: Model) -> str | None:
        if workload.mode in TRAINING and model.train_step and "tensorflow" in model.networks:
            return f"the TensorFlow lanes take no training step of a model's own, and {model.name} has one"
        if reason := lacking(model, workload, "tensorflow", "TensorFlow", ("inference", *TRAINING)):
            return reason
        if workload.target:
            return "TensorFlow cannot compile for a GPU that is not here"
        if workload.device == "gpu" and self.ranks and len(parallel.gpus()) <= self.ranks.local:
            return f"TensorFlow sees {len(parallel.gpus())} GPUs on this host, and one is needed for each rank"
        if workload.device == "gpu" and not parallel.gpus():
            reason = "it finds none" if tf.test.is_built_with_cuda() else "it is a build for CPUs alone"
            return f"this machine has a GPU, but tensorflow {tf.__version__} cannot use it: {reason}"
        if workload.devices > 1 and self.ranks is None:
            return "TensorFlow runs a process for each device, and this one is alone: start the ranks together"
        if workload.devices > 1 and workload.mode in TRAINING and workload.device == "cpu" and _compiled(workload):
            return "TensorFlow's XLA has no all-reduce between CPUs: the lane tensorflow trains over several"
        if workload.precision == "tf32":
            details = tf.config.experimental.get_device_details(parallel.gpus()[0]) if workload.device == "gpu" else {}
            if not details or details.get("compute_capability", (8, 0)) < (8, 0):
                return f"{details.get('device_name', 'a CPU')} has no TF32 arithmetic: ask for fp32 or bf16"
        if workload.mode in TRAINING and not Network(model, model.sizes(workload.axes)).parameters:
            return f"{model.name} has no weights to train"
        return None

    def weight_shapes(self, model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return Network(model, sizes).shapes

    def initial(self, model: Model, sizes: Mapping[str, int], seed: int) -> Weights:
        return Network(model, sizes, seed=seed).export()

    def build(self, workload: Workload, model: Model, weights: Weights, horizon: int = HORIZON) -> Program:
        if workload.mode == "inference":
            return Forward(workload, model, weights, self.replicas)
        return TrainStep(workload, model, weights, horizon, replicas=self.replicas)

    def in_force(self, workload: Workload) -> Mapping[str, Any]:
        return {name: reader() for name, reader in _SETTINGS.items()}

    def chosen(self, workload: Workload) -> Mapping[str, Any]:
        return {"tensor_float_32": workload.precision == "tf32"}

    def probe(self, workload: Workload, operands: Operands) -> Products:
        def products(left: Any, right: Any, images: Any, kernel: Any, query: Any, key: Any, value: Any) -> list[Any]:
            scores = tf.matmul(query / query.shape[-1] ** 0.5, key, transpose_b=True)
            mixed = tf.matmul(tf.nn.softmax(scores), value)
            return [tf.matmul(left, right), tf.nn.conv2d(images, kernel, 1, "SAME"), mixed]

        call = tf.function(products, autograph=False, jit_compile=_compiled(workload))
        taken = operands._replace(kernel=operands.kernel.transpose(2, 3, 1, 0))
        with tf.device(device_of(workload)):
            given = [tf.cast(array, DTYPE[workload.precision]) for array in taken]
            return Products(*(tf.cast(product, tf.float64).numpy() for product in call(*given)))

    def matrix_product(self, workload: Workload, left: NDArray[np.float32], right: NDArray[np.float32]) -> Offered:
        return _offered(workload, "cuBLAS", tf.matmul, left, right)

    def convolution(self, workload: Workload, images: NDArray[np.float32], kernel: NDArray[np.float32]) -> Offered:
        def convolve(images: Any, kernel: Any) -> Any:
            return tf.nn.conv2d(images, kernel, 1, "SAME")

        return _offered(workload, "cuDNN", convolve, images, kernel.transpose(2, 3, 1, 0))

    def copy(self, workload: Workload, numbers: int) -> Offered:
        with tf.device(device_of(workload)):
            ones = tf.ones(numbers)
        return _offered(workload, "TensorFlow", tf.negative, ones, dtype=tf.float32)

    def said(self, error: BaseException) -> str:
        # A message begins with the name of the graph's node, which may be as long as the sentence after it.
        return _NODE.sub("", super().said(error))


def _offered(workload: Workload, on_gpu: str, function: Callable[..., Any], *arrays: Any, dtype: Any = None) -> Offered:
    """A call of a function of arrays, in the workload's precision and as the lane runs programs; and its library.

    Args:
        on_gpu: name of the library on a GPU without XLA.
    """
    device = device_of(workload)
    with tf.device(device):
        given = [tf.cast(array, dtype or DTYPE[workload.precision]) for array in arrays]
        traced = tf.function(function, autograph=False, jit_compile=_compiled(workload))
        concrete = traced.get_concrete_function(*given)

    def call() -> Any:
        output = concrete(*given)
        # On a CPU a call returns only when it is done.
        if device != CPU:
            tf.test.experimental.sync_devices()
        return output

    library = on_gpu if workload.device == "gpu" else "oneDNN"
    return call, "XLA" if _compiled(workload) else library


def _compiled(workload: Workload) -> bool | None:
    """The argument `jit_compile` of `tf.function` for the workload's lane."""
    return True if workload.runner == "tensorflow-xla" else None


FRAMEWORK = TensorFlow()
