"""One side of a duet: builds a workload and runs rounds of it on request.

`start` runs this under the interpreter and with the fwbench of its side, so that the same lines measure both sides.
From the measured fwbench it uses only what builds and steps a program.

    client                            server                  player (one a benchmark)
      | -- {"workload", "model", ...} -> | -- fork ------------> |
      | <-- {"built"} ----------------------------------------- |
      | -- {"place": padding} ---------------------------------> |  the program in fresh memory, warm again
      | <-- {"placed": latency} -------------------------------- |
      | -- {"rounds": n} --------------------------------------> |  a turn
      | <-- {"rounds": [...], "cpu_time", "held"} -------------- |
      | -- {"alone": n, "together": m} ------------------------> |  a turn of calls one by one, and back to back
      | <-- {"latency", "call", "cpu", "others", "held"} ------- |
      | -- {"modules"} ----------------------------------------> |
      | <-- {"modules"} ---------------------------------------- |  all the user's are this side's
      | -- {"finish": {"program", "spans": of n calls}} ------> |
      | <-- {"finished": memory, "sources", "edited", ...} ---- | exits
      | <-- {"exited": status} --------- |

A job holds the `workload`, its `model` and the share of `extra` work; and for the user's modules the `path` to look in,
the name of this `side`, the `root` of its repository, the user's working `tree` if that is compared with a revision,
the names of the repository's `own` modules, and the prefixes of the variables that are `recorded`. `held` is how many
seconds of a turn the process got no CPU for.

The reason why there is no answer may replace it: {"refused"} (the interpreter cannot import fwbench), {"undriven"}
(this side's fwbench is too old or too new for these lines), {"unavailable"}, {"unbuildable"} (the model as described),
{"out_of_memory"}, {"failed"} or {"stray"} (a module of the user's from other files than this side's). Only JSON passes,
on the pipe that was standard output, each message after an empty line, as a player may have died within a line;
whatever is printed goes to standard error. At SIGUSR1 the player, or the server if there is none, writes its threads'
stacks there.
"""

import contextlib
import ctypes
import dataclasses
import faulthandler
import functools
import gc
import importlib
import json
import os
import statistics
import sys
import time
import timeit
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Send = Callable[[dict[str, Any]], None]
Receive = Callable[[], dict[str, Any] | None]

# This side's fwbench.
_USED = ("fwbench.frameworks", "fwbench.machine", "fwbench.models", "fwbench.models.weights", "fwbench.record.workload")

# At each placing a program is warm after so much time and three calls, or two once `_LONG` seconds have passed, if the
# kernel has given its last two calls no more fresh memory than a few pages; at the latest after `_LATEST` seconds.
_WARM_SECONDS, _LONG, _LATEST = 0.05, 1.0, 8.0
_WARM_CALLS = (3, 2)
_FEW_PAGES = 64

# Seconds for another lane's threads to stop spinning after its turn: at first they wait for work busily.
_SPUN = 0.005

# Seconds for threads of the program to free what a call has held, before the heap is trimmed.
_GIVEN_BACK = 0.05

# A unit of extra work is timed in so many repeats of so many units; the fastest repeat counts.
_UNITS = 100


def serve(config: dict[str, Any]) -> None:
    """Answer jobs until standard input closes.

    Args:
        config: `lane` to run, `cpus` to be pinned to, `fork`: whether to fork for each job, `scratch`: a folder for
            temporary files of these jobs alone.
    """
    # Loaded by `start`: this side's fwbench may have no such modules, or others.
    lifetime, pipes = sys.modules["fwbench_lifetime"], sys.modules["fwbench_pipes"].Pipes()
    lifetime.end_if_closed(pipes.incoming)
    faulthandler.enable()
    if config["cpus"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, config["cpus"])
    try:
        for module in _USED:
            importlib.import_module(module)
    except ImportError as error:
        ours = (error.name or "").partition(".")[0] == "fwbench"
        pipes.send(
            {"undriven": str(error)} if ours else {"refused": f"its interpreter cannot import fwbench ({error})"}
        )
        return
    from fwbench import frameworks

    # A base may be too old for the lane, or lack its framework.
    with contextlib.suppress(BaseException):
        frameworks.load(config["lane"]["adapter"]).preload(config["lane"]["name"])
    gc.collect()
    gc.freeze()
    keeper = lifetime.Keeper(pipes.incoming, config["scratch"]) if config["fork"] else None
    pipes.send({"ready": sys.version.split()[0]})
    while (job := pipes.receive()) is not None:
        play = functools.partial(_play, config["lane"], job, pipes.send, pipes.receive)
        if keeper is None:
            lifetime.end_when_closed(pipes.incoming)
            play()
            pipes.send({"exited": 0})
            return
        pipes.send({"exited": keeper.run(play)})


