"""Who is whose child, and who is still there, from /proc; and the signals with which a process starts."""

import contextlib
import signal
import time
from collections.abc import Iterable
from pathlib import Path


def children(parent: int) -> list[int]:
    """Living children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the name, which may hold anything and ends with the last parenthesis: state, parent.
            state, ppid = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(stat.parent.name))
    return found


def grandchildren(parent: int) -> list[int]:
    """Living children of living children."""
    return [pid for child in children(parent) for pid in children(child)]


def descendants(parent: int) -> list[int]:
    """Living children, their living children, and so on."""
    return [pid for child in children(parent) for pid in (child, *descendants(child))]


def alive(pid: int) -> bool:
    """Whether a process is, and is not merely waiting to be looked after by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: Iterable[int]) -> bool:
    """Whether all these processes end within a generous time."""
    end = time.monotonic() + 30
    while any(map(alive, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def started_with(variable: str) -> set[int]:
    """Living processes that were started with a variable of the environment, `NAME=value`, whoever their parent is."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        # It may have ended, or be somebody else's.
        with contextlib.suppress(OSError):
            if variable.encode() in environ.read_bytes().split(b"\0"):
                found.add(int(environ.parent.name))
    return found


def as_in_a_terminal() -> None:
    """Whoever runs these tests under `nohup` or in the background of a script has some signals ignored."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
