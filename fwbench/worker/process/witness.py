"""The user's files that a process has read, and the settings in force in it.

A file is noted as it is read: a source when Python imports it, any other when the network opens it while it is built.
At the end each is compared with the file of that moment. Nothing here runs while anything is timed. An audit hook would
see more, but it would lengthen each `id()` of PyTorch's training steps, and cannot be removed.
"""

import builtins
import hashlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.machinery import ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
from typing import Any

# In a record's settings, the name of the list of settings that changed from the build on.
CHANGED = "changed"

# Suffixes of the files that Python imports.
CODE = (".py", ".pyc", ".so", ".pyd", ".zip", ".egg", ".whl")

# The names of `start`, which runs the scripts and is this run's, whichever fwbench the process has.
HARNESS = frozenset({"__main__", "__mp_main__"})

_BEGAN = time.time_ns()
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STDLIB = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
# Python uses bytecode if the source still has the size and the second of change that the bytecode notes. So bytecode
# written within a second of the source's last change may be of an older text; two seconds, as compiling takes time.
_RACY = 2.0


class Witness:
    """Notes the user's files that this process reads, while it is entered.

    Args:
        root: the project's folder. All files in it are the user's, and so are modules elsewhere that no installer has
            put there. Names of files in the root are relative to it.
        apart: folders without files of the user's, such as compilers' caches, unless the root lies in them.
        own_package: whether the files of this fwbench are among the user's if they lie in the root.
    """

    def __init__(self, root: str, apart: Iterable[str] = (), *, own_package: bool = False) -> None:
        self._loaders: dict[tuple[Any, str], Any] = {}
        self._root = os.path.realpath(root) + os.sep
        package = os.environ.get("FWBENCH_PACKAGE", "")
        apart = (*apart, package if not own_package or not self._within(package) else "")
        folders = (os.path.realpath(folder) + os.sep for folder in apart if folder)
        self._apart = tuple(folder for folder in folders if not self._root.startswith(folder))
        # By name: the path, its state just before it was read (`_standing`), and the digest of the text read.
        self._read: dict[str, tuple[str, tuple[int, ...], str]] = {}
        self._edited: dict[str, None] = {}
        self._written: set[str] = set()

    def __enter__(self) -> "Witness":
        witness = self
        for loader, name in (
            (SourceFileLoader, "get_data"),
            (SourcelessFileLoader, "get_data"),
            (ExtensionFileLoader, "create_module"),
        ):
            inherited: Any = getattr(loader, name)
            self._loaders[loader, name] = vars(loader).get(name)

            def noting(self: Any, given: Any, _inherited: Callable[..., Any] = inherited) -> Any:
                return witness._loaded(self.path, given, lambda: _inherited(self, given))

            setattr(loader, name, noting)
        # Modules that the server has imported before.
        self._look(_BEGAN)
        return self

    def __exit__(self, *_: object) -> None:
        for (loader, name), own in self._loaders.items():
            delattr(loader, name) if own is None else setattr(loader, name, own)

    @contextmanager
    def building(self) -> Iterator[None]:
        """While this is entered, note every file of the project that Python opens, modules and others."""
        real = io.open

        def noting(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            with suppress(TypeError, ValueError):
                path = os.path.realpath(os.fsdecode(file))
                if {*"wax+"} & {*mode}:
                    self._written.add(path)
                elif path not in self._written and os.path.isfile(path):
                    self._opened(path)
            return real(file, mode, *args, **kwargs)

        builtins.open = io.open = noting
        try:
            yield
        finally:
            builtins.open = io.open = real
            self._look()

    def sources(self) -> dict[str, str]:
        """The digest of each file as it was read, by its name."""
        self._look()
        return {name: digest for name, (_, _, digest) in sorted(self._read.items())}

    def edited(self) -> list[str]:
        """The names of files that have changed since they were read."""
        for name, (path, stood, read) in self._read.items():
            if _standing(path) != stood and present(path) != read:
                self._edited[name] = None
        return list(self._edited)

    def _loaded(self, path: str, given: Any, load: Callable[[], Any]) -> Any:
        """Let a loader read its module's file, or another file that it is given, and note that file."""
        bytecode = isinstance(given, str) and given != path and given.endswith(".pyc")
        if bytecode and self._name(path) and _modified(given) < _modified(path) + _RACY:
            raise FileNotFoundError(given)  # Python then compiles the source
        read = given if isinstance(given, str) and not bytecode else path
        stood = _standing(read)
        data = load()
        self._note(read, stood, data if isinstance(data, bytes) and not bytecode else None)
        return data

    def _look(self, since: float = float("inf")) -> None:
        """Note modules that no loader has shown: from archives or imported earlier; those changed since are edited."""
        for module in [module for name, module in list(sys.modules.items()) if name not in HARNESS]:
            archive = getattr(getattr(module, "__loader__", None), "archive", None)
            file: Any = archive or getattr(module, "__file__", None)
            # A module made at run time may name anything as its file, as torch.ops does.
            name = self._name(file) if isinstance(file, str) and os.path.isabs(file) else ""
            if name and name not in self._read and (stood := _standing(file)):
                self._note(file, stood)
                if stood[-1] > since:
                    self._edited[name] = None

    def _within(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self._root)

    def _opened(self, path: str) -> None:
        hidden = any(part.startswith((".", "__pycache__")) for part in path.removeprefix(self._root).split(os.sep))
        if self._within(path) and not hidden:
            self._note(path, _standing(path))

    def _note(self, path: str, stood: tuple[int, ...], data: bytes | None = None) -> None:
        name = self._name(path)
        if not name:
            return
        read = present(path) if data is None else hashlib.sha256(data).hexdigest()
        if read and self._read.setdefault(name, (path, stood, read))[2] != read:
            self._edited[name] = None

    def _name(self, path: str) -> str:
        """The name of one of the user's files; empty if it is none of them."""
        # First without resolving links, as there are thousands of modules.
        if path.startswith(_STDLIB) or _INSTALLED.intersection(path.split(os.sep)):
            return ""
        real = os.path.realpath(path)
        if real.startswith((_STDLIB, *self._apart)) or _INSTALLED.intersection(real.split(os.sep)):
            return ""
        return real.removeprefix(self._root).replace(os.sep, "/")


def _standing(path: str) -> tuple[int, ...]:
    """The state by which a change of a file is found cheaply; the last number is the moment of its last change."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def present(path: str) -> str | None:
    """SHA-256 of a file as it is now; None if it cannot be read."""
    try:
        with io.FileIO(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def in_force(variables: Iterable[str], framework: Any, workload: Any, *, building: bool = False) -> dict[str, Any]:
    """The settings in force now that change the time of a call, environment variables with these prefixes among them.

    While `building`, settings that the build is about to choose are returned as it will choose them.
    """
    smallest = 5e-324
    return {
        **{name: value for name, value in sorted(os.environ.items()) if name.startswith(tuple(variables))},
        **({"cpus": sorted(os.sched_getaffinity(0))} if hasattr(os, "sched_getaffinity") else {}),
        **({"niceness": os.getpriority(os.PRIO_PROCESS, 0)} if hasattr(os, "getpriority") else {}),
        "denormal numbers": "kept" if smallest * 1.0 else "flushed to zero",
        **framework.in_force(workload),
        **(framework.chosen(workload) if building else {}),
    }


def changed(before: Mapping[str, Any], after: Mapping[str, Any], caution: str = "") -> dict[str, Any]:
    """The settings of `in_force` that have changed, as they are now, with the record's caution; empty if none has."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if not names:
        return {}
    told = ", ".join(f"{name} from {_told(before.get(name))} to {_told(after.get(name))}" for name in names)
    sentence = f"the network's own code has changed {told}, so these are not the settings that the run asked for"
    return {
        **{name: after.get(name) for name in names},
        CHANGED: names,
        "caution": f"{caution}; {sentence}" if caution else sentence,
    }


def _told(value: Any) -> str:
    return "none" if value is None else " ".join(map(str, value)) if isinstance(value, list) else str(value)
