"""Which workloads a run measures and how much: pytest's options, checked, with a profile's defaults behind them."""

import dataclasses
import math
import os
import shlex
import subprocess
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from fwbench.data import NAMES as DATA
from fwbench.machine import Machine, nvml
from fwbench.models import CATALOG, Model, pretrained
from fwbench.record.lanes import LANES, Lane
from fwbench.record.workload import PRECISIONS, Workload
from fwbench.suite.profiles import MINUTES, PROFILES, Protocol
from fwbench.suite.selection import Selection, pythons
from fwbench.suite.studies import STUDIES, SUITES
from fwbench.worker.client import PACKAGE, allocated, command
from fwbench.worker.ranks import RankError, address

# Seconds that a run waits for other load to end where nobody says how long it may.
_PATIENCE = 60.0


def select(config: pytest.Config, machine: Machine) -> Selection:
    """Read and check the options.

    Raises:
        pytest.UsageError: a value is unknown or impossible here; one sentence says which and what to do.
    """
    name = config.getoption("fwbench_study")
    study = STUDIES[name] if name else None
    target = config.getoption("fwbench_target")
    # What is for another device is built on the CPU, and not run.
    device = "cpu" if target else machine.device
    profile = config.getoption("fwbench_profile") or (study.profile if study else "quick")
    data, data_path = _data(config)
    precisions = _names(config, "--fwbench-precision", "precision", PRECISIONS) or ("fp32",)
    if "tf32" in precisions and device == "cpu" and not target:
        raise pytest.UsageError(
            "--fwbench-precision tf32 needs an NVIDIA GPU with tensor cores, and the benchmarks run on the CPU "
            f"({machine.accelerator}): ask for fp32 or bf16."
        )
    weights = config.getoption("fwbench_weights") or "drawn"
    # Whether there is such a model is known when all tests are collected, which may name models of their own.
    models = _names(config, "--fwbench-models", "model", None)
    unpublished = [name for name in models if name in CATALOG and not CATALOG[name].published]
    if weights == "pretrained" and unpublished:
        raise pytest.UsageError(
            f"--fwbench-weights pretrained: torchvision publishes no weights of {', '.join(unpublished)}."
        )
    asked = {
        "lanes": _names(config, "--fwbench-frameworks", "framework", [lane.name for lane in _lanes()]),
        "models": models,
        "batch_sizes": _numbers(config, "--fwbench-batch-sizes", "batch size", 1),
        "seeds": _numbers(config, "--fwbench-seeds", "seed", 0),
        "optimizer": config.getoption("fwbench_optimizer"),
        "learning_rate": config.getoption("fwbench_learning_rate"),
        "data": data,
        "epochs": config.getoption("fwbench_epochs"),
    }
    _check(config)
    return Selection(
        protocol=_steered(config, PROFILES[profile].on(machine.device)),
        suite=study.parts if study else SUITES[device][profile],
        asked={name: value for name, value in asked.items() if value not in (None, ())},
        precisions=precisions,
        study=name,
        weights=weights,
        pythons=_pythons(config),
        device=device,
        training={
            "accumulate": _at_least_one(config, "--fwbench-accumulate"),
            "remat": config.getoption("fwbench_remat"),
        },
        data_path=data_path,
        threads=_threads(config, machine),
        processes=_at_least_one(config, "--fwbench-processes"),
        patience=_patience(config),
        minutes=_minutes(config, profile),
        plain=config.getoption("fwbench_plain"),
        target=target,
        fallback=not config.getoption("fwbench_no_fallback"),
        fit_batch=config.getoption("fwbench_fit_batch"),
        devices=_devices(config, machine),
        scaling=config.getoption("fwbench_scaling") or "weak",
        coordinator=_coordinator(config),
    )


def _check(config: pytest.Config) -> None:
    """Refuse what would make no workload, whatever the tests are.

    Raises:
        pytest.UsageError: one sentence.
    """
    epochs, rate = config.getoption("fwbench_epochs"), config.getoption("fwbench_learning_rate")
    try:
        Workload("", "", mode="fit", epochs=1 if epochs is None else epochs, learning_rate=rate)
    except ValueError as error:
        raise pytest.UsageError(f"{error}.") from None


def steered_by_marker(protocol: Protocol, marker: pytest.Mark | None) -> Protocol:
    """The protocol with what a test's own `benchmark` marker asks for; it wins over the command line."""
    kwargs = marker.kwargs if marker else {}
    changes: dict[str, Any] = {
        name: kwargs[name] for name in ("min_rounds", "precision", "confidence", "disable_gc") if name in kwargs
    }
    if "max_time" in kwargs:
        changes |= _times(protocol, float(kwargs["max_time"]))
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
        changes |= _times(protocol, float(config.getoption("benchmark_max_time")))
    if "--benchmark-warmup-iterations" in given:
        changes["warmup_iterations"] = config.getoption("benchmark_warmup_iterations")
    if "--benchmark-warmup" in given and not config.getoption("benchmark_warmup"):
        changes["warmup_iterations"] = 0
    if config.getoption("benchmark_precision") is not None:
        changes["precision"] = float(config.getoption("benchmark_precision"))
    changes["disable_gc"] = config.getoption("benchmark_disable_gc")
    if config.getoption("fwbench_programs_only"):
        changes |= {"programs": True, "warmup_iterations": 2, "least_warmup_time": 0.0}
    return dataclasses.replace(protocol, **changes)


