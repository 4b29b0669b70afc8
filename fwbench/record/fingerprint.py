"""A program's fingerprint: what was compiled or dispatched, without any timing, so the same on a laptop and in CI."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from fwbench.record.decoding import Decoded


@dataclass(frozen=True)
class Fingerprint(Decoded):
    """The composition of a workload's program; a field that a lane cannot determine is None, and `absent` says why.

    Attributes:
        form: the representation that `digest`, `operators` and `dtypes` are read from.
        digest: SHA-256, in hexadecimal, of the program as the framework hands it to its compiler or dispatcher, without
            names of functions, places in the source and addresses.
        operators: count of each operator; a called function counts once for every call, a loop's body once.
        dtypes: by element type (NumPy's names), the count of each operator that touches it.
        compiler: versions and flags of the compiler that made the machine code, by name.
        processor: the processor that the machine code is for.
        flops: floating-point operations of a call.
        bytes_accessed: bytes that a call accesses.
        fusions: fused kernels that the compiler made.
        libraries: calls of kernels that the compiler takes from libraries (cuBLAS, cuDNN, ...), by name.
        precisions: matrix products and convolutions in the compiled program, by the element type of their operands and
            the precision requested for them: `float32 highest` is IEEE, `float32 default` TF32 on an NVIDIA GPU.
        memory: the memory that a call needs by the compiler's account, B.
        memory_parts: the parts of `memory`, B: `arguments`, `outputs` and `temporaries`, less what is `aliased`.
        aliased: arguments whose buffer an output takes over (donation that the compiler could use).
        graph_breaks: places where the compiler gave up on Python code and left it to the interpreter.
        compilations: compilations until the end of the warm-up.
        recompilations: compilations after the warm-up, where there should be none.
        absent: why a field is None, by the field's name.

    Raises:
        ValueError: `absent` has a reason for a field with a value, or for a name that is no field.
    """

    form: str | None = None
    digest: str | None = None
    operators: Mapping[str, int] | None = None
    dtypes: Mapping[str, Mapping[str, int]] | None = None
    compiler: Mapping[str, str] | None = None
    processor: str | None = None
    flops: float | None = None
    bytes_accessed: float | None = None
    fusions: int | None = None
    libraries: Mapping[str, int] | None = None
    precisions: Mapping[str, int] | None = None
    memory: float | None = None
    memory_parts: Mapping[str, float] | None = None
    aliased: int | None = None
    graph_breaks: int | None = None
    compilations: int | None = None
    recompilations: int | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {item.name for item in dataclasses.fields(self)} - {"absent"}
        missing = {name for name in names if getattr(self, name) is None}
        if not self.absent.keys() <= missing:
            raise ValueError(f"a fingerprint gives a reason for what is there: {sorted(self.absent.keys() - missing)}")
        reasons = dict.fromkeys(sorted(missing), "the lane does not tell") | dict(self.absent)
        object.__setattr__(self, "absent", reasons)

    @classmethod
    def untold(cls, reason: str) -> "Fingerprint":
        """The fingerprint of a program about which nothing is known."""
        return cls(absent={item.name: reason for item in dataclasses.fields(cls) if item.name != "absent"})

    def counted(self, compilations: int, recompilations: int | None) -> "Fingerprint":
        """The fingerprint with a run's compilations; `recompilations` is None if no call came after the warm-up."""
        absent = {name: why for name, why in self.absent.items() if name not in ("compilations", "recompilations")}
        if not compilations:
            # Something was compiled: a framework that does not announce it cannot be trusted on recompilations either.
            reason = "the framework announced no compilation, not even the first"
            return dataclasses.replace(self, absent=absent | dict.fromkeys(("compilations", "recompilations"), reason))
        if recompilations is None:
            absent["recompilations"] = "no call came after the warm-up"
        return dataclasses.replace(self, compilations=compilations, recompilations=recompilations, absent=absent)
