"""Who is whose child, from /proc."""

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
