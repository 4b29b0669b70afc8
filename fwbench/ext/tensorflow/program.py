"""TensorFlow programs: a network's variables and a batch on the device, and a `tf.function` over them."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

from numpy.typing import NDArray

from fwbench.ext.tensorflow import convolutions
from fwbench.ext.tensorflow.fingerprint import described
from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.networks import Network
from fwbench.ext.tensorflow.parallel import Replicas
from fwbench.ext.tensorflow.profile import recorded
from fwbench.ext.tensorflow.rematerialise import rematerialise
from fwbench.frameworks.contract import CompileTimes, Program
from fwbench.models import Model
from fwbench.models.inputs import draw
from fwbench.models.weights import Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Metric
from fwbench.record.spans import Span
from fwbench.record.workload import Workload

DTYPE = {"fp64": tf.float64, "fp32": tf.float32, "tf32": tf.float32, "bf16": tf.bfloat16}


class Traced(Program):
    """A network and a batch on the device, and a function of the batch that `compile` traces.

    Args:
        policy: number formats of the network, as Keras names them.
        dtype: number format of floating-point inputs.
        replicas: the processes that each run the program on their own slice of the batch; None: this one alone.
    """

    function: Any
    concrete: Any

    def __init__(
        self,
        workload: Workload,
        model: Model,
        weights: Weights,
        policy: str,
        dtype: Any,
        replicas: Replicas | None = None,
    ) -> None:
        self.dtype = dtype
        self.replicas = replicas
        self.ranks = replicas.ranks if replicas else None
        set_precision(workload.precision)
        self.device = device_of(workload)
        self.xla = workload.runner == "tensorflow-xla"
        convolutions.choose("products" if self.xla and self.device == CPU and not workload.plain else "own")
        self.traces = 0
        sizes = model.sizes(workload.axes)
        self.settings: dict[str, Any] = {
            "precision_mode": workload.precision,
            "tensor_float_32": tf.config.experimental.tensor_float_32_execution_enabled(),
            "memory_format": "NHWC",
            "jit_compile": self.xla,
            "dtype_policy": policy,
        }
        with tf.device(self.device):
            self.network = Network(model, sizes, policy)
            if workload.remat:
                rematerialise(self.network)
            self.network.load(weights)
            batch = draw(model.inputs, workload.batch_size, workload.seed, sizes)
            self.inputs = self._placed(batch)

    def _placed(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """This rank's slice of a batch of inputs, on the device."""
        return self.network.place({name: self.share(array) for name, array in batch.items()}, self.dtype)

    def traced(self, function: Callable[..., Any]) -> Any:
        """A `tf.function` as the lane makes it."""

        def counted(*arguments: Any) -> Any:
            self.traces += 1
            return function(*arguments)

        return tf.function(counted, autograph=False, jit_compile=True if self.xla else None)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of each call."""
        return (self.inputs,)

    def compile(self) -> CompileTimes:
        traced = self.trace()
        # TensorFlow optimises a graph, and XLA compiles it, at the first call.
        start = time.perf_counter()
        self.call_and_wait()
        compiled = time.perf_counter() - start
        return CompileTimes(traced, compiled, total=traced + compiled)

    def trace(self) -> float:
        """Trace the graph; return the seconds that this took."""
        start = time.perf_counter()
        with tf.device(self.device):
            self.concrete = self.function.get_concrete_function(*self.arguments)
        seconds = time.perf_counter() - start
        if self.xla and self.device == CPU:
            self.settings["convolutions"] = convolutions.used()
        return seconds

    def wait(self) -> None:
        # On a CPU a call returns only when it is done.
        if self.device != CPU:
            tf.test.experimental.sync_devices()

    def weights(self) -> Weights:
        return self.network.export()

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        with tf.device(self.device):
            self.network.load(weights)

    def relocate(self) -> None:
        with tf.device(self.device):
            variables = self._held()
            # All copies are made before the first is assigned, or a copy could take the memory of an earlier variable.
            copies = [_copied(variable.read_value()) for variable in variables]
            self.inputs = {name: _copied(tensor) for name, tensor in self.inputs.items()}
            for variable, copy in zip(variables, copies, strict=True):
                variable.assign(copy)

    def _held(self) -> list[Any]:
        """All variables of the program."""
        return self.network.held

    def reset_peak_memory(self) -> None:
        if self.device != CPU:
            tf.config.experimental.reset_memory_stats(self.device)

    def peak_memory(self) -> Metric:
        return super().peak_memory() if self.device == CPU else self._memory("peak")

    def memory_in_use(self) -> Metric:
        return super().memory_in_use() if self.device == CPU else self._memory("current")

    def _memory(self, what: str) -> Metric:
        usage = tf.config.experimental.get_memory_info(self.device)
        return Metric(float(usage[what]), f"tf.config.experimental.get_memory_info {what}")

    def compilations(self) -> int:
        return self.traces

    def spans(self, calls: int) -> list[Span]:
        told = self.function.experimental_get_compiler_ir(*self.arguments) if self.xla else None
        return recorded(self.call_and_wait, calls, told(stage="optimized_hlo") if told else "")

    def fingerprint(self) -> Fingerprint:
        return described(self.function, self.concrete, self.arguments, self.device, xla=self.xla)


class Forward(Traced):
    """A forward pass. Each of several ranks makes its own."""

    def __init__(self, workload: Workload, model: Model, weights: Weights, replicas: Replicas | None = None) -> None:
        dtype = DTYPE[workload.precision]
        super().__init__(workload, model, weights, dtype.name, dtype, replicas)
        # All values that a network returns are computed, as in an eager framework.
        self.function = self.traced(self._forward)
        self.returned: Any = ()
        self._take([self.inputs])

    def _take(self, ring: list[dict[str, Any]]) -> None:
        self.ring, self.inputs = ring, ring[0]
        self.batches = cycle(ring)

    def rotate(self, batches: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """The method of `fwbench.frameworks.contract.Rotating`."""
        with tf.device(self.device):
            self._take([self._placed(batch) for batch in batches])
        self.wait()

    def relocate(self) -> None:
        super().relocate()
        with tf.device(self.device):
            copies = [{name: _copied(tensor) for name, tensor in inputs.items()} for inputs in self.ring[1:]]
        self._take([self.inputs, *copies])

    def _forward(self, inputs: dict[str, Any]) -> Any:
        returned = self.network.returned(inputs)
        return self.network.output(returned, inputs), tf.nest.flatten(returned)

    def step(self) -> None:
        self.returned = self.concrete(next(self.batches))

    def output(self) -> NDArray[Any]:
        return tf.cast(self.returned[0], tf.float32).numpy()


CPU, GPU = "CPU:0", "GPU:0"


def device_of(workload: Workload) -> str:
    """The device that computes, by TensorFlow's name."""
    return GPU if workload.device == "gpu" else CPU


def set_precision(precision: str) -> None:
    """Choose the arithmetic of float32 tensors, which on an NVIDIA GPU would be TF32."""
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def _copied(tensor: Any) -> Any:
    return tf.raw_ops.DeepCopy(x=tensor)
