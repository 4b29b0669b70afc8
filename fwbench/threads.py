"""Threads for NumPy's work on many arrays: NumPy releases the GIL meanwhile."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# More threads would only wait for memory, and each needs memory of its own.
_MOST = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_all_cpus(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The function's result for each item, in order; each CPU that this process may use has a thread, 8 at most."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(cpus, _MOST)) as threads:
        return list(threads.map(function, items))
