"""Proof that a training step over N devices is that of one device: the lanes' own programs, in float64.

Data parallelism gives each device an equal slice of the batch, runs the one-device program there, and takes the
optimizer's step with the mean of the gradients. That is exactly what one device does that accumulates the gradients of
as many parts: batch normalisation sees the same slices. Without batch normalisation it is also what one device does
with the whole batch. Running statistics are those of the first device, as of one that is given the first slice alone.

The ranks are real processes on this machine, which run this file with their job as JSON.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fwbench import frameworks
from fwbench.ext.cluster.ranks.star import Place, Star, free_port
from fwbench.ext.proofs.case import STEPS, Array, Case, Optimizer
from fwbench.ext.proofs.errors import Errors, NotTheSame, Quantity, check, gradient_errors, relative_l2
from fwbench.frameworks.contract import CompileTimes, Framework, Ranks, Trainer
from fwbench.frameworks.training import HORIZON, LEARNING_RATE, targets
from fwbench.models import Model
from fwbench.models.inputs import draw as draw_inputs
from fwbench.models.weights import Weights, draw, is_statistic
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload

ROOT = Path(__file__).parents[2]

_DEVICES = 2

# What N devices are compared with: one device that accumulates N parts, one with the whole batch, and, for running
# statistics, one with the first slice.
PARTS, WHOLE, FIRST = "parts", "whole batch", "first slice"

# Samples of each device: batch normalisation needs some.
_SAMPLES, _NORMALISED = 2, 8

OPTIMIZERS: tuple[Optimizer, ...] = ("sgd", "adam")

State = dict[str, Array]
# By the number of steps.
Walk = dict[int, State]
# A program in float64 without randomness, or with the same; the last argument: of one device that takes the place of
# the first of so many.
Build = Callable[[Workload, Model, Weights, Ranks | None, int | None], Trainer]


@dataclass(frozen=True)
class Trial:
    """One proof.

    Attributes:
        mistake: the name of a function in `tests.proving.devices_mutations` that spoils the program over several
            devices; empty: it is as it is.
        optimizers: those whose steps are taken, SGD's among them.
    """

    model: Model
    mistake: str = ""
    optimizers: tuple[Optimizer, ...] = OPTIMIZERS


@dataclass(frozen=True)
class Found:
    """What came of a trial.

    Attributes:
        errors: of each tensor, by what the devices are compared with and by quantity. `gradients` are the change of the
            weights in one SGD step over the learning rate; `sgd` and `adam` the change of the weights in five steps;
            all of them relative to their length, as `gradient_errors` takes it.
        apart: after what the ranks do not hold the same weights, bit for bit; empty where they always do.
    """

    trial: Trial
    errors: Mapping[str, Mapping[Quantity, Errors]]
    apart: tuple[str, ...]

    def check(self) -> dict[str, dict[Quantity, float]]:
        """The largest errors.

        Raises:
            NotTheSame: one of them exceeds its bound, or ranks do not hold the same weights.
        """
        model = self.trial.model
        case = Case(model, "train", axes=tuple(model.proof_axes.items()))
        worst = {
            against: {quantity: check(quantity, errors, case) for quantity, errors in of.items()}
            for against, of in self.errors.items()
        }
        if self.apart:
            raise NotTheSame(f"{model.name}: the ranks do not hold the same weights after {', '.join(self.apart)}")
        return worst


def found(lane: str, trials: Sequence[Trial]) -> list[Found]:
    """Make trials of a framework's own lane over two devices, all of them in the same two processes.

    Raises:
        RuntimeError: a process failed; the message ends with what it said.
    """
    job = {
        "lane": lane,
        "trials": [{**vars(trial), "model": trial.model.to_json()} for trial in trials],
        "port": free_port(),
        "path": sys.path,
    }
    variables = {**os.environ, **LANES[lane].variables(1, "cpu"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="fwbench-") as name, contextlib.ExitStack() as ending:
        folder, ranks = Path(name), []
        for rank in range(_DEVICES):
            command = [sys.executable, "-m", "tests.proving.devices", json.dumps({**job, "rank": rank, "folder": name})]
            with (folder / f"{rank}.output").open("w") as output:
                process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=output, stderr=output)
            ending.callback(process.wait)
            ending.callback(process.kill)
            ranks.append(process)
        while any(process.poll() is None for process in ranks) and not any(process.returncode for process in ranks):
            time.sleep(0.05)
        failed = [folder / f"{rank}.output" for rank, process in enumerate(ranks) if process.returncode]
        if said := [f"rank {file.stem} failed: {file.read_text(errors='replace')[-2000:]}" for file in failed]:
            raise RuntimeError("\n".join(said))
        answers = json.loads((folder / "0.answer").read_text(encoding="utf-8"))
    return [Found(trial, errors, tuple(apart)) for trial, (errors, apart) in zip(trials, answers, strict=True)]


def _answer(job: Mapping[str, Any]) -> list[Any]:
    """For each trial the first rank's errors, and after what the ranks do not hold the same weights."""
    lane, rank = job["lane"], job["rank"]
    ranks = Star(Place(rank, _DEVICES, rank, "127.0.0.1", job["port"], b"key", "a proof"))
    framework = frameworks.load(LANES[lane].adapter)
    framework.join(ranks)
    trials = [Trial(**{**trial, "model": Model.from_json(trial["model"])}) for trial in job["trials"]]
    problems = [_Problem(framework, lane, trial.model) for trial in trials]
    taken: list[dict[Optimizer, Walk]] = []
    answers: list[Any] = []
    for trial, problem in zip(trials, problems, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            if trial.mistake:
                mutations = importlib.import_module("tests.proving.devices_mutations")
                getattr(mutations, trial.mistake)(lane, patch)
            walks = {optimizer: problem.walk(optimizer, ranks) for optimizer in trial.optimizers}
        steps = {f"step {step} of {name}": weights for name, walk in walks.items() for step, weights in walk.items()}
        digests = ranks.gather({after: _digest(weights) for after, weights in steps.items()})
        answers.append(({}, [after for after in steps if len({each[after] for each in digests}) > 1]))
        # ViT-B/16's weights take most of a gigabyte.
        taken.append(walks if rank == 0 else {})
        del walks, steps
    # The others end here, and the first one goes on alone.
    framework.leave()
    if rank == 0:
        for model in dict.fromkeys(trial.model for trial in trials):
            chosen = [number for number, trial in enumerate(trials) if trial.model == model]
            # A model's first trial has all the optimizers of those that follow.
            for against, optimizer, walk in problems[chosen[0]].references(trials[chosen[0]].optimizers):
                for number in chosen:
                    if optimizer in taken[number]:
                        found = problems[number].errors(against, optimizer, taken[number][optimizer], walk)
                        answers[number][0].setdefault(against, {}).update(found)
    return answers


class _Problem:
    def __init__(self, framework: Framework, lane: str, model: Model) -> None:
        self.model, self._lane, self._build = model, lane, _BUILDERS[lane]
        self._sizes = model.sizes(tuple(model.proof_axes.items()))
        self.start = draw(model, framework.weight_shapes(model, self._sizes), seed=0)
        self._normalises = any(map(is_statistic, self.start))
        self.batch_size = _DEVICES * (model.proof_batch or (_NORMALISED if self._normalises else _SAMPLES))

    def walk(self, optimizer: Optimizer, ranks: Ranks | None, **fields: int) -> Walk:
        """The weights over several devices, or, without ranks, on one."""
        fields = {"devices": _DEVICES} if ranks else fields
        return _walk(self._build(self._workload(optimizer, **fields), self.model, self.start, ranks, None))

    def references(self, optimizers: Sequence[Optimizer]) -> Iterator[tuple[str, Optimizer, Walk]]:
        """The weights on one device, by what it is given and by optimizer, one after the other."""
        for optimizer in optimizers:
            yield PARTS, optimizer, self.walk(optimizer, None, accumulate=_DEVICES)
            if not self._normalises:
                yield WHOLE, optimizer, self.walk(optimizer, None)
        if self._normalises:
            yield FIRST, "sgd", _walk(self._of_first_slice(), steps=1)

    def errors(self, against: str, optimizer: Optimizer, taken: Walk, reference: Walk) -> dict[Quantity, Errors]:
        if against == FIRST:
            names = filter(is_statistic, reference[1])
            return {"statistics": {name: relative_l2(taken[1][name], reference[1][name]) for name in names}}
        errors: dict[Quantity, Errors] = {optimizer: self._apart(taken[STEPS], reference[STEPS])}
        if optimizer == "sgd":
            errors["gradients"] = self._apart(taken[1], reference[1], LEARNING_RATE["sgd"])
        return errors

    def _apart(self, actual: State, expected: State, rate: float = 1.0) -> Errors:
        def change(weights: State) -> State:
            return {
                name: (array - self.start[name]) / rate for name, array in weights.items() if not is_statistic(name)
            }

        return gradient_errors(change(actual), change(expected))

    def _of_first_slice(self) -> Trainer:
        """A program of one device that is given the slice of the first of several."""
        samples, whole = self.batch_size // _DEVICES, self._workload("sgd")
        sliced = dataclasses.replace(whole, batch_size=samples)
        program = self._build(sliced, self.model, self.start, None, _DEVICES)
        (images,) = draw_inputs(self.model.inputs, self.batch_size, whole.seed, self._sizes).values()
        labels = targets(whole, self.model, (self.batch_size, self.model.classes))
        assert labels is not None
        program.feed(images[:samples], labels[:samples])
        return program

    def _workload(self, optimizer: Optimizer, **fields: int) -> Workload:
        given: dict[str, Any] = {"optimizer": optimizer, "axes": tuple(self.model.proof_axes.items()), **fields}
        return Workload(self._lane, self.model.name, "train_step", self.batch_size, "fp64", **given)


def _walk(program: Trainer, steps: int = STEPS) -> Walk:
    """The weights after the first step and after the last."""
    found: Walk = {}
    with program.session():
        program.compile()
        for step in range(1, steps + 1):
            program.step()
            program.wait()
            if step in (1, steps):
                # Copies: what JAX shows may be given up by the next step.
                found[step] = {name: np.array(array) for name, array in program.weights().items()}
    return found


def _digest(weights: State) -> str:
    """Of the parameters' bits; running statistics are the first rank's."""
    sha = hashlib.sha256()
    for name in sorted(weights):
        if not is_statistic(name):
            sha.update(weights[name].tobytes())
    return sha.hexdigest()


def _of_torch(workload: Workload, model: Model, weights: Weights, ranks: Ranks | None, first_of: int | None) -> Trainer:
    import torch
    from torchvision.ops import StochasticDepth

    from fwbench.frameworks.torch.training import TrainStep

    program = TrainStep(workload, model, weights, HORIZON, ranks)
    for layer in program.module.modules():
        # Ranks draw other numbers than one process that makes their parts one after the other.
        if isinstance(layer, (torch.nn.Dropout, StochasticDepth)):
            layer.p = 0.0
    return program


def _of_jax(workload: Workload, model: Model, weights: Weights, ranks: Ranks | None, first_of: int | None) -> Trainer:
    import jax

    from fwbench.frameworks.jax.parallel import Devices
    from fwbench.frameworks.jax.training import TrainStep

    class First(Devices):
        """One device, with the random keys of the first of several."""

        def keys(self, key: Any, parts: int) -> Any:
            return jax.random.split(key, (first_of or 1) * parts)[:parts]

    config: Any = jax.config
    # Less than it would take to optimise what runs a few times; but see `_HEAVY` in fwbench/ext/proofs/jax.py.
    config.update("jax_disable_most_optimizations", model.name != "resnet50")
    program = TrainStep(workload, model, weights, HORIZON, ranks)
    if first_of:
        program.devices = First(program.device)
    return program


def _of_tensorflow(
    workload: Workload, model: Model, weights: Weights, ranks: Ranks | None, first_of: int | None
) -> Trainer:
    from fwbench.ext.tensorflow.adapter import FRAMEWORK
    from fwbench.ext.tensorflow.training import TrainStep

    class Traced(TrainStep):
        """Makes no step while it compiles."""

        def compile(self) -> CompileTimes:
            return CompileTimes(self.trace(), None, "TensorFlow compiles within the first training step")

    program = Traced(workload, model, weights, HORIZON, FRAMEWORK.replicas if ranks else None)
    program.network.without_randomness()
    return program


_BUILDERS: Mapping[str, Build] = {"torch": _of_torch, "jax": _of_jax, "tensorflow": _of_tensorflow}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sys.path[:] = given["path"]
    Path(given["folder"], f"{given['rank']}.answer").write_text(json.dumps(_answer(given)), encoding="utf-8")
    # As workers do: threads of gloo that outlive the interpreter's end abort the process.
    os._exit(0)