def _times(protocol: Protocol, max_time: float) -> dict[str, float]:
    # pytest-benchmark: even the warm-up obeys the maximal time.
    at_most = {name: min(getattr(protocol, name), max_time) for name in ("least_warmup_time", "percentile_time")}
    return {"max_time": max_time, "warmup_time": max_time, "throughput_time": max_time, **at_most}


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


def _names(config: pytest.Config, option: str, kind: str, known: Collection[str] | None) -> tuple[str, ...]:
    text = config.getoption(option)
    names = tuple(dict.fromkeys(_split(text or "")))
    if text is not None and not names:
        choice = f": choose from {', '.join(known)}" if known else ""
        raise pytest.UsageError(f"{option} names no {kind}{choice}.")
    for name in names:
        if known is not None and name not in known:
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
    given: int | None = config.getoption(option[2:].replace("-", "_"))
    number = 1 if given is None else given
    if number < 1:
        raise pytest.UsageError(f"{option} {number} is not a whole number of at least 1.")
    return number


def _devices(config: pytest.Config, machine: Machine) -> tuple[int, ...]:
    numbers = _numbers(config, "--fwbench-devices", "number of devices", 1) or (1,)
    most = max(numbers)
    if most == 1:
        return numbers
    asked = f"--fwbench-devices {most}"
    for option in ("--fwbench-against", "--fwbench-target", "--fwbench-programs-only"):
        if config.getoption(option[2:].replace("-", "_")) not in (None, False):
            raise pytest.UsageError(f"{option} looks at one device alone: leave {asked} out.")
    if allocated(os.environ):
        # Slurm knows what its other nodes have, and refuses what they have not.
        return numbers
    there = len(machine.cpus) if machine.device == "cpu" else len(nvml.visible(most))
    if most > there:
        kind = "cores, one for each device" if machine.device == "cpu" else "GPUs that CUDA sees"
        raise pytest.UsageError(f"{asked}: this machine has {there} {kind}; ask for no more devices.")
    return numbers


def _coordinator(config: pytest.Config) -> str:
    text: str | None = config.getoption("fwbench_coordinator")
    if text is None:
        return ""
    try:
        address(text)
    except RankError as error:
        raise pytest.UsageError(f"--fwbench-coordinator: {error}.") from None
    return text


def _patience(config: pytest.Config) -> float:
    """A duet's sides meet the same load, and a program is the same under any."""
    given: float | None = config.getoption("fwbench_patience")
    if given is not None and not 0 <= given < math.inf:
        raise pytest.UsageError(f"--fwbench-patience {given:g} is not a number of seconds: give 0 or more.")
    steady = config.getoption("fwbench_against") is not None or config.getoption("fwbench_programs_only")
    return 0.0 if steady else _PATIENCE if given is None else given


def _minutes(config: pytest.Config, profile: str) -> float:
    given: float | None = config.getoption("fwbench_minutes")
    if given is not None and not 0 <= given < math.inf:
        raise pytest.UsageError(f"--fwbench-minutes {given:g} is not a number of minutes: give 0 or more.")
    without = [name for name in ("programs_only", "workers") if config.getoption(f"fwbench_{name}")]
    if given and without:
        raise pytest.UsageError(
            f"--fwbench-minutes cannot work with --fwbench-{without[0].replace('_', '-')}, with which no lanes take "
            "turns: leave one of them out."
        )
    if given is None:
        # A duet goes on until it has decided.
        given = 0.0 if without or config.getoption("fwbench_against") else MINUTES[profile]
    return given


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


def fetch_weights(models: Iterable[Model], python: str) -> None:
    """Let PyTorch fetch the published weights that are missing on this machine.

    Args:
        python: the interpreter that has PyTorch.

    Raises:
        pytest.UsageError: they cannot be had.
    """
    missing = [model.name for model in models if not pretrained.path(model).is_file()]
    if missing:
        fetch = PACKAGE / "frameworks" / "torch" / "pretrained.py"
        done = subprocess.run(command(python, fetch, *missing), capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2]
            raise pytest.UsageError(f"--fwbench-weights pretrained: {reason}.")


def _lanes() -> list[Lane]:
    """Those that a user may choose."""
    return [lane for lane in LANES.values() if not lane.internal]


def _pythons(config: pytest.Config) -> dict[str, str]:
    try:
        return pythons(config.getoption("fwbench_python"))
    except ValueError as error:
        raise pytest.UsageError(f"--fwbench-python {error}.") from None
