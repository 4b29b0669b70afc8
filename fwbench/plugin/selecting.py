"""The selection of a run's workloads and amounts: pytest's options, checked, with a profile's defaults behind them.

A value that is unknown or impossible here is a pytest.UsageError or UserError: one sentence, with the next step.
"""

import dataclasses
import math
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from fwbench.errors import hint
from fwbench.machine import Machine, nvml
from fwbench.models import CATALOG
from fwbench.record.fields import Field, parse
from fwbench.record.lanes import LANES
from fwbench.record.workload import FIELDS
from fwbench.suite.profiles import MINUTES, PROFILES, Protocol
from fwbench.suite.selection import SETTINGS, Selection, pythons
from fwbench.suite.studies import SUITES, studies
from fwbench.worker.client.starting import allocated


def select(config: pytest.Config, machine: Machine) -> Selection:
    """Read and check the options."""
    name = config.getoption("fwbench_study")
    study = studies()[name] if name else None
    programs = config.getoption("fwbench_programs_only")
    target = (programs,) if isinstance(programs, str) else ()
    # A program for another device is built on the CPU, and does not run.
    device = "cpu" if target else machine.device
    profile = config.getoption("fwbench_profile") or (study.profile if study else "quick")
    precisions = _values(config, "--fwbench-precision", "precision")
    if "tf32" in precisions and device == "cpu" and not target:
        raise pytest.UsageError(
            "--fwbench-precision tf32 needs an NVIDIA GPU with tensor cores, and the benchmarks run on the CPU "
            f"({machine.accelerator}): ask for fp32 or bf16."
        )
    given = _settings(config)
    # Collected tests may name models of their own, so unknown names are checked after collection.
    models = _values(config, "--fwbench-models", "model")
    unpublished = [name for name in models if name in CATALOG and not CATALOG[name].published]
    if given.get("weights") == ("pretrained",) and unpublished:
        raise pytest.UsageError(
            f"--fwbench-set weights=pretrained: torchvision publishes no weights of {', '.join(unpublished)}."
        )
    lanes = _values(config, "--fwbench-lanes", "lane")
    known = [lane.name for lane in LANES.values() if not lane.internal]
    for unknown in (lane for lane in lanes if lane not in LANES or lane.partition(":")[0] not in known):
        raise pytest.UsageError(f"unknown lane {unknown!r} in --fwbench-lanes: {hint(unknown, known)}.")
    asked = {"lanes": lanes, "models": models, "batch_sizes": _values(config, "--fwbench-batch-sizes", "batch_size")}
    settings = {"precision": precisions, "target": target} | {n: v for n, v in given.items() if n in FIELDS}
    of_run = {name: values[0] for name, values in given.items() if name not in FIELDS}
    if programs or config.getoption("fwbench_against") is not None:
        # The sides of a duet meet the same load, and a program is the same under any load: neither waits.
        of_run["patience"] = 0
    return Selection(
        protocol=_steered(config, PROFILES[profile].on(machine.device)),
        suite=study.parts if study else SUITES[device][profile],
        asked={name: values for name, values in asked.items() if values},
        settings={name: values for name, values in settings.items() if values},
        study=name,
        pythons=pythons(config.getoption("fwbench_python")),
        device=device,
        threads=_threads(config, machine),
        minutes=_minutes(config, profile, machine.device),
        devices=_devices(config, machine),
        **of_run,
    )


def _settings(config: pytest.Config) -> dict[str, tuple[Any, ...]]:
    """The values that `--fwbench-set` gives, by field."""
    texts = config.getoption("fwbench_set")
    for name in (text.partition("=")[0] for text in texts):
        if name in FIELDS and FIELDS[name].source:
            raise pytest.UsageError(f"--fwbench-set does not set {name}, which {FIELDS[name].source} decides.")
    return _parsed("--fwbench-set", texts, SETTINGS)


def _values(config: pytest.Config, option: str, name: str) -> tuple[Any, ...]:
    """The values of a field that has an option of its own; none if the option was not given."""
    text = config.getoption(option)
    return () if text is None else _parsed(option, [f"{name}={text}"], FIELDS)[name]


