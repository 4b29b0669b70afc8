"""What hangs on the core: each folder of `fwbench/ext` is an extension, and says in its `EXTENSION` what it adds.

The core works without any of them, and imports none but by what is said there, when it is used.
"""

import functools
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).with_name("ext")


@dataclass(frozen=True)
class Extension:
    """What an extension adds to the core, by import paths: `package.module`, or `package.module:name`.

    Attributes:
        commands: of `fwbench`, by name: a line for its help, and the module whose `add(parser)` declares the options
            and sets `run`, from the parsed arguments to an exit code.
        tables: a function from a report's cases to tables (`fwbench.report.tables.Table`); empty: there is none.
        formats: of `fwbench report`, by name: a function that writes the files and returns their paths
            (`fwbench.commands.report.Writer`).
        pool: a function from an engine's name to the accelerators over which a run is spread
            (`fwbench.plugin.pooling.Pool`); empty: there is none.
        cause: a function from a `fwbench.gates.contract.Regression` to sentences on what made it; empty: there is none.
    """

    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    tables: str = ""
    formats: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    cause: str = ""


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """All extensions that are here, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)]) if module.ispkg)
    return tuple(import_module(f"fwbench.ext.{name}").EXTENSION for name in names)


def resolve(path: str) -> Any:
    """What an import path of an extension names."""
    return pkgutil.resolve_name(path)
