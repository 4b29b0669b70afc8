"""Failures of a worker whose memory ran out: their sentences, the kernel's count of kills, and the next step."""

import dataclasses
import signal

from fwbench import units
from fwbench.machine import oom
from fwbench.machine.oom import Kills
from fwbench.record.measurement import Failure

# Written to standard error by C++ and by the compiler below XLA, where no exception can end the process.
_LAST_WORDS = ("std::bad_alloc", "LLVM ERROR: out of memory")

OPTION = "--fwbench-set fit_batch=true"


def told(said: str, asked: int | None) -> str:
    """One sentence for a lack of memory: what the exception said, and how many bytes were asked for, if known."""
    wanted = "" if asked is None else f" when {units.size(asked)} were asked for"
    return f"memory ran out{wanted} ({said})"


def explained(failure: Failure, before: Kills | None) -> Failure:
    """Recognise a crash for lack of memory by the process's last words and the kernel's counter.

    A process that SIGKILL ends says nothing. The kernel counts the processes that it kills for lack of memory; if its
    counter has not moved since `before`, when the process was started, somebody else sent the signal.
    """
    if failure.kind == "crashed" and (words := next((each for each in _LAST_WORDS if each in failure.detail), None)):
        return dataclasses.replace(
            failure, kind="out_of_memory", message=f"memory ran out ({failure.message}: {words})"
        )
    if failure.signal != signal.SIGKILL:
        return failure
    after, kind = oom.kills(), failure.kind
    if before is None or after is None:
        why = " (perhaps by the kernel, out of memory)"
    elif after.count > before.count:
        counted = f"oom_kill in {after.source} rose from {before.count} to {after.count}"
        kind, why = "out_of_memory", f", by the kernel, because memory ran out ({counted})"
    else:
        why = f", and not by the kernel for lack of memory (oom_kill in {after.source} stayed {after.count})"
    return dataclasses.replace(failure, kind=kind, message=f"{failure.message}{why}")
