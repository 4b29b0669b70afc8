"""The lanes: frameworks as users run them, under the names that label every number.

Data only, so that pytest's process, the report and the gate can name a lane without importing its framework.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lane:
    """A framework as users run it.

    Attributes:
        name: on the command line, in ids and in records.
        framework: the folder under `fwbench/frameworks/`; the lanes of one framework share an interpreter.
        title: for readers.
        distributions: whose versions the record states, the framework's own first.
        baseline: whether other lanes' speed-up is stated relative to this one.
        internal: part of the harness's own benchmarks, never of a user's suite.
        ladder: what to try one after the other where the lane crashes on a GPU, the mildest first: an environment
            variable and what to add to its value.
    """

    name: str
    framework: str
    title: str
    distributions: tuple[str, ...]
    baseline: bool = False
    internal: bool = False
    ladder: tuple[tuple[str, str], ...] = ()


LANES = {
    lane.name: lane
    for lane in (
        Lane("torch", "torch", "PyTorch (eager)", ("torch", "torchvision"), baseline=True),
        Lane("torch-compile", "torch", "PyTorch (torch.compile)", ("torch", "torchvision")),
        Lane(
            "jax",
            "jax",
            "JAX (jit)",
            ("jax", "jaxlib", "flax"),
            # Autotuning without Triton's products, without Triton, and none at all.
            ladder=(
                ("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false"),
                ("XLA_FLAGS", "--xla_gpu_experimental_autotune_backends=-triton"),
                ("XLA_FLAGS", "--xla_gpu_autotune_level=0"),
            ),
        ),
        Lane("noop", "noop", "no framework", ("numpy",), internal=True),
    )
}
