"""One side of a duet: builds a workload and runs rounds of it when it is told to.

Run by `start` under the interpreter and with the fwbench of its side, so that both sides are measured by the same
lines. Of the fwbench that it measures it uses what builds and steps a program, and nothing else.

    client                            server                  player (one a benchmark)
      | -- {"workload", "model", ...} -> | -- fork ------------> |
      | <-- {"built"} or {"unavailable"} ---------------------- |
      | -- {"place": padding} ---------------------------------> |  the program in fresh memory, warm again
      | <-- {"placed": latency} -------------------------------- |
      | -- {"rounds": n} --------------------------------------> |  a turn
      | <-- {"rounds": [...], "cpu_time"} ---------------------- |
      | -- {"finish": {"program": whether to tell it}} --------> |
      | <-- {"finished": memory, "program"} -------------------- | exits
      | <-- {"exited": status} --------- |

In place of any answer there may be {"out_of_memory"} or {"failed"}, with {"detail"}. Only JSON passes, on the pipe that
was standard output; whatever is printed goes to standard error.
"""

import contextlib
import ctypes
import dataclasses
import faulthandler
import gc
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Send = Callable[[dict[str, Any]], None]
Receive = Callable[[], dict[str, Any] | None]

# A program is warm after so much time and so many calls, at each placing.
_WARM_SECONDS = 0.05
_WARM_CALLS = 3

# A unit of extra work is timed so many at a time, so many times; the fastest counts.
_UNITS = 100


def serve(config: dict[str, Any]) -> None:
    """Answer jobs until standard input closes.

    Args:
        config: `lane` to run, `cpus` to be pinned to, `fork`: whether to fork for each job.
    """
    send, receive = _claim_pipes()
    faulthandler.enable()
    if config["cpus"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, config["cpus"])
    try:
        from fwbench import frameworks

        # Of this side: a base may be too old for the lane, or its framework be missing.
        with contextlib.suppress(Exception):
            frameworks.load(config["lane"]["adapter"]).preload(config["lane"]["name"])
    except ImportError as error:
        send({"refused": f"its interpreter cannot import fwbench ({error})"})
        return
    gc.collect()
    gc.freeze()
    send({"ready": sys.version.split()[0]})
    while (job := receive()) is not None:
        if not config["fork"]:
            _play(config["lane"], job, send, receive)
            return
        with warnings.catch_warnings():
            # Python 3.12 and some frameworks warn of forking a process with threads. They have started none yet.
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            _play(config["lane"], job, send, receive)
            sys.stderr.flush()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        send({"exited": os.waitstatus_to_exitcode(status)})


def _claim_pipes() -> tuple[Send, Receive]:
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def send(message: dict[str, Any]) -> None:
        outgoing.write(json.dumps(message) + "\n")
        outgoing.flush()

    def receive() -> dict[str, Any] | None:
        # The client waits for each answer, so nothing is ever read ahead of a fork.
        line = incoming.readline()
        return json.loads(line) if line else None

    return send, receive


def _play(lane: dict[str, Any], job: dict[str, Any], send: Send, receive: Receive) -> None:
    framework = None
    # The user's modules lie in their own project.
    sys.path[:0] = job["path"]
    try:
        from fwbench import frameworks

        try:
            framework = frameworks.load(lane["adapter"])
        except ImportError as error:
            send({"unavailable": f"{lane['name']} cannot be imported ({error})"})
            return
        player = Player(framework, job["workload"], job["model"], job["extra"])
        if player.reason:
            send({"unavailable": player.reason})
            return
        send({"built": player.described(lane["distributions"])})
        _take_turns(player, send, receive)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:300]
        kind = "out_of_memory" if framework is not None and framework.is_out_of_memory(error) else "failed"
        send({kind: f"{type(error).__name__}: {reason}", "detail": traceback.format_exc()})


def _take_turns(player: "Player", send: Send, receive: Receive) -> None:
    message = receive()
    while message is not None:
        player.place(message["place"])
        with player.program.session():
            send({"placed": player.warm_up()})
            while (message := receive()) is not None and "rounds" in message:
                send(player.turn(message["rounds"]))
            if message is not None and "finish" in message:
                finished: dict[str, Any] = {"finished": player.memory()}
                if message["finish"]["program"]:
                    finished["program"] = player.fingerprint()
                send(finished)
                return


