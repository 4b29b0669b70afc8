"""Threads for what NumPy computes array by array: it does so without Python's lock."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_all_cpus(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The function's result for each item, in order, by as many threads as this process may use CPUs."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(cpus) as threads:
        return list(threads.map(function, items))