def _play(lane: dict[str, Any], job: dict[str, Any], send: Send, receive: Receive) -> None:
    # The user's modules lie in their own project.
    sys.path[:0] = job["path"]
    caches = (os.environ.get(name, "") for name in ("TMPDIR", *lane["caches"]))
    with sys.modules["fwbench_witness"].Witness(job["root"], caches, own_package=True) as witness:
        player, answer = _build(lane, job, witness)
        send(_stray(job) or answer)
        if player is None:
            return
        try:
            _take_turns(player, job, witness, send, receive)
        except BaseException as error:
            send(_fault(error, player.framework))


def _build(lane: dict[str, Any], job: dict[str, Any], witness: Any) -> tuple["Player | None", dict[str, Any]]:
    """Build the player if possible; return it with the answer."""
    from fwbench import frameworks

    framework = None
    try:
        framework = frameworks.load(lane["adapter"])
    except ImportError as error:
        return None, {"unavailable": f"{lane['name']} cannot be imported ({error})"}
    except BaseException as error:
        return None, _fault(error, framework)
    try:
        player = Player(framework, job, witness)
    except BaseException as error:
        return None, _fault(error, framework)
    if player.reason:
        return None, {"unavailable": player.reason}
    return player, {"built": player.described(lane["distributions"])}


def _take_turns(player: "Player", job: dict[str, Any], witness: Any, send: Send, receive: Receive) -> None:
    message = receive()
    watched = sys.modules["fwbench_holes"].watched
    while message is not None:
        player.place(message["place"])
        with player.program.session():
            send({"placed": player.warm_up()})
            while (message := receive()) is not None and not message.keys() & {"place", "finish"}:
                if "rounds" in message:
                    rounds = message["rounds"]
                    send(watched(player.usual, rounds, player.turn, rounds))
                elif "alone" in message:
                    calls = message["alone"], message["together"]
                    send(watched(player.usual, sum(calls), player.alone_and_together, *calls))
                else:
                    send(_stray(job) or {"modules": "own"})
            if message is not None and "finish" in message:
                calls = message["finish"]["spans"]
                finished: dict[str, Any] = {"finished": player.memory()}
                finished |= {"spans": player.spans(calls, job["root"])} if calls else {}
                if message["finish"]["program"]:
                    finished["program"] = player.fingerprint()
                    finished["settings"] = player.settings()
                send({**finished, "edited": witness.edited(), "sources": witness.sources()})
                return


def _fault(error: BaseException, framework: Any) -> dict[str, Any]:
    """The answer to send for this exception, which may be one that would end the process."""
    frames = list(traceback.walk_tb(error.__traceback__))
    sentence = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}".removesuffix(": ")
    detail = traceback.format_exc()
    if isinstance(error, (ImportError, TypeError, AttributeError)) and frames[-1][0].f_globals is globals():
        # An error that a call or a look-up in this module raised.
        return {"undriven": sentence, "detail": detail}
    if isinstance(error, importlib.import_module("fwbench.models").ModelError):
        return {"unbuildable": str(error), "detail": detail}
    # An older side cannot report what its framework says, or whether its compiler failed.
    said = getattr(framework, "said", lambda error: sentence)
    sentence = said(error) if isinstance(error, Exception) else f"the network raised {sentence}"
    if framework is not None and framework.is_out_of_memory(error):
        asked = getattr(sys.modules.get("fwbench.frameworks.faults"), "memory_asked", lambda error: None)
        return {"out_of_memory": sentence, "asked": asked(error), "detail": detail}
    compilers = getattr(framework, "is_compilers_fault", lambda error: False)(error)
    return {"failed": sentence, "detail": detail, "compiler": compilers}