def _parsed(option: str, texts: Iterable[str], known: Mapping[str, Field]) -> dict[str, tuple[Any, ...]]:
    try:
        return parse(texts, known, several=True)
    except ValueError as error:
        raise pytest.UsageError(f"{option}: {error}.") from None


def steered(protocol: Protocol, given: Mapping[str, Any]) -> Protocol:
    """The protocol, changed by settings of pytest-benchmark's, which options or a test's `benchmark` marker give."""
    names = ("min_rounds", "precision", "confidence", "disable_gc", "warmup_iterations")
    changes: dict[str, Any] = {name: given[name] for name in names if name in given}
    if "max_time" in given:
        changes |= _times(protocol, float(given["max_time"]))
    if given.get("warmup") is False:
        changes["warmup_iterations"] = 0
    return dataclasses.replace(protocol, **changes)


def _steered(config: pytest.Config, protocol: Protocol) -> Protocol:
    """The profile's protocol, changed by those of pytest-benchmark's own options that were given."""
    options = _given_options(config)
    given: dict[str, Any] = {
        name: config.getoption(f"benchmark_{name}")
        for name in ("min_rounds", "max_time", "warmup_iterations", "warmup")
        if f"--benchmark-{name.replace('_', '-')}" in options
    }
    given["confidence"] = float(config.getoption("benchmark_confidence"))
    given["disable_gc"] = config.getoption("benchmark_disable_gc")
    if (precision := config.getoption("benchmark_precision")) is not None:
        given["precision"] = float(precision)
    changed = steered(protocol, given)
    if config.getoption("fwbench_programs_only"):
        return dataclasses.replace(changed, programs=True, warmup_iterations=2, least_warmup_time=0.0)
    return changed


def _times(protocol: Protocol, max_time: float) -> dict[str, float]:
    # In pytest-benchmark, too, the warm-up obeys the maximal time.
    at_most = {name: min(getattr(protocol, name), max_time) for name in ("least_warmup_time", "percentile_time")}
    return {"max_time": max_time, "warmup_time": max_time, "throughput_time": max_time, **at_most}


def _given_options(config: pytest.Config) -> set[str]:
    """The options that were given: pytest-benchmark's defaults must not override a profile's amounts."""
    arguments = [
        *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
        *config.getini("addopts"),
        *map(str, config.invocation_params.args),
    ]
    return {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}


def _threads(config: pytest.Config, machine: Machine) -> int:
    if config.getoption("fwbench_threads") is None:
        return 1 if config.getoption("fwbench_against") is not None and machine.device == "cpu" else machine.threads
    threads: int = config.getoption("fwbench_threads")
    if threads < 1:
        raise pytest.UsageError(f"--fwbench-threads {threads} is not a whole number of at least 1.")
    if threads > len(machine.cpus):
        raise pytest.UsageError(
            f"--fwbench-threads {threads}: this process may use {len(machine.cpus)} cores; ask for no more threads."
        )
    return threads


def _devices(config: pytest.Config, machine: Machine) -> tuple[int, ...]:
    numbers = _values(config, "--fwbench-devices", "devices") or (1,)
    most = max(numbers)
    if most == 1:
        return numbers
    if allocated(os.environ):
        # Slurm knows what its other nodes have, and refuses a request that they cannot meet.
        return numbers
    there = len(machine.cpus) if machine.device == "cpu" else len(nvml.visible(most))
    if most > there:
        kind = "cores, one for each device" if machine.device == "cpu" else "GPUs that CUDA sees"
        raise pytest.UsageError(f"--fwbench-devices {most}: this machine has {there} {kind}; ask for no more devices.")
    return numbers


def _minutes(config: pytest.Config, profile: str, device: str) -> float:
    given: float | None = config.getoption("fwbench_minutes")
    if given is not None and not 0 <= given < math.inf:
        raise pytest.UsageError(f"--fwbench-minutes {given:g} is not a number of minutes: give 0 or more.")
    # Without lanes that take turns there is no limit, and a duet runs until it has decided.
    without = any(config.getoption(f"fwbench_{name}") for name in ("programs_only", "workers", "against"))
    return (0.0 if without else MINUTES[device][profile]) if given is None else given
