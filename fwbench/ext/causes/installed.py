"""An interpreter's distributions, and those of them that a folder of links, first in the import path, can replace."""

import functools
from dataclasses import dataclass
from pathlib import Path

from fwbench.worker.client.asking import ask

# A program that answers with the interpreter's version and, by the name of each distribution, its version, folder and
# paths to link. A folder that belongs to one distribution is linked as a whole; the entries of a shared one are linked
# one by one. The paths are empty if links cannot replace the distribution: it lists no files, installs a .pth file,
# which Python reads in site-packages alone, or shares a file or a package with another distribution.
_LISTING = """
import importlib.metadata, pathlib, re, sys
def folders(file):
    return [str(folder) for folder in pathlib.PurePosixPath(file).parents][:-1]
found, owners, packages = {}, {}, set()
for each in importlib.metadata.distributions():
    name = re.sub(r"[-_.]+", "-", each.metadata["Name"] or "").lower()
    if name in found:
        continue
    files = [file.as_posix() for file in each.files or ()]
    files = [file for file in files if not file.startswith("..") and "__pycache__" not in file]
    found[name] = [each.version, str(each.locate_file("")), files]
    for file in files:
        for path in (file, *folders(file)):
            owners.setdefault(path, set()).add(name)
        if file.endswith("/__init__.py"):
            packages.add(file[: -len("/__init__.py")])
for listed in found.values():
    paths = {}
    for file in listed[2]:
        shared = [path for path in (file, *folders(file)) if len(owners[path]) > 1]
        if packages.intersection(shared) or file in shared or "/" not in file and file.endswith(".pth"):
            paths = {}
            break
        own = [folder for folder in folders(file) if len(owners[folder]) == 1]
        paths[own[-1] if own else file] = None
    listed[2] = list(paths)
answer = [list(sys.version_info[:3]), found]
"""


@dataclass(frozen=True)
class Installed:
    """A distribution.

    Attributes:
        folder: the folder that holds its files.
        paths: the paths to link, relative to the folder; none: links cannot replace it.
    """

    version: str
    folder: Path
    paths: tuple[str, ...]

    def replaces(self, other: "Installed") -> bool:
        """True if links to this version are imported in place of another version later in the import path.

        A package without `__init__.py` gives way to one with it, wherever that is in the path.
        """
        return bool(self.paths and other.paths) and not any(
            (other.folder / path / "__init__.py").exists() and not (self.folder / path / "__init__.py").exists()
            for path in self.paths
        )


@functools.cache
def listed(python: str) -> tuple[list[int], dict[str, Installed]]:
    """An interpreter's version, and its distributions by name.

    Raises:
        UserError: the interpreter does not run, or does not answer.
    """
    version, distributions = ask(python, _LISTING)
    return version, {
        name: Installed(of, Path(folder), tuple(paths)) for name, (of, folder, paths) in distributions.items()
    }
