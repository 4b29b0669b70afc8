"""Which workloads a run measures and how much: pytest's options, checked, with a profile's defaults behind them."""

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from fwbench.lanes import LANES
from fwbench.machine import Machine
from fwbench.models import CATALOG, pretrained
from fwbench.profiles import PROFILES, Protocol
from fwbench.worker.client import importing
from fwbench.workload import PRECISIONS, WEIGHTS, Workload

_FRAMEWORKS = tuple(dict.fromkeys(lane.framework for lane in LANES.values() if not lane.internal))
_LANES = tuple(name for name, lane in LANES.items() if not lane.internal)
_MODELS = tuple(name for name, model in CATALOG.items() if model.parameters)


@dataclass(frozen=True)
class Selection:
    """The axes of a run and its protocol.

    Attributes:
        lanes, models, batch_sizes, precisions: what to measure, in order.
        train_batch_sizes: the batch sizes of training modes.
        pythons: interpreter by framework, for those that do not run under pytest's own.
        weights: `drawn` or `pretrained`.
        device: `cpu` or `gpu`.
    """

    protocol: Protocol
    lanes: tuple[str, ...]
    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    train_batch_sizes: tuple[int, ...]
    precisions: tuple[str, ...]
    weights: str
    pythons: Mapping[str, str]
    device: str

    def workloads(self, mode: str) -> list[Workload]:
        """Every combination in one mode; lanes of one model and batch size stand side by side."""
        return [
            Workload(lane, model, mode, batch_size, precision, self.device, self.weights)
            for model in self.models
            for batch_size in (self.batch_sizes if mode == "inference" else self.train_batch_sizes)
            for precision in self.precisions
            for lane in self.lanes
        ]


def add_options(group: pytest.OptionGroup) -> None:
    """Declare fwbench's options: those that pytest-benchmark does not have."""
    group.addoption(
        "--fwbench-profile",
        choices=tuple(PROFILES),
        help="How much to measure. Default: paper where there is a GPU, else quick.",
    )
    group.addoption(
        "--fwbench-frameworks",
        metavar="LANES",
        help=f"Comma-separated lanes: {', '.join(_LANES)}. Default: the profile's.",
    )
    group.addoption(
        "--fwbench-models",
        metavar="MODELS",
        help=f"Comma-separated models: {', '.join(_MODELS)}. Default: all.",
    )
    group.addoption(
        "--fwbench-batch-sizes", metavar="SIZES", help="Comma-separated batch sizes. Default: the profile's."
    )
    group.addoption(
        "--fwbench-precision",
        metavar="PRECISIONS",
        default="fp32",
        help=f"Comma-separated arithmetic: {', '.join(PRECISIONS)}. Default: fp32 (IEEE everywhere).",
    )
    group.addoption(
        "--fwbench-weights",
        choices=WEIGHTS,
        default="drawn",
        help="The models' weights: drawn with a seed (the default), or torchvision's published ones, fetched once.",
    )
    group.addoption(
        "--fwbench-python",
        metavar="FRAMEWORK=PATH",
        action="append",
        default=[],
        help=f"Interpreter of a framework's workers ({', '.join(_FRAMEWORKS)}), where its packages live apart. "
        "May be repeated.",
    )


def select(config: pytest.Config, machine: Machine) -> Selection:
    """Read and check the options.

    Raises:
        pytest.UsageError: a value is unknown or impossible here; one sentence says which and what to do.
    """
    profile = PROFILES[config.getoption("fwbench_profile") or ("paper" if machine.device == "gpu" else "quick")]
    lanes = _names(config, "--fwbench-frameworks", "framework", _LANES) or profile.lanes
    models = _names(config, "--fwbench-models", "model", _MODELS) or _MODELS
    precisions = _names(config, "--fwbench-precision", "precision", PRECISIONS)
    if "tf32" in precisions and machine.device == "cpu":
        raise pytest.UsageError(
            "--fwbench-precision tf32 needs an NVIDIA GPU with tensor cores, and the benchmarks run on the CPU "
            f"({machine.accelerator}): ask for fp32 or bf16."
        )
    batch_sizes = _batch_sizes(config)
    pythons = _pythons(config)
    weights = config.getoption("fwbench_weights")
    if weights == "pretrained":
        models = _with_pretrained_weights(config, models, pythons.get("torch", sys.executable))
    return Selection(
        protocol=_steered(config, profile.protocol),
        lanes=lanes,
        models=models,
        batch_sizes=batch_sizes or profile.batch_sizes,
        train_batch_sizes=batch_sizes or profile.train_batch_sizes,
        precisions=precisions,
        weights=weights,
        pythons=pythons,
        device=machine.device,
    )


