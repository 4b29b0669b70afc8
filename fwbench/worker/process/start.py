"""Run a script of fwbench under any interpreter, with `fwbench` from a given folder and all else the interpreter's own.

`python -P start.py PACKAGE SCRIPT ARGUMENT ...`. An entry in the import path would not do: beside an installed fwbench
lie the frameworks of its own environment. A process that the script spawns runs this file too (as `__mp_main__`), and
so has the same fwbench.
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location

_PACKAGE = "FWBENCH_PACKAGE"


class Finder:
    """Finds `fwbench` in the folder `package`; a module that is not in there is found nowhere else.

    The finder of an editable install would offer its own fwbench.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """As in `importlib.abc.MetaPathFinder`."""
        if name == "fwbench":
            return spec_from_file_location(name, os.path.join(self._package, "__init__.py"))
        if not name.startswith("fwbench."):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec


if __name__ == "__main__":
    _, os.environ[_PACKAGE], *sys.argv = sys.argv
if __name__ in ("__main__", "__mp_main__"):
    sys.meta_path.insert(0, Finder(os.environ[_PACKAGE]))
if __name__ == "__main__":
    from fwbench.worker.process import lifetime

    lifetime.begin()
    # Not by runpy: its `__main__` would replace this one, and spawned processes could not run it.
    with open(sys.argv[0], encoding="utf-8") as script:
        exec(compile(script.read(), sys.argv[0], "exec"))
    # Everything ends with the process. Without this Python would first collect a framework's garbage, for a second.
    gc.freeze()
