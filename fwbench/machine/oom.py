"""The host's memory, and whether the kernel has killed processes because it ran out (Linux's OOM killer)."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


def host_memory() -> int:
    """Bytes; 0 where the system does not tell."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Kills:
    """A counter of such kills.

    Attributes:
        count: since the machine was started, or the control group made.
        source: the file that tells.
    """

    count: int
    source: str


def kills(root: Path = Path("/")) -> Kills | None:
    """How many there have been: in this process's control group, or else on the whole machine; None: nobody tells.

    Args:
        root: of the file system.
    """
    for path in _files(root):
        with suppress(OSError):
            if match := _COUNT.search(path.read_text(encoding="utf-8")):
                return Kills(int(match[1]), f"/{path.relative_to(root)}")
    return None


def _files(root: Path) -> Iterator[Path]:
    """Where the kernel counts them: version 2 of control groups, version 1, the machine."""
    groups = root / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            # A container may see its own group as the root of all, and its path as the host's.
            for place in (path.lstrip("/"), ""):
                if not controllers:
                    yield groups / place / "memory.events"
                elif "memory" in controllers.split(","):
                    yield groups / "memory" / place / "memory.oom_control"
    yield root / "proc/vmstat"
