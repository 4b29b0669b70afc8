"""The options: names and help texts alone, so that a run that measures nothing waits for no import."""

import argparse
import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest


class _Choices(Iterable[str]):
    """The values of an option, imported from the module that knows them when the option is given or explained."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __iter__(self) -> Iterator[str]:
        found = getattr(importlib.import_module(self._module), self._name)
        return iter(found() if callable(found) else found)


class _Fields(_Choices):
    """Names of fields for the help text; their values are checked when the run begins."""

    def __contains__(self, value: object) -> bool:
        return True


class _Optional(argparse.Action):
    """An option whose value may be left out.

    argparse takes whatever follows the option for its value. In `--fwbench-resume tests/benchmarks` that is a path to
    test, so it is handed back.
    """

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        if isinstance(values, str) and ("::" in values or values.endswith(".py") or os.path.isdir(values)):
            # argparse itself puts arguments here that a subcommand has not recognised.
            vars(namespace).setdefault("_unrecognized_args", []).append(values)
            values = True
        setattr(namespace, self.dest, values)


_SELECTION: Mapping[str, dict[str, Any]] = {
    "--fwbench-profile": {
        "metavar": "PROFILE",
        "choices": _Choices("fwbench.suite.profiles", "PROFILES"),
        "help": "How much to measure: %(choices)s. Default: quick.",
    },
    "--fwbench-study": {
        "metavar": "STUDY",
        "choices": _Choices("fwbench.suite.studies", "studies"),
        "help": "Measure a published study instead of the profile's suite: %(choices)s. Other options change its "
        "settings.",
    },
    "--fwbench-lanes": {
        "metavar": "LANES",
        "help": "Comma-separated lanes, such as torch,jax; `fwbench list` names them. Default: the profile's.",
    },
    "--fwbench-models": {
        "metavar": "MODELS",
        "help": "Comma-separated models: the suite's, which `fwbench list` names, and those of your tests. Default: "
        "all.",
    },
    "--fwbench-batch-sizes": {"metavar": "SIZES", "help": "Comma-separated batch sizes. Default: the profile's."},
    "--fwbench-devices": {
        "metavar": "NUMBERS",
        "help": "Comma-separated numbers of devices over which inference and training are spread (data parallelism): "
        "GPUs, or on a CPU processes with cores of their own. Default: 1.",
    },
    "--fwbench-precision": {
        "metavar": "PRECISIONS",
        "help": "Comma-separated arithmetic: fp64, fp32, tf32, bf16. Default: fp32 (IEEE everywhere).",
    },
    "--fwbench-set": {
        "metavar": "FIELD=VALUES",
        "action": "append",
        "default": [],
        "choices": _Fields("fwbench.suite.selection", "SETTINGS"),
        "help": "Settings of what is measured, as in seed=0,1,2 or optimizer=sgd; each of several values is measured. "
        "Fields: %(choices)s (docs/options.md). May be repeated.",
    },
    "--fwbench-threads": {
        "type": int,
        "metavar": "N",
        "help": "Threads of every lane. Default: one per physical core; one in a duet on a CPU, where threads that "
        "wait for each other would suffer most from other load.",
    },
    "--fwbench-minutes": {
        "type": float,
        "metavar": "MINUTES",
        "help": "The run's minutes. The lanes of a workload take turns when the last of them is measured, and then "
        "in fresh processes, until they are told apart or are equal within 5%%, or these minutes are over. Default: "
        "the profile's, 6 in quick, 10 on a GPU; with 0 no lanes take turns.",
    },
    "--fwbench-python": {
        "metavar": "FRAMEWORK=PATH",
        "action": "append",
        "default": [],
        "help": "Interpreter of a framework's workers and proofs, such as jax=/opt/jax/bin/python, where its packages "
        "have an environment of their own. May be repeated.",
    },
    "--fwbench-workers": {
        "metavar": "ENGINE",
        "help": "Spread the benchmarks over the accelerators of a cluster or of this machine, each of which measures "
        "one at a time. What reaches them is a package: fwbench-ray, for example, is the engine `ray`.",
    },
    "--fwbench-resume": {
        "metavar": "JOURNAL",
        "nargs": "?",
        "const": True,
        "action": _Optional,
        "help": "Go on with a run that was ended: take from its journal what was measured under the same machine, "
        "code, versions and settings, and measure the rest. Default: the newest journal in the storage.",
    },
}

_GATES: Mapping[str, dict[str, Any]] = {
    "--fwbench-against": {
        "metavar": "REVISION|PYTHON|NAME==VERSION",
        "help": "Measure in turns with a git revision of this project, with another interpreter's frameworks, or with "
        "another release, such as jax==0.10.0, which uv installs beside this one, and fail where this one is slower.",
    },
    "--fwbench-gate": {
        "metavar": "allow-mismatch",
        "nargs": "?",
        "const": True,
        "action": _Optional,
        "help": "Fail where a benchmark is worse than in the record of --benchmark-compare=PATH, or is missing; with "
        "allow-mismatch, compare also with records of other machines, settings or profiles.",
    },
    "--fwbench-fail": {
        "metavar": "METRIC:PERCENT[+AMOUNT]",
        "action": "append",
        "default": [],
        # argparse formats help texts, so that a single % is an error.
        "help": "How much of a change fails a gate, as in latency:5%% or peak_memory:2%%+1MiB; metrics: latency, "
        "cpu_time, throughput, peak_memory, program_memory, compile_time, warm_start, first_call, energy. May be "
        "repeated; a test's own is its marker fwbench_fail. `different`, with or without a gate, fails a run in which "
        "two lanes do not compute the same, or in which a gate finds that this side computes something else than the "
        "other; `inconclusive` fails a gate that could not decide a verdict.",
    },
    "--fwbench-summary": {
        "type": Path,
        "metavar": "FILE",
        "help": "Write the findings of a gate as Markdown, for a comment on a pull request; as JSON where FILE ends "
        "in .json.",
    },
    "--fwbench-programs-only": {
        "metavar": "GPU",
        "nargs": "?",
        "const": True,
        "action": _Optional,
        "help": "Time nothing: build and compile each program and take its fingerprint; with "
        "--benchmark-compare=PATH, fail where it is not the one in that record or journal. GPU (a100, b200, h100 or "
        "h200) compiles for that one, on a machine without it; JAX needs the extra fwbench[target] for it.",
    },
}

# Names that options had before, under which they are still known.
EARLIER = {"--fwbench-lanes": "--fwbench-frameworks"}


def add_options(parser: pytest.Parser) -> None:
    """Declare fwbench's options; pytest-benchmark's own are not repeated.

    No option has a default, so options that were given differ from those that were not.
    """
    selection = parser.getgroup("fwbench", "fwbench: what to measure, and how much")
    gates = parser.getgroup("fwbench-gate", "fwbench: what fails a run")
    for group, options in ((selection, _SELECTION), (gates, _GATES)):
        for name, keywords in options.items():
            group.addoption(name, *filter(None, [EARLIER.get(name)]), **keywords)


def given(config: pytest.Config) -> bool:
    """True if an option or its variable was given, even if it is empty: an empty one must be reported."""
    return any(
        # By identity, as 0 equals False.
        value is not None and value is not False and value != []
        for name, value in vars(config.option).items()
        if name.startswith("fwbench_")
    )
