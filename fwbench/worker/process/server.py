"""The fork server: imports the frameworks once, touches no device, and forks a fresh process for every job.

    client                      server                        worker (one a job)
      | -- {"workload", ...} -->  | -- fork -------------------> |
      | <-- {"started": pid} ---------------------------------- |
      | <-- {"stage": name} ... ------------------------------- |
      | <-- {"measurement": ...} ------------------------------ | exits
      | <-- {"exited": status} -- | <-- waitpid --------------- |

Server and worker write whole lines to one pipe and never at the same time, so no line tears another. Each message
begins with an empty line, as a worker may have died within a line. All messages are JSON, so the two sides may run
different Pythons. Where forking is unsafe (macOS, Windows), a server runs one job itself and ends.

At SIGUSR1 the worker, or without one the server, writes its threads' stacks to standard error.
"""

import faulthandler
import functools
import gc
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fwbench import frameworks
from fwbench.record.lanes import Lane
from fwbench.worker.process import lifetime
from fwbench.worker.process.pipes import Pipes
from fwbench.worker.process.run import prepare, run


def serve(config: Mapping[str, Any]) -> None:
    """Answer jobs from standard input until it closes.

    Args:
        config: `lane` to run, `cpus` to be pinned to, `fork`: whether to fork for each job, `scratch`: a folder for
            temporary files of these jobs alone.
    """
    pipes = Pipes()
    lifetime.end_if_closed(pipes.incoming)
    faulthandler.enable()
    if config["cpus"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, config["cpus"])
    lane = Lane.from_json(config["lane"])
    # The job itself will report what is wrong with the import.
    with suppress(BaseException):
        frameworks.load(lane.adapter).preload(lane.name)
    prepare(lane)
    # Imported modules stay: a worker's garbage collector need not visit them, which would copy their pages.
    gc.collect()
    gc.freeze()
    keeper = lifetime.Keeper(pipes.incoming, config["scratch"]) if config["fork"] else None
    pipes.send({"ready": sys.version.split()[0]})
    while (job := pipes.receive()) is not None:
        if keeper is None:
            lifetime.end_when_closed(pipes.incoming)
            run(lane, job, pipes.send)
            return
        pipes.send({"exited": keeper.run(functools.partial(run, lane, job, pipes.send))})


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
    sys.stderr.flush()
    # Skip the interpreter's tear-down: a framework's takes long, and the client would wait for it.
    os._exit(0)
