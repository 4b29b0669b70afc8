"""Run a script of ours under any interpreter: `fwbench` is the folder that is named, all else the interpreter's own.

`python -P start.py PACKAGE SCRIPT ARGUMENT ...`. A path to import from would not do: beside an installed fwbench lie
the frameworks that it was installed with. A process that the script spawns runs this file too (as `__mp_main__`), and
so has the same fwbench.
"""

import importlib.util
import os
import sys

_PACKAGE = "FWBENCH_PACKAGE"


def adopt(package: str) -> None:
    """Make the folder `fwbench`, whatever of that name the interpreter could find."""
    spec = importlib.util.spec_from_file_location("fwbench", os.path.join(package, "__init__.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules["fwbench"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["fwbench"])


if __name__ == "__main__":
    _, os.environ[_PACKAGE], *sys.argv = sys.argv
if __name__ in ("__main__", "__mp_main__"):
    adopt(os.environ[_PACKAGE])
if __name__ == "__main__":
    # Not by runpy, which would put a `__main__` in this one's place that spawned processes could not run.
    with open(sys.argv[0], encoding="utf-8") as script:
        exec(compile(script.read(), sys.argv[0], "exec"))
