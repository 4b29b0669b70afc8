"""The fork server: imports the frameworks once, touches no device, and forks a fresh process for every job.

    client                      server                        worker (one a job)
      | -- {"workload", ...} -->  | -- fork -------------------> |
      | <-- {"started": pid} ---------------------------------- |
      | <-- {"stage": name} ... ------------------------------- |
      | <-- {"measurement": ...} ------------------------------ | exits
      | <-- {"exited": status} -- | <-- waitpid --------------- |

Both write whole lines to one pipe and never at the same time, so no line is torn by another; each begins with an empty
line, as a worker may have died within one. All messages are JSON, so the two sides may run different Pythons. Where
forking is unsafe (macOS, Windows), a server runs one job itself and ends.

At SIGUSR1 the worker, or without one the server, writes its threads' stacks to standard error.
"""

import faulthandler
import functools
import gc
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from fwbench import frameworks
from fwbench.record.lanes import Lane
from fwbench.worker import lifetime
from fwbench.worker.run import prepare, run

Send = Callable[[Mapping[str, Any]], None]


def serve(config: Mapping[str, Any]) -> None:
    """Answer jobs from standard input until it closes.

    Args:
        config: `lane` to run, `cpus` to be pinned to, `fork`: whether to fork for each job, `scratch`: a folder for
            temporary files of these jobs alone.
    """
    send = _claim_standard_output()
    lifetime.end_if_closed(0)
    faulthandler.enable()
    if config["cpus"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, config["cpus"])
    lane = Lane.from_json(config["lane"])
    # The job itself will report what is wrong with the import.
    with suppress(Exception):
        frameworks.load(lane.adapter).preload(lane.name)
    prepare(lane)
    # Imported modules stay: a worker's garbage collector need not visit them, which would copy their pages.
    gc.collect()
    gc.freeze()
    keeper = lifetime.Keeper(0, config["scratch"]) if config["fork"] else None
    send({"ready": sys.version.split()[0]})
    for line in sys.stdin:
        job = json.loads(line)
        if keeper is None:
            lifetime.end_when_closed(0)
            run(lane, job, send)
            return
        send({"exited": keeper.run(functools.partial(_work, lane, job, send))})


def _work(lane: Lane, job: Mapping[str, Any], send: Send) -> None:
    # Replaced rather than closed, or a file that the measured code opens would become its children's standard input.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    run(lane, job, send)


def _claim_standard_output() -> Send:
    """Keep the pipe for messages alone: whatever a library prints from now on goes to standard error."""
    channel: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(message: Mapping[str, Any]) -> None:
        channel.write(f"\n{json.dumps(message)}\n")
        channel.flush()

    return send
