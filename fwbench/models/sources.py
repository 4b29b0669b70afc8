"""The sources that a network's arithmetic depends on: its own project's files, and the distributions that they import.

Both are found by reading import statements. Nothing is imported, so this is quick and works in a process without any
framework. Modules are found along `sys.path`, on which a worker has put the folders of the user's project.
"""

import ast
import functools
import hashlib
import importlib.util
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from fwbench.models.importing import INSTALLED, split

# The modules of fwbench that a network can consist of: the suite's own networks and the layers that it offers, of the
# core and of extensions.
_NETWORKS = ("fwbench.frameworks.", "fwbench.ext.")
# The exceptions of `ast.parse`; some come from a null byte, or from an expression of thousands of terms.
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Sources:
    """The files and distributions that some import paths lead to.

    Attributes:
        files: digest of each source file of the project, without comments and docstrings, by its module's name.
        distributions: names of the installed distributions that these files import, or that a path leads into.
    """

    files: dict[str, str]
    distributions: tuple[str, ...]


def sources(paths: Iterable[str], own: tuple[str, ...] = _NETWORKS) -> Sources:
    """Follow the import statements of the modules that these import paths name, also those inside functions.

    A module that cannot be found is left out: building the network will say so.

    Args:
        own: the beginnings of the names of fwbench's modules that are followed, too.
    """
    files: dict[str, str] = {}
    distributions: set[str] = set()
    seen: set[str] = set()
    left = [module for path in paths for module in _with_parents(split(path)[0])]
    while left:
        module = left.pop()
        top = module.partition(".")[0]
        if module in seen or top in sys.stdlib_module_names:
            continue
        seen.add(module)
        if top == "fwbench" and not module.startswith(own):
            continue
        file = _file(module)
        if isinstance(file, str):
            distributions.add(file)
        # No network depends on fwbench's `__init__.py` files.
        elif file is not None and not (top == "fwbench" and file.name == "__init__.py"):
            text = file.read_bytes()
            files[module] = _digest(text)
            left += _imported(text, module if file.name == "__init__.py" else module.rpartition(".")[0])
    return Sources(dict(sorted(files.items())), tuple(sorted(distributions)))


def _file(module: str) -> Path | str | None:
    """The module's source file; for an installed module its distribution's name; None if there is neither."""
    top, *parts = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    file = Path(spec.origin) if spec.origin and spec.has_location else None
    if top != "fwbench" and any(INSTALLED & set(path.parts) for path in (file, *folders) if path):
        return _distribution(top)
    for part in parts:
        candidates = [path for folder in folders for path in (folder / part / "__init__.py", folder / f"{part}.py")]
        file = next((path for path in candidates if path.is_file()), None)
        folders = [folder / part for folder in folders if (folder / part).is_dir()]
    return file if file is not None and file.suffix == ".py" else None


@functools.cache
def _digest(text: bytes) -> str:
    """Digest of a source's statements, the same under every Python; of its whole text if it cannot be parsed."""
    try:
        content = "".join(_written(ast.parse(text))).encode()
    except _UNREADABLE:
        content = text
    return hashlib.sha256(content).hexdigest()[:16]


def _written(node: object) -> Iterator[str]:
    """A tree as text, without docstrings, positions, and empty fields such as newer versions of Python add."""
    if isinstance(node, list):
        yield "["
        for each in node:
            yield from _written(each)
            yield ","
        yield "]"
    elif isinstance(node, ast.AST):
        yield f"{type(node).__name__}("
        for name, value in ast.iter_fields(node):
            kept = value[1:] if name == "body" and _has_docstring(node) else value
            if isinstance(node, ast.JoinedStr):
                # Python 3.12 adds empty pieces.
                kept = [piece for piece in node.values if getattr(piece, "value", None) != ""]
            if kept is not None and kept != [] and not isinstance(kept, ast.expr_context):
                yield f"{name}="
                yield from _written(kept)
        yield ")"
    else:
        yield f"{type(node).__name__}:{node!r}"


def _has_docstring(node: ast.AST) -> bool:
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return documented and ast.get_docstring(node, clean=False) is not None  # type: ignore[arg-type]


@functools.cache
def _distribution(top: str) -> str | None:
    """The distribution that installed a top-level module; most often both have the same name."""
    try:
        return str(metadata.metadata(top)["Name"])
    except metadata.PackageNotFoundError:
        return next(iter(_distributions().get(top, ())), None)


_distributions = functools.cache(metadata.packages_distributions)


@functools.cache
def _imported(text: bytes, package: str) -> tuple[str, ...]:
    """Names of the modules that a source may import; `from a import b` names `a.b`, which may be no module."""
    try:
        return tuple(_named(ast.parse(text), package))
    except _UNREADABLE:
        return ()


def _named(tree: ast.Module, package: str) -> Iterator[str]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                yield from _with_parents(f"{base}.{alias.name}" if base else alias.name)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """A tree's statements, nested ones included: a tenth of the nodes that `ast.walk` visits."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            left += getattr(node, field, ())


def _with_parents(module: str) -> list[str]:
    """A module and the packages around it, which are imported before it."""
    return list(itertools.accumulate(module.split("."), "{}.{}".format))