def steered_by_marker(protocol: Protocol, marker: pytest.Mark | None) -> Protocol:
    """The protocol with what a test's own `benchmark` marker asks for; it wins over the command line."""
    kwargs = marker.kwargs if marker else {}
    changes: dict[str, Any] = {
        name: kwargs[name] for name in ("min_rounds", "precision", "confidence", "disable_gc") if name in kwargs
    }
    if "max_time" in kwargs:
        changes |= _times(float(kwargs["max_time"]))
    if "warmup_iterations" in kwargs:
        changes["warmup_iterations"] = kwargs["warmup_iterations"]
    if kwargs.get("warmup") is False:
        changes["warmup_iterations"] = 0
    return dataclasses.replace(protocol, **changes)


def _steered(config: pytest.Config, protocol: Protocol) -> Protocol:
    """The profile's protocol with what pytest-benchmark's own options ask for, where they were given."""
    given = _given_options(config)
    changes: dict[str, Any] = {"confidence": float(config.getoption("benchmark_confidence"))}
    if "--benchmark-min-rounds" in given:
        changes["min_rounds"] = config.getoption("benchmark_min_rounds")
    if "--benchmark-max-time" in given:
        changes |= _times(float(config.getoption("benchmark_max_time")))
    if "--benchmark-warmup-iterations" in given:
        changes["warmup_iterations"] = config.getoption("benchmark_warmup_iterations")
    if "--benchmark-warmup" in given and not config.getoption("benchmark_warmup"):
        changes["warmup_iterations"] = 0
    if config.getoption("benchmark_precision") is not None:
        changes["precision"] = float(config.getoption("benchmark_precision"))
    changes["disable_gc"] = config.getoption("benchmark_disable_gc")
    return dataclasses.replace(protocol, **changes)


def _times(max_time: float) -> dict[str, float]:
    # pytest-benchmark: even the warm-up obeys the maximal time.
    return {"max_time": max_time, "warmup_time": max_time, "throughput_time": max_time}


def _given_options(config: pytest.Config) -> set[str]:
    """The options that somebody gave: pytest-benchmark's defaults must not override a profile's amounts."""
    arguments = [
        *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
        *config.getini("addopts"),
        *map(str, config.invocation_params.args),
    ]
    return {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _names(config: pytest.Config, option: str, kind: str, known: Iterable[str]) -> tuple[str, ...]:
    text = config.getoption(option)
    names = tuple(dict.fromkeys(_split(text or "")))
    if text is not None and not names:
        raise pytest.UsageError(f"{option} names no {kind}: choose from {', '.join(known)}.")
    for name in names:
        if name not in known:
            raise pytest.UsageError(f"unknown {kind} {name!r} in {option}: choose from {', '.join(known)}.")
    return names


def _batch_sizes(config: pytest.Config) -> tuple[int, ...]:
    option = "--fwbench-batch-sizes"
    text = config.getoption(option)
    sizes = []
    for part in _split(text or ""):
        if not part.isdecimal() or int(part) < 1:
            raise pytest.UsageError(f"batch size {part!r} in {option} is not a whole number of at least 1.")
        sizes.append(int(part))
    if text is not None and not sizes:
        raise pytest.UsageError(f"{option} names no batch size: give whole numbers of at least 1.")
    return tuple(dict.fromkeys(sizes))


def _with_pretrained_weights(config: pytest.Config, models: tuple[str, ...], python: str) -> tuple[str, ...]:
    """The models that have published weights, all of them on this machine: what is missing is fetched by PyTorch."""
    unpublished = [name for name in models if not CATALOG[name].torchvision]
    if unpublished and config.getoption("fwbench_models"):
        raise pytest.UsageError(
            f"--fwbench-weights pretrained: torchvision publishes no weights of {', '.join(unpublished)}."
        )
    models = tuple(name for name in models if name not in unpublished)
    missing = [name for name in models if not pretrained.path(CATALOG[name]).is_file()]
    if missing:
        command = [python, "-m", "fwbench.frameworks.torch.pretrained", *missing]
        done = subprocess.run(command, env=importing(os.environ), capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2]
            raise pytest.UsageError(f"--fwbench-weights pretrained: {reason}.")
    return models


def _pythons(config: pytest.Config) -> dict[str, str]:
    pythons = {}
    for entry in config.getoption("fwbench_python"):
        framework, equals, path = entry.partition("=")
        if not equals or framework not in _FRAMEWORKS:
            raise pytest.UsageError(
                f"--fwbench-python {entry!r} is not FRAMEWORK=PATH with a framework of {', '.join(_FRAMEWORKS)}."
            )
        found = shutil.which(path)
        if found is None:
            raise pytest.UsageError(f"--fwbench-python {framework}: there is no interpreter {path!r}; give its path.")
        pythons[framework] = os.path.abspath(found)
    return pythons
