"""Threads for what NumPy computes array by array: it releases the GIL meanwhile."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# More would compute no faster than memory is written, and each needs memory of its own.
_MOST = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_all_cpus(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The function's result for each item, in order, by a thread for each CPU that this process may use."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(cpus, _MOST)) as threads:
        return list(threads.map(function, items))
