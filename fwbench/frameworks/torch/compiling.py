"""Why `torch.compile` failed: the innermost reason, which Dynamo and Inductor wrap in sentences of their own."""

import re

from fwbench.frameworks.faults import chain, first_line

# Where the exceptions of its parts are defined; by name, as the eager lane imports none of them.
_PARTS = ("torch._dynamo", "torch._inductor", "torch._functorch", "triton")

# Of a C++ compiler's output, the line that says what is wrong.
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)

# Of Dynamo's sentences, the second.
_EXPLANATION = re.compile(r"^\s*Explanation: (.*?)\.?$", re.MULTILINE)


def failed(error: BaseException) -> bool:
    """Whether an exception, or one that it came of, is the compiler's."""
    return any(_is_compilers(one) for one in chain(error))


def reason(error: BaseException) -> str:
    """Of an exception that came of the compiler's, what the innermost of these says, in one line."""
    error = next(filter(_is_compilers, chain(error)))
    while isinstance(held := getattr(error, "inner_exception", None), BaseException):
        error = held
    told, said = type(error).__name__, str(error)
    # A C++ compiler's own words, and Dynamo's on what it cannot compile.
    output = getattr(error, "output", None)
    if isinstance(output, str) and (lines := output.strip().splitlines()):
        return f"{told}: {next(filter(_ERROR.search, lines), lines[-1]).strip()[:300]}"
    explained = _EXPLANATION.search(said)
    return f"{told}: {first_line(error)}{f' ({explained[1][:300]})' if explained else ''}"


def _is_compilers(error: BaseException) -> bool:
    return any(f"{kind.__module__}.".startswith(tuple(f"{part}." for part in _PARTS)) for kind in type(error).__mro__)
