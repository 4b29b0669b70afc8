"""The host's memory, this process's control groups, and the processes that Linux killed for lack of memory."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A process stays for a round if it holds at most this share of the memory, so that three leave half of it.
ROOM = 1 / 6


def host_memory() -> int:
    """Bytes of the host's memory; 0 if the system does not report them."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Kills:
    """A reading of the kernel's count of OOM kills since the machine was started, or the control group made."""

    count: int
    source: str


def kills(root: Path = Path("/")) -> Kills | None:
    """The OOM kills in this process's control group, or else on the whole machine; None if no file counts them."""
    # Control groups of version 2 or version 1, then the machine.
    files = (group / name for group in groups(root, "memory") for name in ("memory.events", "memory.oom_control"))
    for path in (*files, root / "proc/vmstat"):
        with suppress(OSError):
            if match := _COUNT.search(path.read_text(encoding="utf-8")):
                return Kills(int(match[1]), f"/{path.relative_to(root)}")
    return None


def groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control group, and of those around it, that have figures of this controller."""
    mounted = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            tops = (controllers, controller) if controllers else (".", "unified")
            for top in dict.fromkeys(mounted / name for name in tops):
                # A container may see its own group as the root of all groups, but the host's path of it.
                own = Path(path.lstrip("/"))
                yield from (top / place for place in (own, *own.parents) if (top / place).is_dir())
