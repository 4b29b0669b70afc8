"""The fingerprint of a TensorFlow program: the graph of its traced function, or XLA's StableHLO and optimised HLO."""

import hashlib
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from typing import Any

from fwbench.ext.tensorflow.imported import keras, tf
from fwbench.frameworks import hlo
from fwbench.record.fingerprint import Fingerprint

_UNSTATED = "TensorFlow does not state it"
# Attributes without meaning for the arithmetic: source locations in Python, and TensorFlow's names.
_IDLE = ("container", "shared_name", "config", "config_proto", "executor_type", "debug_name", "tensor_name")


def described(function: Any, concrete: Any, arguments: tuple[Any, ...], device: str, *, xla: bool) -> Fingerprint:
    """The fingerprint of a function that has been traced and run.

    Args:
        concrete: its trace for these arguments.
        device: TensorFlow's name of the device on which it ran.
        xla: whether XLA compiles it.
    """
    facts: dict[str, Any] = {
        "compiler": {
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            **{name: os.environ[name] for name in ("TF_XLA_FLAGS", "XLA_FLAGS") if os.environ.get(name)},
        },
        "processor": f"{platform.machine()} {_name(device)}",
    }
    absent = dict.fromkeys(("bytes_accessed", "memory"), _UNSTATED)
    absent["graph_breaks"] = "a traced function is one graph"
    if xla:
        form = function.experimental_get_compiler_ir(*arguments)
        program = hlo.lowered(form(stage="stablehlo"))
        return hlo.fingerprint(program, form(stage="optimized_hlo"), absent={**absent, "flops": _UNSTATED}, **facts)
    absent |= dict.fromkeys(
        ("fusions", "libraries", "aliased", "precisions"), "TensorFlow keeps its optimised graph to itself"
    )
    graph = concrete.graph.as_graph_def()
    reader = _Reader({one.signature.name: one for one in graph.library.function})
    text = "\n".join(reader.lines(graph.node, ()))
    return Fingerprint(
        form="TensorFlow graph",
        digest=hashlib.sha256(text.encode()).hexdigest(),
        operators=dict(sorted(reader.operators.items())),
        dtypes={name: dict(sorted(counts.items())) for name, counts in sorted(reader.dtypes.items())},
        flops=_flops(concrete.graph),
        absent=absent,
        **facts,
    )


class _Reader:
    """Reads the nodes of a graph, including those of the functions that it calls.

    Attributes:
        operators: count of each operator; those in a called function count once for every call.
        dtypes: by element type, the count of each operator that has the type among its attributes.
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self.operators: Counter[str] = Counter()
        self.dtypes: dict[str, Counter[str]] = {}

    def lines(self, nodes: Any, given: tuple[str, ...]) -> Iterator[str]:
        """One line for each node. It refers to other nodes by number, so it holds no name.

        Args:
            given: names of a function's arguments.
        """
        numbers = {name: f"argument {index}" for index, name in enumerate(given)}
        for index, node in enumerate(nodes):
            numbers[node.name] = str(index)
        for node in nodes:
            self.operators[node.op] += 1
            for kind in {kind for value in node.attr.values() for kind in (value.type, *value.list.type) if kind}:
                self.dtypes.setdefault(tf.as_dtype(kind).name, Counter())[node.op] += 1
            inputs = [self._numbered(name, numbers) for name in node.input]
            attributes = [
                f"{name}={self._text(value)}"
                for name, value in sorted(node.attr.items())
                if not name.startswith("_") and name not in _IDLE
            ]
            yield f"{node.op}({', '.join(inputs)}) {' '.join(attributes)}"

    def _numbered(self, name: str, numbers: Mapping[str, str]) -> str:
        node, colon, output = name.removeprefix("^").partition(":")
        return f"{'^' if name.startswith('^') else ''}{numbers[node]}{colon}{output}"

    def _text(self, value: Any) -> str:
        called = self._functions.get(value.func.name)
        if called is None:
            return value.SerializeToString(deterministic=True).hex()
        given = tuple(argument.name for argument in called.signature.input_arg)
        return f"[{'; '.join(self.lines(called.node_def, given))}]"


def _flops(graph: Any) -> float:
    """Operations of matrix products, convolutions and the like by TensorFlow's formulas; a loop's body counts none."""
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        return float(tf.compat.v1.profiler.profile(graph, options=options).total_float_ops)


def _name(device: str) -> str:
    kind, _, number = device.partition(":")
    physical_device = tf.config.list_physical_devices(kind)[int(number)]
    return str(tf.config.experimental.get_device_details(physical_device).get("device_name", kind))
