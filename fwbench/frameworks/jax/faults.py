"""Whose fault an exception is: the user's network's, or the machine's."""

from collections.abc import Iterator
from contextlib import contextmanager

from fwbench.models.importing import ModelError, described


@contextmanager
def faults(what: str) -> Iterator[None]:
    """Make a `ModelError` of an exception in the user's code; a lack of memory is no fault of theirs.

    Raises:
        ModelError: the code raised an exception; the sentence says which and where.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ModelError) or is_out_of_memory(error):
            raise
        raise ModelError(f"{what} raised {described(error)}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the exception means that the host's or the device's memory ran out."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
