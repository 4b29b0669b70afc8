"""The extensions: each folder of `fwbench/ext` is one, and its `EXTENSION` lists what it adds to the core.

The core works without any of them. It imports their modules only by the paths in `EXTENSION`, when they are used.
"""

import functools
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from fwbench.errors import UserError

_FOLDER = Path(__file__).with_name("ext")


@dataclass(frozen=True)
class Extension:
    """An extension's additions to the core, as import paths: `package.module`, or `package.module:name`.

    Attributes:
        commands: commands of `fwbench`, by name: a line for its help, and a module. The module's `add(parser)` declares
            the options and sets `run`, a function from the parsed arguments to an exit code.
        tables: a function from a setting of a report (`fwbench.compare.cases.Setting`) and its baseline lane, or None,
            to tables (`fwbench.report.tables.Table`); empty: there is none.
        ending: a function to tables that the terminal shows when a run ends, from its measurements, its study's name
            or None, and whether the lanes' own numbers are shown; empty: there is none.
        notes: a function from measurements that have numbers to sentences for readers of these; empty: there is none.
        remarks: a function from a plain test's pairs (`fwbench.compare.pair.Pair`) to phrases on odd times of its
            calls; empty: there is none.
        figures: a function from a report's cases and their baseline lane, or None, to figures
            (`fwbench.report.figures.Drawing`); empty: there is none. It needs Matplotlib.
        formats: formats of `fwbench report`, by name: a function that writes the files and returns their paths
            (`fwbench.commands.report.Writer`).
        lanes: a framework's lanes (`fwbench.record.lanes.Lane`), in their order; empty: there are none.
        pool: a function from an engine's name to the accelerators over which a run is spread
            (`fwbench.plugin.pooling.Pool`); empty: there is none.
        cause: a function from a `fwbench.gates.contract.Regression` to sentences on its cause; empty: there is none.
        prove: a function from a model, a framework's name, a project and `pythons` (interpreters by framework) to a
            `fwbench.models.store.Proved`, the proof of the framework's network, which it stores; a `UserError` if there
            can be no proof. Empty: there is none.
        ranks: a module that measures a workload in one process per device, with the functions of
            `fwbench.ext.cluster.ranks.client`; empty: there is none.
        release: a function from a text and an interpreter to an environment over that interpreter's packages with the
            release that the text states, as in `jax==0.10.0`; its `python` is the path of its interpreter. None if the
            text states none. Empty: there is none.
        check: a function from the machine and a function that prints a line to the findings of `fwbench doctor --check`
            (`fwbench.commands.doctor.findings.Finding`) and the measurements behind them; empty: there is none.
        sending: a function from the machine, findings and measurements to the text of `fwbench doctor --json FILE`;
            empty: there is none.
        programs: the class of the gate of `--fwbench-programs-only` (`fwbench.gates.contract.Gate`), made with pytest's
            configuration, the selection, the machine and the project; empty: there is none.
        resume: a function that returns the conditions of a run for its journal, and what the run takes from an earlier
            journal (`fwbench.plugin.session.Resumed`; None: no journal was asked for); empty: there is none.
        survey: a function that looks at the networks of a run before anything is timed, and reports what is wrong with
            them; empty: there is none.
        pretrained: a module whose `load` returns a model's published weights, and whose `fetch` gets those that are not
            here; empty: there is none.
        studies: a mapping from names to published studies (`fwbench.suite.studies.Study`); empty: there is none.
        kinds: programs for the core's frameworks, by kind (`fwbench.frameworks.extended`) and framework: a function
            from workload, model and weights to a program.
        fit: a function from a `fwbench.worker.process.job.Job` of mode `fit` to a context manager, which holds the
            data. Its value is a function from the framework to the failure of the measurement, or None. Empty: there is
            none.
    """

    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    tables: str = ""
    ending: str = ""
    notes: str = ""
    remarks: str = ""
    figures: str = ""
    formats: Mapping[str, str] = field(default_factory=dict)
    lanes: str = ""
    pool: str = ""
    cause: str = ""
    prove: str = ""
    ranks: str = ""
    release: str = ""
    check: str = ""
    sending: str = ""
    programs: str = ""
    resume: str = ""
    survey: str = ""
    studies: str = ""
    pretrained: str = ""
    kinds: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fit: str = ""


# The extension of fwbench's own that has what the core asks for by `needed`, where it has another name.
_OWN = {"pool": "cluster", "prove": "proofs", "check": "trials", "sending": "trials"}
Kind = Literal[
    "pool", "prove", "ranks", "release", "check", "sending", "programs", "resume", "survey", "pretrained", "fit"
]


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """All extensions in `fwbench/ext`, sorted by name."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)]) if module.ispkg)
    return tuple(import_module(f"fwbench.ext.{name}").EXTENSION for name in names)


def added(kind: Literal["tables", "ending", "notes", "remarks", "figures"], *given: Any) -> list[Any]:
    """What the functions of this kind, of all extensions, make of these arguments."""
    paths = filter(None, (getattr(extension, kind) for extension in extensions()))
    return [each for path in paths for each in resolve(path)(*given)]


def addition(kind: Kind) -> str:
    """The import path of the first extension's addition of this kind; empty if no extension here has one."""
    paths: Iterator[str] = (getattr(extension, kind) for extension in extensions())
    return next(filter(None, paths), "")


def needed(kind: Kind, asking: str) -> Any:
    """The first extension's addition of this kind; a UserError if no extension here has one.

    Args:
        asking: the option or fixture that needs it.
    """
    if path := addition(kind):
        return resolve(path)
    raise UserError(f"{asking} needs fwbench's extension `{_OWN.get(kind, kind)}`, which is not here: leave it out.")


def resolve(path: str) -> Any:
    """The object that an import path of an extension names."""
    return pkgutil.resolve_name(path)
