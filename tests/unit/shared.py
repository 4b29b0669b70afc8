"""What takes long to make, made once for all processes of a run."""

import fcntl
import os
import shutil


def once(tmp_path_factory, name, make):
    """The folder of this name, filled by `make(folder)` in whichever of pytest-xdist's workers asks first."""
    base = tmp_path_factory.getbasetemp()
    # A worker's own lies in the run's.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, made = shared / f"shared-{name}", shared / f"shared-{name}.made"
    with (shared / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            # What an attempt that failed has left.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
