"""The fork server: imports the frameworks once, touches no device, and forks a fresh process for every job.

    client                      server                        worker (one a job)
      | -- {"workload", ...} -->  | -- fork -------------------> |
      | <-- {"started": pid} ---------------------------------- |
      | <-- {"stage": name} ... ------------------------------- |
      | <-- {"measurement": ...} ------------------------------ | exits
      | <-- {"exited": status} -- | <-- waitpid --------------- |

Both write whole lines to one pipe and never at the same time, so nothing interleaves. Only JSON passes, so the two
sides may run different Pythons. Where forking is unsafe (macOS, Windows) a server runs one job itself and ends.
"""

import faulthandler
import gc
import json
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from fwbench import frameworks
from fwbench.record.lanes import Lane
from fwbench.worker.run import prepare, run

Send = Callable[[Mapping[str, Any]], None]


def serve(config: Mapping[str, Any]) -> None:
    """Answer jobs from standard input until it closes.

    Args:
        config: `lane` to run, `cpus` to be pinned to, `fork`: whether to fork for each job.
    """
    send = _claim_standard_output()
    faulthandler.enable()
    if config["cpus"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, config["cpus"])
    lane = Lane.from_json(config["lane"])
    # The job will say what is wrong with it.
    with suppress(Exception):
        frameworks.load(lane.adapter).preload(lane.name)
    prepare(lane)
    # What is imported stays: a worker's collector need not walk it, nor copy its pages by touching them.
    gc.collect()
    gc.freeze()
    send({"ready": sys.version.split()[0]})
    for line in sys.stdin:
        if not config["fork"]:
            run(lane, json.loads(line), send)
            return
        _fork(lane, json.loads(line), send)


def _claim_standard_output() -> Send:
    """Keep the pipe for messages alone; whatever a library prints from now on goes to standard error."""
    channel: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(message: Mapping[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    return send


def _fork(lane: Lane, job: Mapping[str, Any], send: Send) -> None:
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    previous = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writable)
    with warnings.catch_warnings():
        # Python 3.12 and some frameworks warn of forking a process with threads. They have started none yet.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, previous)
        # A group of its own, so that helpers it starts (Inductor's compilers) can be ended with it.
        os.setpgid(0, 0)
        # Not closed: a file that the measured code opens must not become its children's standard input.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        run(lane, job, send)
        sys.stderr.flush()
        os._exit(0)
    waited, status = os.waitpid(pid, os.WNOHANG)
    while not waited:
        ready, _, _ = select.select([0, readable], [], [])
        if 0 in ready:
            # The client sends nothing while a job runs: its end of the pipe is closed. It is gone, and so are we.
            _kill_group(pid)
        else:
            os.read(readable, 512)
        waited, status = os.waitpid(pid, os.WNOHANG if 0 not in ready else 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, previous)
    os.close(readable)
    os.close(writable)
    _kill_group(pid)
    send({"exited": os.waitstatus_to_exitcode(status)})


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
