"""Objects named by an import path, `package.module:name`, and the errors of a wrong path in one sentence."""

import difflib
import importlib
import inspect
import re
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Folders of installed distributions.
INSTALLED = frozenset({"site-packages", "dist-packages"})
# Codes for bold letters and colours, which Keras puts into its messages.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_FWBENCH = str(Path(__file__).parents[1])


class ModelError(Exception):
    """A model that cannot be built or run as it was described; its text is one sentence that says what to change."""


def split(path: str) -> tuple[str, str]:
    """Module and name of an import path, or a ValueError if it is none."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise ValueError(f"{path!r} is no import path: write it as package.module:name")
    return module, name


def load(path: str) -> Any:
    """Import the object that a path names; a ModelError says what is missing, or what the module has raised."""
    module, name = split(path)
    try:
        imported: Any = importlib.import_module(module)
    # A module may raise what ends a process, as by `sys.exit()`. Ctrl-C is not among it: it ends a worker outright.
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise ModelError(
                f"there is no module {error.name!r}, which {path!r} names: it is looked for in pytest's root folder, "
                "in the folders of its `pythonpath` setting, and among the installed packages"
            ) from None
        raise ModelError(f"importing {module!r} failed: {described(error)}") from error
    for part in name.split("."):
        if not hasattr(imported, part):
            near = difflib.get_close_matches(part, dir(imported), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ModelError(f"the module {module!r} has no {name!r}, which {path!r} names{hint}")
        imported = getattr(imported, part)
    return imported


def arguments(builder: Callable[..., Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of those axes of a model for which a builder has parameters."""
    known = parameters(builder) or {}
    return {axis: size for axis, size in sizes.items() if axis in known}


def parameters(builder: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The parameters of a call by name; None if Python does not know them, as for many functions in C."""
    # A metaclass may have a call of its own that passes all arguments on, as Flax NNX's has.
    passed_on = inspect.isclass(builder) and type(builder).__call__ is not type.__call__
    try:
        parameters = dict(inspect.signature(builder.__init__ if passed_on else builder).parameters)
    except (TypeError, ValueError):
        return None
    if passed_on:
        del parameters[next(iter(parameters))]
    return parameters


def described(error: BaseException) -> str:
    """An exception in half a sentence: its type, its first line, and the line of code that raised it.

    The line is the last one in the user's own project, if there is one: a line in a package or in Python's library is
    further from the code that has to change.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [line for line in _STYLE.sub("", str(error)).splitlines() if line.strip()]
    # Keras puts a line of its own before the message.
    rest = lines[1:] if len(lines) > 1 and lines[0].startswith("Exception encountered when calling") else lines
    message = rest[0].strip()[:300] if rest else ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    others = (sysconfig.get_path("stdlib"), _FWBENCH, "<")
    users = (frame for frame in frames if not INSTALLED & {*Path(frame.filename).parts})
    own = [frame for frame in users if not frame.filename.startswith(others)] or frames
    return f"{text} ({own[-1].filename}, line {own[-1].lineno})" if own else text
