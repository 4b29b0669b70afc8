"""The reason for a failure of `torch.compile`, without the sentences that Dynamo and Inductor put around it."""

import re

from fwbench.frameworks.faults import chain, first_line

# Modules that define the compiler's exceptions. They are given by name, as the eager lane imports none of them.
_PARTS = ("torch._dynamo", "torch._inductor", "torch._functorch", "triton")

# The line of a C++ compiler's output that names the error.
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)

# The second sentence of a message of Dynamo's.
_EXPLANATION = re.compile(r"^\s*Explanation: (.*?)\.?$", re.MULTILINE)


def failed(error: BaseException) -> bool:
    """True if an exception, or one of its causes, is the compiler's."""
    return any(_is_compilers(one) for one in chain(error))


def reason(error: BaseException) -> str:
    """The message of the compiler's innermost exception, in one line."""
    error = next(filter(_is_compilers, chain(error)))
    while isinstance(held := getattr(error, "inner_exception", None), BaseException):
        error = held
    told, said = type(error).__name__, str(error)
    # The C++ compiler's own words, or Dynamo's on code that it cannot compile.
    output = getattr(error, "output", None)
    if isinstance(output, str) and (lines := output.strip().splitlines()):
        return f"{told}: {next(filter(_ERROR.search, lines), lines[-1]).strip()[:300]}"
    explained = _EXPLANATION.search(said)
    return f"{told}: {first_line(error)}{f' ({explained[1][:300]})' if explained else ''}"


def _is_compilers(error: BaseException) -> bool:
    return any(f"{kind.__module__}.".startswith(tuple(f"{part}." for part in _PARTS)) for kind in type(error).__mro__)