def _stray(job: dict[str, Any]) -> dict[str, Any]:
    """Name and file of a user's module that is not from this side's files; empty if there is none.

    An installed package, editable or not, would be the same on both sides, so that no change in it would be seen.
    """
    tree = job["tree"]
    if tree is None:
        return {}
    # Virtual environments in the working tree do not belong to it.
    environments = tuple(
        folder + os.sep
        for folder in map(os.path.realpath, (sys.prefix, sys.base_prefix))
        if folder.startswith(tree + os.sep)
    )
    resolved = functools.cache(os.path.realpath)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # A module made at run time may name anything as its file, as torch.ops does.
        if not isinstance(file, str) or not os.path.isabs(file) or file.startswith(job["root"] + os.sep):
            continue
        # `start` has decided which fwbench this is.
        if name.partition(".")[0] == "fwbench" or name in sys.modules["fwbench_witness"].HARNESS:
            continue
        folder = resolved(os.path.dirname(file)) + os.sep
        in_tree = folder.startswith(tree + os.sep) and not folder.startswith(environments)
        in_tree = in_tree and not {"site-packages", "dist-packages"}.intersection(Path(folder).parts)
        # The working tree is head's, and head's code may have resolved the link to it.
        if (in_tree and job["side"] == "base") or (name in job["own"] and not in_tree):
            return {"stray": [name, file]}
    return {}


