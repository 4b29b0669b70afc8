"""Records the calls of modules in one forward pass of any framework: the module, the calling line, the arrays."""

import contextlib
import functools
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.models.importing import INSTALLED

Array = NDArray[np.float64]

# Attributes that decide what a module computes, each with the common name under which frameworks are compared.
SETTINGS = {
    **dict.fromkeys(("eps", "epsilon", "variance_epsilon"), "epsilon"),
    **{"stride": "stride", "strides": "stride", "padding": "padding"},
    **{"approximate": "approximate", "activation": "activation", "num_heads": "heads", "negative_slope": "slope"},
}

_PACKAGES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})

_PLAIN = (bool, int, float, str, tuple, list, type(None))

# Packages whose stack frames are not a place in a user's network.
_MACHINERY = ("torch.", "jax.", "flax.", "equinox.", "haiku.", "keras.", "tensorflow.", "jaxtyping.", f"{__package__}.")


@dataclass(frozen=True)
class Module:
    """A module that is called.

    Attributes:
        path: the network's own name for it.
        weights: canonical names of all weights in it; None if a weight lies only partly in it, so that no module of the
            other network corresponds to it.
    """

    path: str
    weights: frozenset[str] | None = frozenset()


@dataclass(frozen=True)
class Call:
    """One call of a module, kept on the host in float64.

    Attributes:
        kind: the name of the module's class.
        settings: the module's attributes in `SETTINGS`, by their common names.
        site: file and line where it was called.
        begun: number of calls that were complete when it began. The calls from this index up to its own lie within it.
        inputs: the arrays among its arguments, each once; empty for a module without weights.
        output: the first array that it returned; None if there is none, or the module has no weights.
        changes: false if the output equals the first input.
    """

    module: Module
    kind: str
    settings: Mapping[str, Any]
    site: tuple[str, int] | None
    begun: int
    inputs: tuple[Array, ...] = ()
    output: Array | None = None
    changes: bool = True


@dataclass
class Recorder:
    """Collects calls in the order in which they end.

    Attributes:
        host: copies an array of the framework in float64; returns None for all else, and for an array without numbers.
    """

    host: Callable[[Any], Array | None]
    calls: list[Call] = field(default_factory=list)
    _running: list[str] = field(default_factory=list)

    def call(self, module: Module, owner: Any, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a module's call and record it, once even if its `__call__` calls that of the base class."""
        if module.path in self._running:
            return run(*args, **kwargs)
        begun, site, inputs = len(self.calls), _site(), self._arrays((args, kwargs))
        self._running.append(module.path)
        try:
            returned = run(*args, **kwargs)
        finally:
            self._running.pop()
        output = next(iter(self._arrays(returned)), None)
        changes = output is None or not inputs or not np.array_equal(inputs[0], output, equal_nan=True)
        if module.weights == frozenset():
            inputs, output = (), None
        given = {name: getattr(value, "__name__", value) for name, value in vars(owner).items() if name in SETTINGS}
        settings = {SETTINGS[name]: value for name, value in given.items() if isinstance(value, _PLAIN)}
        self.calls.append(Call(module, type(owner).__name__, settings, site, begun, inputs, output, changes))
        return returned

    def _arrays(self, structure: Any) -> tuple[Array, ...]:
        """The floating-point arrays in a structure, or, if it has none, all other arrays; each array once."""
        leaves = {id(leaf): leaf for leaf in _leaves(structure)}
        pairs = [(leaf, array) for leaf in leaves.values() if (array := self.host(leaf)) is not None]
        floating = tuple(array for leaf, array in pairs if "float" in str(leaf.dtype))
        return floating or tuple(array for _, array in pairs)


@contextlib.contextmanager
def recording(
    base: type, modules: Callable[[Any], Mapping[int, Module]], host: Callable[[Any], Array | None]
) -> Iterator[list[Call]]:
    """Record the calls of a library's modules within this context.

    Args:
        base: the base class of the library's modules.
        modules: returns the modules of a network by their `id`. The first module that is called is the network.
        host: as in `Recorder`.
    """
    recorder = Recorder(host)
    known: dict[int, Module] = {}
    # Held, as Python may give a freed module's `id` to another object.
    networks: list[Any] = []

    def watched(original: Any) -> Any:
        @functools.wraps(original)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not networks:
                networks.append(self)
                known.update(modules(self))
            run = original.__get__(self, type(self))
            module = known.get(id(self))
            return run(*args, **kwargs) if module is None else recorder.call(module, self, run, *args, **kwargs)

        return call

    own = {kind: vars(kind)["__call__"] for kind in _kinds(base) if "__call__" in vars(kind)}
    originals: dict[Any, Any] = {kind: original for kind, original in own.items() if hasattr(original, "__get__")}
    try:
        for kind, original in originals.items():
            kind.__call__ = watched(original)
        yield recorder.calls
    finally:
        for kind, original in originals.items():
            kind.__call__ = original


def shown(site: tuple[str, int], last: int | None = None) -> str:
    """A file and its lines in a few words; the path starts in the current folder or in one of Python's modules."""
    path = Path(site[0])
    roots = (Path.cwd(), *map(Path, (*_PACKAGES, *filter(None, sys.path))))
    near = next((path.relative_to(root) for root in roots if path.is_relative_to(root)), Path(path.name))
    lines = f"line {site[1]}" if last in (None, site[1]) else f"lines {site[1]}-{last}"
    return f"{near.as_posix()}, {lines}"


def is_installed(path: str) -> bool:
    """True if a file belongs to an installed library, in this environment or in one that it is laid over."""
    return path.startswith(_PACKAGES) or not INSTALLED.isdisjoint(Path(path).parts)


def _kinds(base: type) -> set[type]:
    return {base}.union(*map(_kinds, base.__subclasses__()))


def _leaves(structure: Any) -> Iterator[Any]:
    if isinstance(structure, Mapping):
        structure = tuple(structure.values())
    if isinstance(structure, (tuple, list)):
        for part in structure:
            yield from _leaves(part)
    else:
        yield structure


def _site() -> tuple[str, int] | None:
    """The innermost calling line outside the frameworks."""
    frame: FrameType | None = sys._getframe(2)
    while frame and f"{frame.f_globals.get('__name__', '')}.".startswith(_MACHINERY):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else None