class Player:
    """A workload's program.

    Args:
        framework: of this side.
        fields: of the workload.
        model: as JSON.
        extra: a share of a step's latency to be spent on real work besides: a slowdown that is planted.

    Attributes:
        reason: why it cannot run here; then there is no program.
    """

    def __init__(self, framework: Any, fields: dict[str, Any], model: dict[str, Any], extra: float) -> None:
        from fwbench.models import Model
        from fwbench.models.weights import canonical
        from fwbench.record.workload import Workload

        workload, described = Workload.from_json(fields), Model.from_json(model)
        self.reason: str | None = framework.unavailable(workload, described)
        if self.reason:
            return
        shapes = framework.weight_shapes(described, described.sizes(workload.axes))
        weights = canonical(workload.weights, described, shapes, workload.seed)
        self.program = framework.build(workload, described, weights)
        del weights
        with self.program.session():
            self.program.compile()
        self._extra = extra
        self._units = 0
        self._padding: list[bytes] = []

    def described(self, distributions: list[str]) -> dict[str, Any]:
        """What a reader should know of how this side runs: settings, and versions of the lane's distributions."""
        from fwbench.machine import versions

        return {"settings": dict(self.program.settings), "versions": versions((*distributions, "numpy"))}

    def place(self, padding: list[int]) -> None:
        """Lay the program into fresh memory, with blocks of these many bytes before it."""
        self._padding = [bytes(size) for size in padding]
        self.program.relocate()
        gc.collect()

    def warm_up(self) -> float:
        """Run until the program is warm.

        Returns:
            The latency of its fastest call in seconds.
        """
        self._units = 0
        begun = time.perf_counter()
        calls: list[float] = []
        while len(calls) < _WARM_CALLS or time.perf_counter() - begun < _WARM_SECONDS:
            calls.append(next(self._timed(1)))
        if self._extra:
            unit = min(_time_of_units() for _ in range(_UNITS))
            self._units = max(1, round(self._extra * min(calls) / unit))
        return min(calls)

    def turn(self, rounds: int) -> dict[str, Any]:
        """Run so many rounds, of which the first one pays for what the other side left in the caches.

        Returns:
            `rounds`: seconds of each; `cpu_time`: mean CPU seconds of those after the first, of all threads.
        """
        timed = self._timed(rounds)
        first = next(timed)
        begun = time.process_time()
        later = list(timed)
        cpu_time = (time.process_time() - begun) / len(later)
        return {"rounds": [first, *later], "cpu_time": cpu_time}

    def memory(self) -> dict[str, float]:
        """Peaks in bytes, by metric; what this machine cannot tell is left out."""
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        with contextlib.suppress(OSError):
            # 5 resets the peak resident set size (Linux, proc_pid_clear_refs(5)).
            Path("/proc/self/clear_refs").write_text("5")
        self.program.reset_peak_memory()
        next(self._timed(1))
        found = {
            "program_memory": self.program.program_memory().value,
            "device_peak_memory": self.program.peak_memory().value,
        }
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    found["host_peak_memory"] = float(line.split()[1]) * 1024
        return {name: value for name, value in found.items() if value is not None}

    def fingerprint(self) -> dict[str, Any] | None:
        """What the program is made of; None where this side's fwbench cannot tell."""
        try:
            return dataclasses.asdict(self.program.fingerprint())
        except Exception:
            return None

    def _timed(self, rounds: int) -> Iterator[float]:
        step, wait, units, clock = self.program.step, self.program.wait, self._units, time.perf_counter
        for _ in range(rounds):
            start = clock()
            step()
            wait()
            for _ in range(units):
                _unit()
            yield clock() - start


def _unit() -> None:
    """A microsecond or so of work."""
    sum(range(30))


def _time_of_units() -> float:
    start = time.perf_counter()
    for _ in range(_UNITS):
        _unit()
    return (time.perf_counter() - start) / _UNITS


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