class Player:
    """A workload's program.

    Args:
        framework: of this side.
        job: of the client's: the `workload`, the `model`, what is `recorded`, and `extra`: a share of a step's latency
            to be spent on real work besides, a slowdown that is planted.
        witness: notes what the network reads while it is built.

    Attributes:
        framework: as above.
        reason: why it cannot run here; then there is no program.
        usual: seconds and CPU seconds of a call.
    """

    def __init__(self, framework: Any, job: dict[str, Any], witness: Any) -> None:
        from fwbench.models import Model
        from fwbench.models.weights import canonical
        from fwbench.record.workload import Workload

        self.framework = framework
        described, workload = Model.from_json(job["model"]), Workload.from_json(job["workload"])
        in_force = sys.modules["fwbench_witness"].in_force
        self._in_force = functools.partial(in_force, job["recorded"], framework, workload)
        self._before = self._in_force(building=True)
        with witness.building():
            self.reason: str | None = framework.unavailable(workload, described)
            if self.reason:
                return
            shapes = framework.weight_shapes(described, described.sizes(workload.axes))
            weights = canonical(workload.weights, described, shapes, workload.seed)
            self.program = framework.build(workload, described, weights)
        del weights
        with contextlib.suppress(ImportError):  # of an older side, whose programs have one batch alone
            importlib.import_module("fwbench.meters.remembering").vary(self.program, described, workload)
        with self.program.session():
            self.program.compile()
        self._extra = job["extra"]
        self._units = 0
        self._padding: list[bytes] = []

    def described(self, distributions: list[str]) -> dict[str, Any]:
        """How this side runs, for readers: settings, and versions of the lane's distributions."""
        from fwbench.machine import versions

        return {"settings": dict(self.program.settings), "versions": versions((*distributions, "numpy"))}

    def settings(self) -> dict[str, Any]:
        """How this side has run, with those settings that its network has changed."""
        stated = dict(self.program.settings)
        changed = sys.modules["fwbench_witness"].changed
        return {**stated, **changed(self._before, self._in_force(), stated.get("caution", ""))}

    def place(self, padding: list[int]) -> None:
        """Place the program in fresh memory, behind blocks of these many bytes."""
        self._padding = [bytes(size) for size in padding]
        self.program.relocate()
        gc.collect()

    def warm_up(self) -> float:
        """Run until the program is warm; return the latency of its fastest call in seconds."""
        self._units = 0
        begun, computing = time.perf_counter(), time.process_time()
        calls: list[float] = []
        pages = [_pages()]
        while (
            (passed := time.perf_counter() - begun) < _WARM_SECONDS
            or len(calls) < _WARM_CALLS[passed > _LONG]
            or (pages[-1] - pages[-3] > _FEW_PAGES and passed < _LATEST)
        ):
            calls.append(next(self._timed(1)))
            pages.append(_pages())
        self.usual = (min(calls), (time.process_time() - computing) / len(calls))
        if self._extra:
            units = min(timeit.repeat(_unit, timer=time.perf_counter, repeat=_UNITS, number=_UNITS))
            self._units = max(1, round(self._extra * min(calls) / (units / _UNITS)))
        return min(calls)

    def turn(self, rounds: int) -> dict[str, Any]:
        """Run so many rounds; the first one only refills the caches after the other side.

        Returns:
            `rounds`: seconds of each; `cpu_time`: mean CPU seconds of those after the first, of all threads.
        """
        timed = self._timed(rounds)
        first = next(timed)
        begun = time.process_time()
        later = list(timed)
        return {"rounds": [first, *later], "cpu_time": (time.process_time() - begun) / len(later)}

    def alone_and_together(self, alone: int, together: int) -> dict[str, float]:
        """Time calls that each wait for their end, and calls back to back with one wait after the last.

        Args:
            alone: how many wait each, after a call that pays for what others left in the caches.
            together: how many are back to back; 0: no call precedes those that wait, and their time stands for both.

        Returns:
            `latency`: median seconds of those that wait; `call`: seconds of one back to back; `cpu`: CPU seconds
            available meanwhile; `others`: those that other processes took.
        """
        from fwbench.machine.load import OtherLoad

        time.sleep(_SPUN)
        list(self._timed(1 if together else 0))
        load = OtherLoad()
        latency = call = statistics.median(self._timed(alone))
        if together:
            start = time.perf_counter()
            for _ in range(together):
                self.program.step()
                for _ in range(self._units):
                    _unit()
            self.program.wait()
            call = (time.perf_counter() - start) / together
        there, others = load.taken()
        return {"latency": latency, "call": call, "cpu": there, "others": others}

    def memory(self) -> dict[str, float]:
        """Peaks in bytes by metric, without those that this machine cannot report."""
        time.sleep(_GIVEN_BACK)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        with contextlib.suppress(OSError):
            # 5 resets the peak resident set size (Linux, proc_pid_clear_refs(5)).
            Path("/proc/self/clear_refs").write_text("5")
        self.program.reset_peak_memory()
        before, in_use = self.program.peak_memory().value, self.program.memory_in_use().value
        next(self._timed(1))
        peak = self.program.peak_memory().value
        peaks = {
            "program_memory": self.program.program_memory().value,
            # A peak from before the step hides the step's own.
            "device_peak_memory": None if peak == before != in_use else peak,
        }
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peaks["host_peak_memory"] = float(line.split()[1]) * 1024
        return {name: value for name, value in peaks.items() if value is not None}

    def spans(self, calls: int, root: str) -> list[list[Any]] | str:
        """Rows of spans, or why there are none. The first profile takes memory, so calls wait; the second counts."""
        try:
            recorded = (self.program.spans(calls) and self.program.spans(calls)) or []
        except Exception as error:
            return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
        rows = [[*dataclasses.astuple(span)[:-1], span.place.removeprefix(root + os.sep)] for span in recorded]
        return rows or "the lane has no profiler"

    def fingerprint(self) -> dict[str, Any] | None:
        """The program's fingerprint; None if this side's fwbench cannot make it."""
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


def _pages() -> int:
    """Pages of fresh memory that the kernel has given this process; 0 where that is unknown."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt if resource else 0


def _unit() -> None:
    """Work for about a microsecond."""
    sum(range(30))


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
    sys.stderr.flush()
    # Skip the interpreter's tear-down: a framework's takes long, and the client would wait for it.
    os._exit(0)
