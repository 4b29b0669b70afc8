"""Whose fault an exception is: the user's network's, or the machine's; one rule for every framework."""

from collections.abc import Iterator
from contextlib import contextmanager

from fwbench.models.importing import ModelError, described

# What CUDA, its libraries (cuBLAS, cuDNN, ...), XLA and PyTorch's allocator on the CPU say.
_OUT_OF_MEMORY = (
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED",
    "can't allocate memory",
)

# Of a multiprocessor's own memory, which a kernel wants too much of: another kernel would do.
_SHARED_MEMORY = "Shared memory size limit exceeded"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one that it came of, means that the host's or the device's memory ran out."""
    return any(map(_says_so, _chain(error)))


@contextmanager
def faults(what: str) -> Iterator[None]:
    """Make a `ModelError` of an exception in the user's code; a lack of memory is no fault of theirs.

    Args:
        what: raised it, for the sentence.

    Raises:
        ModelError: the code raised an exception; the sentence says which and where.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ModelError) or is_out_of_memory(error):
            raise
        raise ModelError(f"{what} raised {described(error)}") from error


def first_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def _says_so(error: BaseException) -> bool:
    # By its name, so that PyTorch need not be imported to know PyTorch's.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if not isinstance(error, RuntimeError):
        return False
    message = str(error)
    return _SHARED_MEMORY not in message and any(words in message for words in _OUT_OF_MEMORY)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that it came of; Inductor's keep theirs in an attribute."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        error = pending.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        context = None if error.__suppress_context__ else error.__context__
        inner = getattr(error, "inner_exception", None)
        pending += [error.__cause__, context, inner if isinstance(inner, BaseException) else None]
