"""The base of derived lanes. A derived lane runs another framework's network in the form that an exporter has written.

The exporter works in a process of its own, which ends before anything is timed. So neither the exporter nor the other
framework is part of the lane's memory. A lane's package has a function that exports, which `Derived.exporter` names,
and a method that loads the exported files, `Derived.load`.
"""

import json
import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fwbench.errors import UnavailableError
from fwbench.frameworks.contract import CompileTimes, Framework, Program
from fwbench.frameworks.training import HORIZON
from fwbench.models import Model, ModelError
from fwbench.models.inputs import draw
from fwbench.models.weights import Shape, Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import EXPORTS
from fwbench.record.measurement import Metric
from fwbench.record.workload import Workload

Array = NDArray[Any]


class Loaded(ABC):
    """An exported network in the lane's runtime, with its batch on the device.

    `settings` records how the runtime runs it.
    """

    settings: Mapping[str, Any]

    @abstractmethod
    def run(self) -> None:
        """Make one call, and return when the device is done."""

    @abstractmethod
    def output(self) -> Array:
        """The last call's output on the host."""

    def fingerprint(self) -> Fingerprint:
        """The program that the runtime has made of the exported network."""
        return Fingerprint.untold("the lane's runtime does not tell what it runs")


class Derived(Framework):
    """The adapter of a lane that exports networks in PyTorch, for inference only.

    Attributes:
        title: the runtime's name, as messages use it.
        exporter: import path of `export(module, inputs, folder, workload)`, which the exporting process calls. `module`
            is a `torch.nn.Module` in evaluation mode that takes its inputs by position and returns the selected output.
            `inputs` holds the batch by name (`input_0`, ... in the order of the positions). `folder` is empty and takes
            the files. If `export` raises, the measurement is `unavailable`, with the exception's first line.
        precisions: the precisions in which the lane computes, by kind of device.
    """

    title: str
    exporter: str
    precisions: ClassVar[Mapping[str, tuple[str, ...]]] = {"cpu": ("fp32",)}

    @abstractmethod
    def load(self, folder: Path, inputs: Mapping[str, Array], workload: Workload) -> Loaded:
        """Load the files that `export` wrote into the folder.

        Args:
            inputs: the batch by name, as `export` gets it, in new copies at each call. Images have the shape (batch,
                channels, height, width); whole numbers are in int64.
        """

    def unavailable(self, workload: Workload, model: Model) -> str | None:
        if "torch" not in model.networks:
            return f"{model.name} names no network in PyTorch, which {self.title}'s is derived from"
        if workload.mode != "inference":
            return f"the lane {workload.lane} has inference alone, and no {workload.mode}"
        if workload.target:
            return f"the lane {workload.lane} compiles for the machine that it runs on alone"
        if workload.precision not in self.precisions.get(workload.device, ()):
            return f"the lane {workload.lane} does not compute in {workload.precision} on a {workload.device.upper()}"
        return None

    def weight_shapes(self, model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        answer = _answer(_folder(), {"model": model.to_json(), "sizes": dict(sizes)})
        return {name: tuple(shape) for name, shape in answer["shapes"].items()}

    def build(self, workload: Workload, model: Model, weights: Weights, horizon: int = HORIZON) -> Program:
        return Exported(self, workload, model, weights)


class Exported(Program):
    """A forward pass by a lane's runtime."""

    def __init__(self, framework: Derived, workload: Workload, model: Model, weights: Weights) -> None:
        self.framework, self.workload, self.model = framework, workload, model
        batch = draw(model.inputs, workload.batch_size, workload.seed, model.sizes(workload.axes))
        arrays = [_array(array, model.inputs[name].image) for name, array in batch.items()]
        self.inputs = {f"input_{index}": array for index, array in enumerate(arrays)}
        self.settings: Mapping[str, Any] = {}
        if workload.device != "cpu":
            self.no_allocator = f"{framework.title} does not tell what it holds"
        self._export(weights)

    def _export(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self.folder = _folder()
        np.savez(self.folder / "weights.npz", **weights)  # type: ignore[arg-type, unused-ignore]
        request = {
            "model": self.model.to_json(),
            "sizes": self.model.sizes(self.workload.axes),
            "workload": self.workload.to_json(),
            "exporter": self.framework.exporter,
        }
        self.export_time = _answer(self.folder, request)["seconds"]

    def _load(self) -> None:
        inputs = {name: array.copy() for name, array in self.inputs.items()}
        self.loaded = self.framework.load(self.folder / "exported", inputs, self.workload)
        self.settings = self.loaded.settings

    def compile(self) -> CompileTimes:
        start = perf_counter()
        self._load()
        seconds = perf_counter() - start
        return CompileTimes(self.export_time, seconds, total=self.export_time + seconds)

    def exported_size(self) -> Metric:
        files = (self.folder / "exported").rglob("*")
        return Metric(sum(file.stat().st_size for file in files if file.is_file()), "all files of the exported network")

    def step(self) -> None:
        self.loaded.run()

    def wait(self) -> None:
        """Nothing to wait for: a call returns when the device is done."""

    def output(self) -> Array:
        return self.loaded.output().astype(np.float32)

    def weights(self) -> Weights:
        # The exporter's input, as the exporter may have folded some weights into others.
        with np.load(self.folder / "weights.npz") as weights:
            return dict(weights)

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        self._export(weights)
        self._load()

    def relocate(self) -> None:
        # The old network and batch stay until the new ones are loaded, so that these get other addresses.
        former = self.loaded
        self._load()
        del former

    def fingerprint(self) -> Fingerprint:
        return self.loaded.fingerprint()


def _folder() -> Path:
    """A new folder for one exported network; the worker removes it at its end."""
    parent = os.environ.get(EXPORTS)
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=parent))


def _answer(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Start an exporting process for a request, and return its answer.

    Args:
        folder: holds `weights.npz` if the network is to be exported; the files go to its subfolder `exported`.

    Returns:
        The `shapes` of the network's weights; after an export also the `seconds` that the export took.

    Raises:
        ModelError: the network cannot be built or run as it is described.
        UnavailableError: the network cannot be exported.
    """
    (folder / "request.json").write_text(json.dumps(request))
    # The worker has put the user's modules onto its path.
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "fwbench.ext.derived.exporting", str(folder)]
    # No deadline of its own: the process ends with this worker, which has one.
    done = subprocess.run(command, env=variables, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"the exporting process ended with code {done.returncode}: {last}")
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    if "fault" in answer:
        raise ModelError(answer["fault"])
    if "unavailable" in answer:
        raise UnavailableError(answer["unavailable"])
    return answer


def _array(array: Array, image: bool) -> Array:
    """An array of the batch, with the layout and element type that PyTorch's networks take."""
    if image:
        array = array.transpose(0, 3, 1, 2)
    if array.dtype != bool:
        array = array.astype(np.float32 if np.issubdtype(array.dtype, np.floating) else np.int64)
    return np.ascontiguousarray(array)
