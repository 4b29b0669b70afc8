"""Which workloads a run measures and how much: pytest's options, checked, with a profile's defaults behind them."""

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from fwbench.data import NAMES as DATA
from fwbench.machine import Machine
from fwbench.models import CATALOG, pretrained
from fwbench.record.lanes import LANES
from fwbench.record.workload import MODES, OPTIMIZERS, PRECISIONS, WEIGHTS
from fwbench.suite.profiles import PROFILES, Protocol
from fwbench.suite.selection import Selection
from fwbench.suite.studies import STUDIES, SUITES, Part
from fwbench.worker.client import PACKAGE, command

_FRAMEWORKS = tuple(dict.fromkeys(lane.framework for lane in LANES.values() if not lane.internal))
_LANES = tuple(name for name, lane in LANES.items() if not lane.internal)
_MODELS = tuple(name for name, model in CATALOG.items() if model.parameters)


def add_options(group: pytest.OptionGroup) -> None:
    """Declare fwbench's options: those that pytest-benchmark does not have."""
    group.addoption(
        "--fwbench-profile",
        choices=tuple(PROFILES),
        help="How much to measure. Default: paper where there is a GPU, else quick.",
    )
    group.addoption(
        "--fwbench-study",
        choices=tuple(STUDIES),
        help="Measure a published study instead of the profile's suite; other options change its settings.",
    )
    group.addoption(
        "--fwbench-frameworks",
        metavar="LANES",
        help=f"Comma-separated lanes: {', '.join(_LANES)}. Default: the profile's.",
    )
    group.addoption(
        "--fwbench-models",
        metavar="MODELS",
        help=f"Comma-separated models: {', '.join(_MODELS)}. Default: the suite's.",
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
        "--fwbench-seeds",
        metavar="SEEDS",
        help="Comma-separated seeds of weights and of the data's order. Default: 0, or the study's.",
    )
    group.addoption("--fwbench-optimizer", choices=OPTIMIZERS, help="Of training. Default: adam, or the study's.")
    group.addoption(
        "--fwbench-learning-rate",
        type=float,
        metavar="RATE",
        help="Of training. Default: the optimizer's, or the study's.",
    )
    group.addoption(
        "--fwbench-accumulate",
        type=int,
        default=1,
        metavar="N",
        help="Cut each training batch into N parts and add up their gradients. Default: 1.",
    )
    group.addoption(
        "--fwbench-remat",
        action="store_true",
        help="Rematerialisation: compute a block's activations again in the backward pass instead of keeping them.",
    )
    group.addoption(
        "--fwbench-data",
        metavar="NAME[=PATH]",
        help=f"Data of fits: {', '.join(DATA)}; mnist needs the folder of its files, imagenet-100 takes a folder or a "
        "name on the Hugging Face hub. Default: the suite's.",
    )
    group.addoption("--fwbench-epochs", type=int, metavar="N", help="Epochs of fits. Default: the suite's.")
    group.addoption(
        "--fwbench-weights",
        choices=WEIGHTS,
        default="drawn",
        help="The models' weights: drawn with a seed (the default), or torchvision's published ones, fetched once.",
    )
    group.addoption(
        "--fwbench-threads",
        type=int,
        metavar="N",
        help="Threads of every lane. Default: one a physical core; one in a duet on a CPU, where threads that wait for "
        "each other would suffer most from other load.",
    )
    group.addoption(
        "--fwbench-processes",
        type=int,
        default=1,
        metavar="K",
        help="Measure each workload in so many processes, whose differences a gate needs to know. Default: 1.",
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
    name = config.getoption("fwbench_study")
    study = STUDIES[name] if name else None
    here = "paper" if machine.device == "gpu" else "quick"
    profile = config.getoption("fwbench_profile") or (study.profile if study else here)
    lanes = _names(config, "--fwbench-frameworks", "framework", _LANES)
    models = _names(config, "--fwbench-models", "model", _MODELS)
    data, data_path = _data(config)
    precisions = _names(config, "--fwbench-precision", "precision", PRECISIONS)
    if "tf32" in precisions and machine.device == "cpu":
        raise pytest.UsageError(
            "--fwbench-precision tf32 needs an NVIDIA GPU with tensor cores, and the benchmarks run on the CPU "
            f"({machine.accelerator}): ask for fp32 or bf16."
        )
    pythons = _pythons(config)
    weights = config.getoption("fwbench_weights")
    parts = study.parts if study else SUITES[profile]
    if weights == "pretrained":
        asked = models or tuple(dict.fromkeys(model for part in parts for model in part.models))
        models = _with_pretrained_weights(config, asked, pythons.get("torch", sys.executable))
    asked_for = {
        "models": models,
        "batch_sizes": _numbers(config, "--fwbench-batch-sizes", "batch size", 1),
        "seeds": _numbers(config, "--fwbench-seeds", "seed", 0),
        "optimizer": config.getoption("fwbench_optimizer"),
        "learning_rate": config.getoption("fwbench_learning_rate"),
        "data": data,
        "epochs": config.getoption("fwbench_epochs"),
    }
    selection = Selection(
        protocol=_steered(config, PROFILES[profile]),
        parts=tuple(_asked_for(part, asked_for, lanes, study=study is not None) for part in parts),
        precisions=precisions,
        study=name,
        weights=weights,
        pythons=pythons,
        device=machine.device,
        training={
            "accumulate": config.getoption("fwbench_accumulate"),
            "remat": config.getoption("fwbench_remat"),
        },
        data_path=data_path,
        threads=_threads(config, machine),
        processes=_at_least_one(config, "--fwbench-processes"),
    )
    # All of them now, so that a combination that makes no sense is told before anything runs.
    for mode in MODES:
        selection.workloads(mode)
    return selection


def _asked_for(part: Part, changes: Mapping[str, Any], lanes: tuple[str, ...], *, study: bool) -> Part:
    """The part with what the options ask for; a study's variant keeps the lane and the optimizer that it is about.

    Without a study nobody who names a large model asks for epochs of it, which take hours: of what a suite fits, the
    named models are left.
    """
    changes = {name: value for name, value in changes.items() if value not in (None, ())}
    if part.mode == "fit" and not study and "models" in changes:
        changes["models"] = tuple(model for model in part.models if model in changes["models"])
    if part.variant:
        changes.pop("optimizer", None)
        lanes = tuple(lane for lane in part.lanes if lane in (lanes or part.lanes))
    return dataclasses.replace(part, lanes=lanes or (() if part.variant else part.lanes), **changes)


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
    if config.getoption("fwbench_programs_only"):
        changes |= {"programs": True, "warmup_iterations": 2}
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


def _numbers(config: pytest.Config, option: str, kind: str, least: int) -> tuple[int, ...]:
    text = config.getoption(option)
    numbers = []
    for part in _split(text or ""):
        if not part.isdecimal() or int(part) < least:
            raise pytest.UsageError(f"{kind} {part!r} in {option} is not a whole number of at least {least}.")
        numbers.append(int(part))
    if text is not None and not numbers:
        raise pytest.UsageError(f"{option} names no {kind}: give whole numbers of at least {least}.")
    return tuple(dict.fromkeys(numbers))


def _threads(config: pytest.Config, machine: Machine) -> int:
    if config.getoption("fwbench_threads") is None:
        return 1 if config.getoption("fwbench_against") is not None and machine.device == "cpu" else machine.threads
    threads = _at_least_one(config, "--fwbench-threads")
    if threads > len(machine.cpus):
        raise pytest.UsageError(
            f"--fwbench-threads {threads}: this process may use {len(machine.cpus)} cores; ask for no more threads."
        )
    return threads


def _at_least_one(config: pytest.Config, option: str) -> int:
    number: int = config.getoption(option[2:].replace("-", "_"))
    if number < 1:
        raise pytest.UsageError(f"{option} {number} is not a whole number of at least 1.")
    return number


def _data(config: pytest.Config) -> tuple[str | None, str | None]:
    """The name of the data, and where they are."""
    text = config.getoption("fwbench_data")
    if text is None:
        return None, None
    name, _, path = text.partition("=")
    if name not in DATA:
        raise pytest.UsageError(f"unknown data {name!r} in --fwbench-data: choose from {', '.join(DATA)}.")
    if name == "mnist" and not path:
        raise pytest.UsageError("--fwbench-data mnist needs the folder of its four IDX files: mnist=PATH.")
    if path and name in ("digits", "synthetic"):
        raise pytest.UsageError(f"--fwbench-data {name} takes no path, but was given {path!r}: leave it out.")
    return name, path or None


def _with_pretrained_weights(config: pytest.Config, models: tuple[str, ...], python: str) -> tuple[str, ...]:
    """The models that have published weights, all of them on this machine: what is missing is fetched by PyTorch."""
    unpublished = [name for name in models if not CATALOG[name].published]
    if unpublished and config.getoption("fwbench_models"):
        raise pytest.UsageError(
            f"--fwbench-weights pretrained: torchvision publishes no weights of {', '.join(unpublished)}."
        )
    models = tuple(name for name in models if name not in unpublished)
    missing = [name for name in models if not pretrained.path(CATALOG[name]).is_file()]
    if missing:
        fetch = PACKAGE / "frameworks" / "torch" / "pretrained.py"
        done = subprocess.run(command(python, fetch, *missing), capture_output=True, text=True)
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
