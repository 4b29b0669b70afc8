"""A program's fingerprint: what was compiled or dispatched, told without a clock, the same on a laptop and in CI."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from fwbench.record.decoding import Decoded


@dataclass(frozen=True)
class Fingerprint(Decoded):
    """What a workload's program is made of; what a lane cannot tell is None, and `absent` says why.

    Attributes:
        form: what `digest`, `operators` and `dtypes` are read from.
        digest: of the program as the framework hands it to its compiler or dispatcher, without names of functions,
            places in the source and addresses: SHA-256, hexadecimal.
        operators: how often each operator occurs; in a called function once for every call, in a loop's body once.
        dtypes: by element type (NumPy's names), how many operators of each kind touch it.
        compiler: versions and flags of what made machine code of it, by name.
        processor: what that code is for.
        flops: floating-point operations of a call.
        bytes_accessed: of a call, B.
        fusions: fused kernels that the compiler made.
        libraries: calls of kernels that the compiler takes from libraries (cuBLAS, cuDNN, ...), by name.
        precisions: matrix products and convolutions in the compiled program, by the element type of their operands and
            the precision that is asked of them: `float32 highest` is IEEE, `float32 default` TF32 on an NVIDIA GPU.
        memory: what a call needs by the compiler's account, B.
        memory_parts: what that is made of, B: `arguments`, `outputs` and `temporaries`, less what is `aliased`.
        aliased: arguments whose buffer an output takes over (donation that the compiler could use).
        graph_breaks: places where the compiler gave up on Python code and left it to the interpreter.
        compilations: until the end of the warm-up.
        recompilations: after it, where there should be none.
        absent: why a field is None, by the field's name.

    Raises:
        ValueError: a reason for a field that is told, or for no field.
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
        """The fingerprint of a program of which nothing is known."""
        return cls(absent={item.name: reason for item in dataclasses.fields(cls) if item.name != "absent"})

    def counted(self, compilations: int, recompilations: int | None) -> "Fingerprint":
        """The same with the compilations of a run; `recompilations` is None where no call came after the warm-up."""
        absent = {name: why for name, why in self.absent.items() if name not in ("compilations", "recompilations")}
        if not compilations:
            # Something was compiled: a framework that announces none cannot be believed on later ones either.
            reason = "the framework announced no compilation, not even the first"
            return dataclasses.replace(self, absent=absent | dict.fromkeys(("compilations", "recompilations"), reason))
        if recompilations is None:
            absent["recompilations"] = "no call came after the warm-up"
        return dataclasses.replace(self, compilations=compilations, recompilations=recompilations, absent=absent)
