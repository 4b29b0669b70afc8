"""Tells faults of the user's network from those of the machine, by the same rule for every framework."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fwbench.models.importing import ModelError, described

# Messages about a lack of memory: of PyTorch's allocator on the CPU, C++, CUDA, its libraries (cuBLAS, cuDNN, ...), XLA
# and TensorFlow's allocators.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "std::bad_alloc",
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED",
    "Out of memory while trying to allocate",
    "OOM when allocating",
    "failed to allocate memory",
)

# The kernel asked for too much of a multiprocessor's own memory; the device's memory is not full.
_SHARED_MEMORY = "Shared memory size limit exceeded"

# The amount that was requested: `tried to allocate 8 bytes`, `Unable to allocate 4.00 TiB`, `allocating 2.5GiB`.
_ASKED = re.compile(r"\ballocat(?:e|ing) (\d+(?:\.\d+)?) ?([KMGTPE]i?B|B\b|bytes)", re.IGNORECASE)
# The same in TensorFlow: `OOM when allocating tensor with shape[64,224,224,3] and type float on /job:...`.
_TENSOR = re.compile(r"shape\[([\d,]*)\] and type (\w+)")
_PREFIXES = "BKMGTPE"
# Bytes per number of TensorFlow's types whose names do not end in their number of bits.
_WIDTHS = {"float": 4, "double": 8, "half": 2, "bool": 1}


def is_out_of_memory(error: BaseException) -> bool:
    """True if an exception, or one of its causes, means that the host's or the device's memory ran out."""
    return any(map(_says_so, chain(error)))


def memory_asked(error: BaseException) -> int | None:
    """Bytes that were requested when memory ran out; None if neither the exception nor its causes say."""
    return next((asked for one in chain(error) if _says_so(one) and (asked := _asked(str(one))) is not None), None)


@contextmanager
def faults(what: str, no_row: str = "") -> Iterator[None]:
    """Turn an exception in the user's code into a `ModelError`, except a lack of memory, which is not the code's fault.

    Exceptions that would end the process, such as SystemExit, are turned, too: in a measuring process no signal raises
    one.

    Args:
        what: the code that raised it, for the sentence.
        no_row: text added to the sentence if the exception is an IndexError.

    Raises:
        ModelError: the code raised an exception; the sentence says which and where.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, ModelError) or is_out_of_memory(error):
            raise
        rest = no_row if isinstance(error, IndexError) else ""
        raise ModelError(f"{what} raised {described(error)}{rest}") from error


def first_line(error: BaseException) -> str:
    """The first line of an exception's message."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and its causes; those of PyTorch's compilers keep a cause in the attribute `inner_exception`."""
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


def _says_so(error: BaseException) -> bool:
    # Recognised by name, so that no framework has to be imported for its exceptions.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    of_tensorflow = any(kind.__name__ == "OpError" for kind in type(error).__mro__)
    if not isinstance(error, RuntimeError) and not of_tensorflow:
        return False
    message = str(error)
    return _SHARED_MEMORY not in message and any(words in message for words in _OUT_OF_MEMORY)


def _asked(message: str) -> int | None:
    if match := _ASKED.search(message):
        number, unit = float(match[1]), match[2].upper()
        return round(number * 1024 ** (0 if unit == "BYTES" else _PREFIXES.index(unit[0])))
    if match := _TENSOR.search(message):
        bits = re.search(r"\d+$", match[2])
        width = int(bits[0]) // 8 if bits else _WIDTHS.get(match[2])
        return None if width is None else math.prod(int(size) for size in match[1].split(",") if size) * width
    return None
