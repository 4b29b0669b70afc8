"""Whose fault an exception is: the user's network's, or the machine's."""

import functools

from fwbench.models import importing


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the exception means that the host's or the device's memory ran out."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


faults = functools.partial(importing.faults, is_out_of_memory=is_out_of_memory)
