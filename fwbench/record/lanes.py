"""The lanes: frameworks as users run them, under the names that label every number.

A `Lane` is the one place that says what the rest of fwbench must know of a framework. It is data alone, so that
pytest's process, the report and the gates can name a lane without importing its framework, and so that it can travel
to a worker as JSON. Extensions add lanes through `fwbench.extensions.Extension`, packages through the entry point group
`fwbench.lanes`; docs/adding-a-lane.md shows how.
"""

import dataclasses
import functools
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fwbench.errors import UserError
from fwbench.extensions import extensions, resolve
from fwbench.record.decoding import Decoded

GROUP = "fwbench.lanes"

# The variable that names the folder in which a derived lane keeps exported networks.
EXPORTS = "FWBENCH_EXPORTS"

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?::[A-Za-z0-9][\w.+-]*)?")


@dataclass(frozen=True, kw_only=True)
class Lane(Decoded):
    """A framework as users run it.

    Attributes:
        name: for the command line, ids and records; letters, digits, `_`, `.` and `-`. `LANE:NETWORK` where
            a model has several networks in its framework.
        framework: a Python name, under which models name their networks: `Model(..., numpy="mine.net:Net")`. The
            lanes of one framework share an interpreter.
        title: for readers.
        derived: another framework whose networks the lane runs, as it has none of its own. A model has the networks of
            that framework under the lane's `framework`, too. The lane needs no proof, as each run checks what it
            computes. It is measured only when it is asked for.
        adapter: import path, `package.module:name`, of a `fwbench.frameworks.contract.Framework`. Only workers
            import it.
        distributions: those whose versions the record states, the framework's own first. The lane needs all of them.
        libraries: further distributions whose versions the record states if they are installed.
        baseline: whether other lanes' speed-up is stated relative to this one. One of fwbench's own lanes has it set.
        internal: whether it is part of the harness's own benchmarks, never of a user's suite.
        profiles: the profiles that measure the lane unless other lanes are asked for.
        gpu_profiles: further profiles that do so on a GPU.
        environment: environment variables of its workers, which override the user's. A value is a text, in which
            `{threads}` becomes the number of threads of a run, or a text for each device (`cpu`, `gpu`) that has one.
        recorded: prefixes of environment variables that change what is measured; those that are set go onto the record.
        caches: variables that name the cache folders of its compilers, each with a folder's name. A process that
            measures has empty folders of its own. Processes that take turns share them, as compiling is not compared
            there.
        sharing: further variables that make the compilers use the shared folders, for processes that take turns and
            for those that compile their programs.
        parity: import path of the `fwbench.ext.proofs.case.Side` that stands for its framework in proofs; of a lane
            whose compiler is another one, the side that runs the lane's own program. None: no proof runs the lane's
            program, and each run checks it.
        networks: import paths, by model, of networks in the lane's framework, for models that name none in it.
        fallback: flags to add one after the other if the lane crashes or its compiler fails on a GPU, the mildest
            first: an environment variable and the text to add to its value.
        trial: Python code that uses no GPU and fails if a flag in its environment is unknown; such a flag is left out.
        processes: how to run a workload over several devices, for each kind of device (`cpu`, `gpu`) that allows it:
            `device`, a process for each, or `host`, one process over all devices of a host.
        launcher: the program that starts the processes: `torchrun`, PyTorch's elastic launcher, or `fwbench`.
        quantised: the format to which it rounds its weights, such as `int8`. Its outputs then need not agree with other
            lanes', and its rows state their error against float64. Empty: it rounds none.
        package: the distribution that the lane comes from.

    Raises:
        ValueError: a name or an import path is invalid; the sentence says which.
    """

    name: str
    framework: str
    title: str
    adapter: str
    distributions: tuple[str, ...]
    derived: str | None = None
    libraries: tuple[str, ...] = ()
    baseline: bool = False
    internal: bool = False
    profiles: tuple[str, ...] = ("quick", "ci", "paper")
    gpu_profiles: tuple[str, ...] = ()
    environment: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    recorded: tuple[str, ...] = ()
    caches: Mapping[str, str] = field(default_factory=dict)
    sharing: Mapping[str, str] = field(default_factory=dict)
    parity: str | None = None
    networks: Mapping[str, str] = field(default_factory=dict)
    fallback: tuple[tuple[str, str], ...] = ()
    trial: str = ""
    processes: Mapping[str, str] = field(default_factory=dict)
    launcher: str = "fwbench"
    quantised: str = ""
    package: str = "fwbench"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a lane's name is made of letters, digits, _, . and -, and {self.name!r} is not")
        if not self.framework.isidentifier():
            raise ValueError(f"the framework of the lane {self.name!r} is a Python name, and {self.framework!r} is not")
        for path in filter(None, (self.adapter, self.parity, *self.networks.values())):
            module, _, name = path.partition(":")
            if not module or not name:
                raise ValueError(
                    f"{path!r} of the lane {self.name!r} is no import path: write it as package.module:name"
                )

    @property
    def source(self) -> str:
        """The framework under which models name the networks that the lane runs."""
        return self.derived or self.framework

    def in_ranks(self, devices: int, device: str) -> bool:
        """True if a workload over this many devices of a host runs in a process for each."""
        return devices > 1 and self.processes.get(device) == "device"

    def is_measured(self, profile: str, device: str) -> bool:
        """True if a profile measures the lane on a device by default."""
        return not self.internal and profile in (*self.profiles, *(self.gpu_profiles if device == "gpu" else ()))

    def variables(self, threads: int, device: str) -> dict[str, str]:
        """The environment variables of the lane's workers on a device, with this many threads."""
        values = {
            name: value if isinstance(value, str) else value.get(device) for name, value in self.environment.items()
        }
        return {name: value.replace("{threads}", str(threads)) for name, value in values.items() if value is not None}

    def cached(self, folder: Path) -> dict[str, str]:
        """The variables that put the compilers' caches and exported networks into a folder."""
        names = {**self.caches, EXPORTS: "exports"} if self.derived else self.caches
        return {variable: str(folder / name) for variable, name in names.items()}


