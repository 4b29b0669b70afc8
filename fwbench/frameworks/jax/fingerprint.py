"""The fingerprint of a JAX program: its StableHLO as lowered, and the program that XLA made of it."""

import os
from collections.abc import Mapping
from types import MappingProxyType

import jax

from fwbench.frameworks.hlo import fingerprint
from fwbench.record.fingerprint import Fingerprint


def told(
    lowered: Fingerprint,
    compiled: jax.stages.Compiled,
    compiler: Mapping[str, str],
    processor: str,
    absent: Mapping[str, str] = MappingProxyType({}),
) -> Fingerprint:
    """The fingerprint of a program that XLA has compiled.

    Args:
        compiler: versions and flags.
        processor: the processor for which the machine code is made.
        absent: the reasons for which some fields stay None.
    """
    costs = compiled.cost_analysis() or {}
    parts = memory_parts(compiled)
    untold = {} if parts else dict.fromkeys(("memory", "memory_parts"), "this XLA backend states no memory need")
    return fingerprint(
        lowered,
        compiled.as_text() or "",
        compiler=compiler,
        processor=processor,
        flops=costs.get("flops"),
        bytes_accessed=costs.get("bytes accessed"),
        memory=needed(parts) if parts else None,
        memory_parts=parts,
        absent={"graph_breaks": "a program traced by JAX is one graph", **untold, **absent},
    )


def flags() -> str:
    """XLA's flags without those for dumps."""
    given = os.environ.get("XLA_FLAGS", "").split()
    return " ".join(sorted(flag for flag in given if not flag.startswith("--xla_dump")))


def memory_parts(compiled: jax.stages.Compiled) -> dict[str, float] | None:
    """XLA's memory analysis in bytes; None if its backend has none."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    return {
        "arguments": float(analysis.argument_size_in_bytes),
        "outputs": float(analysis.output_size_in_bytes),
        "temporaries": float(analysis.temp_size_in_bytes),
        "aliased": float(analysis.alias_size_in_bytes),
    }


def needed(parts: Mapping[str, float]) -> float:
    """Bytes that a call needs, from these `memory_parts`: an aliased output lies in an argument's memory."""
    return parts["arguments"] + parts["outputs"] + parts["temporaries"] - parts["aliased"]
