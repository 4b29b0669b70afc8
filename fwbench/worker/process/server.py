"""The fork server of a lane: imports the frameworks once, and forks a fresh process for every job.

`fwbench.worker.protocol` lists the messages. At SIGUSR1 the job, or without one the server, writes its threads' stacks
to standard error.
"""

import faulthandler
import functools
import gc
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from fwbench.worker.process import lifetime
from fwbench.worker.process.pipes import Pipes
from fwbench.worker.protocol import VERSION


def serve(config: Mapping[str, Any]) -> None:
    """Answer jobs from standard input until it closes.

    The configuration names the `lane` to run, `cpus` to be pinned to, `fork`, whether to fork for each job, and
    `scratch`, a folder for temporary files of these jobs alone.
    """
    pipes = Pipes()
    lifetime.end_if_closed(pipes.incoming)
    faulthandler.enable()
    if config["cpus"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, config["cpus"])
    try:
        from fwbench import frameworks
        from fwbench.record.lanes import Lane
        from fwbench.worker.process.player import play
        from fwbench.worker.process.run import prepare, run
    except ImportError as error:
        sentence = f"its interpreter cannot import fwbench ({error})"
        pipes.send({"failure": {"kind": "unavailable", "message": sentence}, "lacking": True})
        return
    lane = Lane.from_json(config["lane"])
    with _first_gpu():
        # The job itself will report what is wrong with the import.
        with suppress(BaseException):
            frameworks.load(lane.adapter).preload(lane.name)
        prepare(lane)
    # Imported modules stay: a job's garbage collector need not visit them, which would copy their pages.
    gc.collect()
    gc.freeze()
    keeper = lifetime.Keeper(pipes.incoming, config["scratch"]) if config["fork"] else None
    pipes.send({"ready": sys.version.split()[0], "protocol": VERSION})
    while (job := pipes.receive()) is not None:
        work = functools.partial(play if "turns" in job else run, lane, job, pipes.send, pipes.receive)
        if keeper is None:
            lifetime.end_when_closed(pipes.incoming)
            work()
            return
        pipes.send({"exited": keeper.run(work)})


@contextmanager
def _first_gpu() -> Iterator[None]:
    """Name a GPU by its number instead of its UUID during imports.

    An imported module may ask whether there is a GPU. PyTorch asks NVML, but it asks CUDA if the UUID is of a slice
    (MIG); and once CUDA has begun, no forked worker can use it.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not visible.startswith(("GPU-", "MIG-")):
        yield
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    try:
        yield
    finally:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
    sys.stderr.flush()
    # Skip the interpreter's tear-down: a framework's takes long, and the client would wait for it.
    os._exit(0)