# Prefixes of environment variables that change what any framework does; those that are set go onto the record.
RECORDED = (
    *("MALLOC_", "GLIBC_TUNABLES", "OMP_", "KMP_", "OPENBLAS_", "LD_PRELOAD", "LD_LIBRARY_PATH"),
    *("CUBLAS_", "CUBLASLT_", "CUDNN_", "NCCL_", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES"),
    *("CUDA_CACHE_", "CUDA_DEVICE_", "CUDA_FORCE_PTX_JIT", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_MPS_"),
)

# Variables in which Inductor gives Triton the paths of PyTorch's own tools, when it first compiles for a GPU.
TOOLS = frozenset({"TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH"})
# Variables that hold paths of this machine, or a choice among its equal GPUs.
PLACES = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", *TOOLS})

# NVIDIA's libraries, which compute for PyTorch and for JAX; for CUDA 12 they have other names.
NVIDIA = (
    *("nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "nvidia-cusolver", "nvidia-cufft"),
    *("nvidia-cuda-runtime", "nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-nvjitlink"),
    *("nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-nccl-cu12", "nvidia-cuda-nvcc-cu12"),
)

_TORCH = Lane(
    name="torch",
    framework="torch",
    title="PyTorch (eager)",
    adapter="fwbench.frameworks.torch.adapter:FRAMEWORK",
    distributions=("torch", "torchvision"),
    libraries=("triton", *NVIDIA),
    baseline=True,
    environment={
        "MKL_NUM_THREADS": "{threads}",
        # On import, Inductor of PyTorch 2.11 looks for a GPU. Asking CUDA would initialise CUDA, which no forked
        # process could then use. Asking NVML does not.
        "PYTORCH_NVML_BASED_CUDA_CHECK": {"gpu": "1"},
    },
    recorded=(
        *("MKL_", "PYTORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_"),
        *("TORCH_ALLOW_TF32_", "TORCH_BLAS_", "TORCH_COMPILE_", "TORCH_CUDNN_", "TORCH_LINALG_", "TORCH_LOGS"),
    ),
    caches={"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"},
    parity="fwbench.ext.proofs.torch:TorchSide",
    processes={"cpu": "device", "gpu": "device"},
    launcher="torchrun",
)


def compiled(lane: Lane, name: str, title: str, parity: str | None = None) -> Lane:
    """The lane that compiles a framework's programs, from the lane that does not; `parity` runs what it compiles."""
    # On a CPU, compiling takes longer than all else.
    return dataclasses.replace(
        lane, name=name, title=title, baseline=False, parity=parity, profiles=("paper",), gpu_profiles=("quick",)
    )


_COMPILED = compiled(
    _TORCH, "torch-compile", "PyTorch (torch.compile)", "fwbench.ext.proofs.torch_compile:CompiledSide"
)
# Measured only when it is asked for.
_MAX = dataclasses.replace(
    _COMPILED,
    name="torch-compile-max",
    title="PyTorch (torch.compile, max-autotune)",
    parity=None,
    profiles=(),
    gpu_profiles=(),
)
_JAX = Lane(
    name="jax",
    framework="jax",
    title="JAX (jit)",
    adapter="fwbench.frameworks.jax.adapter:FRAMEWORK",
    distributions=("jax", "jaxlib", "flax"),
    libraries=("jax-cuda13-plugin", "jax-cuda13-pjrt", "jax-cuda12-plugin", "jax-cuda12-pjrt", *NVIDIA),
    environment={
        # XLA's CPU thread pool.
        "NPROC": "{threads}",
        # JAX would open every device that it sees.
        "JAX_PLATFORMS": {"cpu": "cpu"},
        # Without a GPU, JAX's plugin for one only compiles (`--fwbench-programs-only=GPU`), which needs no driver.
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": {"cpu": "1"},
        # JAX's pool would take three quarters of the GPU at start, and a memory meter would see nothing but the pool.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        # Otherwise JAX writes compiled programs to disk, and compile time includes that.
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    },
    recorded=("JAX_", "NPROC", "XLA_"),
    caches={"JAX_COMPILATION_CACHE_DIR": "jax"},
    sharing={
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # In JAX 0.10 the folder of XLA's own caches is part of the cache key, and each process has another folder.
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    },
    parity="fwbench.ext.proofs.jax:JaxSide",
    processes={"cpu": "device", "gpu": "host"},
    # First XLA does without Triton's matrix products, then without autotuning, too. Without autotuning alone, it would
    # take the first of Triton's kernels untried, and some of these do not compile.
    fallback=(("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false"), ("XLA_FLAGS", "--xla_gpu_autotune_level=0")),
    trial="import os; os.environ['JAX_PLATFORMS'] = 'cpu'; import jax; jax.devices()",
)
_NOOP = Lane(
    name="noop",
    framework="noop",
    title="no framework",
    adapter="fwbench.frameworks.noop.adapter:FRAMEWORK",
    distributions=("numpy",),
    internal=True,
    processes={"cpu": "device", "gpu": "device"},
)

# The core's lanes, by name.
OWN: Mapping[str, Lane] = {lane.name: lane for lane in (_TORCH, _COMPILED, _JAX, _MAX, _NOOP)}

BASELINE = next(lane for lane in OWN.values() if lane.baseline)


class Lanes(Mapping[str, Lane]):
    """The lanes of the core, of fwbench's extensions and of installed packages, by name.

    `LANE:NETWORK`, such as `torch:fused`, is the lane that runs one of several networks that a model has in the lane's
    framework. It is not listed, as only the model knows the names.

    Both are searched when more than the core's lanes is first needed, as the search takes some milliseconds.

    Raises:
        UserError: a package's lanes cannot be loaded, are no lanes, or have another lane's name.
    """

    def __getitem__(self, name: str) -> Lane:
        own, _, of_model = name.partition(":")
        lane = OWN[own] if own in OWN else self._all[own]
        if name == own:
            return lane
        if not _NAME.fullmatch(name):
            raise KeyError(name)
        return dataclasses.replace(lane, name=name, title=f"{lane.title}: {of_model}", baseline=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @functools.cached_property
    def _all(self) -> dict[str, Lane]:
        extended = [lane for each in extensions() if each.lanes for lane in resolve(each.lanes)]
        lanes = {lane.name: lane for lane in (*OWN.values(), *extended)}
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
            for lane in _of_package(point):
                known = lanes.setdefault(lane.name, lane)
                if known is not lane:
                    raise UserError(
                        f"{lane.package} and {known.package} both have a lane {lane.name!r}: uninstall one of them."
                    )
        return lanes


LANES = Lanes()


def of_profile(profile: str, device: str, frameworks: Container[str]) -> tuple[str, ...]:
    """The lanes that a profile measures a model with.

    Args:
        frameworks: the frameworks in which the model itself names networks.
    """
    return tuple(
        lane.name for lane in LANES.values() if lane.is_measured(profile, device) and lane.framework in frameworks
    )


def network(lane: str) -> str:
    """The name of the network in a lane's name; empty if it has none."""
    return lane.partition(":")[2]


def networks(model: str, *, own: bool = False) -> dict[str, str]:
    """Import paths, by framework, of the networks that lanes bring for the model of this name.

    Args:
        own: whether only fwbench's own lanes count.
    """
    lanes = [lane for lane in LANES.values() if lane.package == "fwbench" or not own]
    return {lane.framework: lane.networks[model] for lane in lanes if model in lane.networks}


def candidate(lane: Lane) -> str:
    """The name under which proofs keep a lane's program: its framework's, or its own; empty if no proof runs it.

    A lane has proofs of its own program if its `parity` is another one than that of its framework's first lane.
    """
    if lane.derived or not lane.parity:
        return ""
    of_framework = (each.parity for each in LANES.values() if each.framework == lane.framework and each.parity)
    return lane.framework if lane.parity == next(of_framework, lane.parity) else lane.name.partition(":")[0]


def framework_of(candidate: str) -> str:
    """The framework of a proof's candidate, which is a framework or a lane whose own program is proved."""
    return LANES[candidate].framework if candidate in LANES else candidate


def recorded(lanes: Iterable[Lane]) -> tuple[str, ...]:
    """Prefixes of the variables that change what these lanes measure."""
    return (*RECORDED, "CUDA_VISIBLE_DEVICES", *(prefix for lane in lanes for prefix in lane.recorded))


def _of_package(point: EntryPoint) -> list[Lane]:
    """The lanes that an entry point names, each with its package."""
    package = point.dist.name if point.dist else point.module
    try:
        loaded = point.load()
        lanes = list(loaded) if isinstance(loaded, Iterable) else [loaded]
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(
            f"the lanes of {package} cannot be loaded from {point.value!r} ({reason}): upgrade or uninstall {package}."
        ) from error
    for lane in lanes:
        if not isinstance(lane, Lane):
            fault = f"{point.value!r} of {package} holds {lane!r}, which is no Lane"
        elif network(lane.name):
            fault = f"the lane {lane.name!r} of {package} has a colon in its name, which separates it from a network's"
        elif lane.baseline:
            fault = f"the lane {lane.name!r} of {package} claims to be the baseline, which {BASELINE.name!r} is"
        else:
            continue
        raise UserError(f"{fault}: upgrade or uninstall {package}.")
    return [dataclasses.replace(lane, package=package) for lane in lanes]
