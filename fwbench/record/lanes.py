"""The lanes: frameworks as users run them, under the names that label every number.

A `Lane` is the one place that says what the rest of fwbench must know of a framework. It is data alone, so that
pytest's process, the report and the gates can name a lane without importing its framework, and so that it can travel
to a worker as JSON. Packages add lanes through the entry point group `fwbench.lanes`; docs/adding-a-lane.md shows how.
"""

import dataclasses
import functools
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fwbench.errors import UserError
from fwbench.record.decoding import Decoded

GROUP = "fwbench.lanes"

# The variable that names the folder in which a derived lane keeps exported networks.
EXPORTS = "FWBENCH_EXPORTS"

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?::[A-Za-z0-9][\w.+-]*)?")


@dataclass(frozen=True, kw_only=True)
class Lane(Decoded):
    """A framework as users run it.

    Attributes:
        name: on the command line, in ids and in records; letters, digits, `_`, `.` and `-`. `LANE:NETWORK` where
            a model has several networks in its framework.
        framework: a Python name, under which models name their networks: `Model(..., numpy="mine.net:Net")`. The
            lanes of one framework share an interpreter.
        title: for readers.
        derived: another framework, whose networks the lane runs: it has none of its own. A model has the networks of
            that framework under the lane's `framework`, too. No proof is asked for: each run checks what the lane
            computes. It is measured only when it is asked for.
        adapter: import path, `package.module:name`, of a `fwbench.frameworks.contract.Framework`. Only workers
            import it.
        distributions: whose versions the record states, the framework's own first. All of them are needed.
        libraries: further distributions whose versions the record states where they are installed.
        baseline: whether other lanes' speed-up is stated relative to this one. Of fwbench's own lanes one is.
        optional: an extra that an environment need not have: the suite's own models are measured in it only when it is
            asked for.
        internal: part of the harness's own benchmarks, never of a user's suite.
        profiles: those that measure the lane unless other lanes are asked for.
        gpu_profiles: further ones, on a GPU.
        environment: variables of its workers, whatever the user has set, and their values: text, in which `{threads}`
            becomes the number of threads of a run, or a text for each device (`cpu`, `gpu`) that has one.
        recorded: prefixes of variables that change what is measured; whatever of them is set goes onto the record.
        caches: variables that name folders in which its compilers keep what they have made, each with a folder's name.
            A process that measures has empty folders of its own; those that take turns, where compiling is not
            compared, share them.
        sharing: further variables of processes that take turns, and of those whose programs they will run, which make
            the compilers use what they share.
        parity: import path of the `fwbench.parity.case.Side` that answers for its framework in proofs; None: no proof
            runs the lane's program, as of one that another compiler makes, and each run checks it.
        networks: import paths of networks in the lane's framework by model, for models that name none in it.
        fallback: flags to add one after the other where the lane crashes or its compiler fails on a GPU, the mildest
            first: an environment variable and what to add to its value.
        trial: Python that uses no GPU and ends a process with an error if a flag in its environment is unknown; such
            a flag is left out.
        processes: how a workload over several devices is run, for each kind of device (`cpu`, `gpu`) on which it is:
            `device`: a process for each, or `host`: one over all devices of a host.
        launcher: what starts the processes: `torchrun`, PyTorch's elastic launcher, or `fwbench`.
        package: the distribution that the lane comes from.

    Raises:
        ValueError: a name is none; the sentence says which.
    """

    name: str
    framework: str
    title: str
    adapter: str
    distributions: tuple[str, ...]
    derived: str | None = None
    libraries: tuple[str, ...] = ()
    baseline: bool = False
    optional: bool = False
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
        """The framework in which models name the networks that it runs."""
        return self.derived or self.framework

    def in_ranks(self, devices: int, device: str) -> bool:
        """Whether a workload over so many devices of a host is run by a process for each."""
        return devices > 1 and self.processes.get(device) == "device"

    def is_measured(self, profile: str, device: str) -> bool:
        """Whether a profile measures it on a device when nobody says."""
        return not self.internal and profile in (*self.profiles, *(self.gpu_profiles if device == "gpu" else ()))

    def variables(self, threads: int, device: str) -> dict[str, str]:
        """Its environment variables on a device, with so many threads."""
        values = {
            name: value if isinstance(value, str) else value.get(device) for name, value in self.environment.items()
        }
        return {name: value.replace("{threads}", str(threads)) for name, value in values.items() if value is not None}

    def cached(self, folder: Path) -> dict[str, str]:
        """The variables of its compilers' caches and of exported networks, in a folder."""
        names = {**self.caches, EXPORTS: "exports"} if self.derived else self.caches
        return {variable: str(folder / name) for variable, name in names.items()}


# Prefixes of variables that change what is measured, whatever the framework; what of them is set goes on the record.
RECORDED = (
    *("MALLOC_", "GLIBC_TUNABLES", "OMP_", "KMP_", "OPENBLAS_", "LD_PRELOAD", "LD_LIBRARY_PATH"),
    *("CUBLAS_", "CUBLASLT_", "CUDNN_", "NCCL_", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES"),
    *("CUDA_CACHE_", "CUDA_DEVICE_", "CUDA_FORCE_PTX_JIT", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_MPS_"),
)

# Variables by which Inductor tells Triton where PyTorch's own tools are, when it first compiles for a GPU.
TOOLS = frozenset({"TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH"})
# Variables that say where things are on this machine, or which of its equal parts a run was given.
PLACES = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", *TOOLS})

# NVIDIA's libraries, which compute for PyTorch and for JAX; for CUDA 12 they have other names.
_NVIDIA = (
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
    libraries=("triton", *_NVIDIA),
    baseline=True,
    environment={
        "MKL_NUM_THREADS": "{threads}",
        # When Inductor of PyTorch 2.11 is imported, it asks whether there is a GPU. To ask CUDA initialises it, after
        # which no forked process can use it. To ask NVML does not.
        "PYTORCH_NVML_BASED_CUDA_CHECK": {"gpu": "1"},
    },
    recorded=(
        *("MKL_", "PYTORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_"),
        *("TORCH_ALLOW_TF32_", "TORCH_BLAS_", "TORCH_COMPILE_", "TORCH_CUDNN_", "TORCH_LINALG_", "TORCH_LOGS"),
    ),
    caches={"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"},
    parity="fwbench.parity.torch:TorchSide",
    processes={"cpu": "device", "gpu": "device"},
    launcher="torchrun",
)
_COMPILED = dataclasses.replace(
    _TORCH,
    name="torch-compile",
    title="PyTorch (torch.compile)",
    baseline=False,
    parity=None,
    # On a CPU it compiles for longer than all else takes.
    profiles=("paper",),
    gpu_profiles=("quick",),
)
# Measured only when they are asked for.
_ASKED = dataclasses.replace(_COMPILED, profiles=(), gpu_profiles=())
_MAX = dataclasses.replace(_ASKED, name="torch-compile-max", title="PyTorch (torch.compile, max-autotune)")
_STEP = dataclasses.replace(
    _ASKED, name="torch-compile-step", title="PyTorch (torch.compile, whole training step)", processes={}
)
_JAX = Lane(
    name="jax",
    framework="jax",
    title="JAX (jit)",
    adapter="fwbench.frameworks.jax.adapter:FRAMEWORK",
    distributions=("jax", "jaxlib", "flax"),
    libraries=("jax-cuda13-plugin", "jax-cuda13-pjrt", "jax-cuda12-plugin", "jax-cuda12-pjrt", *_NVIDIA),
    environment={
        # XLA's CPU thread pool.
        "NPROC": "{threads}",
        # JAX would open every device that it sees.
        "JAX_PLATFORMS": {"cpu": "cpu"},
        # Without a GPU, JAX's plugin for one only compiles (`--fwbench-programs-only=GPU`), which needs no driver.
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": {"cpu": "1"},
        # A pool that takes three quarters of the GPU at start would be all that a memory meter sees.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        # Else it would write what it compiles, and compile time would hold that.
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    },
    recorded=("JAX_", "NPROC", "XLA_"),
    caches={"JAX_COMPILATION_CACHE_DIR": "jax"},
    sharing={
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # JAX 0.10 counts the folder of XLA's own caches into the key, and each process has another one.
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    },
    parity="fwbench.parity.jax:JaxSide",
    processes={"cpu": "device", "gpu": "host"},
    # No products by Triton, which the autotuner would choose from; then no autotuning either. Without the first the
    # second would take the first of Triton's kernels untried, and some of these do not compile.
    fallback=(("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false"), ("XLA_FLAGS", "--xla_gpu_autotune_level=0")),
    trial="import os; os.environ['JAX_PLATFORMS'] = 'cpu'; import jax; jax.devices()",
)
_TENSORFLOW = Lane(
    name="tensorflow",
    framework="tensorflow",
    title="TensorFlow (tf.function)",
    adapter="fwbench.frameworks.tensorflow.adapter:FRAMEWORK",
    distributions=("tensorflow", "keras"),
    libraries=_NVIDIA,
    optional=True,
    environment={
        "TF_NUM_INTRAOP_THREADS": "{threads}",
        "TF_NUM_INTEROP_THREADS": "{threads}",
        # TensorFlow would open every GPU that it sees.
        "CUDA_VISIBLE_DEVICES": {"cpu": "-1"},
        # A pool that takes the whole GPU at start would be all that a memory meter sees.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    },
    # Not all that begins with TF_, as Terraform's variables do.
    recorded=(
        *("TF_AUTOTUNE_", "TF_CPU_", "TF_CUBLAS", "TF_CUDA_", "TF_CUDNN_", "TF_DETERMINISTIC_", "TF_DISABLE_"),
        *("TF_ENABLE_", "TF_FORCE_", "TF_GPU_", "TF_NUM_", "TF_ONEDNN_", "TF_USE_", "TF_XLA_", "XLA_", "ONEDNN_"),
    ),
    parity="fwbench.parity.tensorflow:TensorFlowSide",
    processes={"cpu": "device", "gpu": "device"},
)
_TENSORFLOW_XLA = dataclasses.replace(
    _TENSORFLOW,
    name="tensorflow-xla",
    title="TensorFlow (XLA)",
    parity=None,
    # On a CPU it compiles for longer than all else takes.
    profiles=("paper",),
    gpu_profiles=("quick",),
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

# fwbench's own, by name.
OWN: Mapping[str, Lane] = {
    lane.name: lane for lane in (_TORCH, _COMPILED, _JAX, _TENSORFLOW, _TENSORFLOW_XLA, _MAX, _STEP, _NOOP)
}

BASELINE = next(lane for lane in OWN.values() if lane.baseline)


class Lanes(Mapping[str, Lane]):
    """fwbench's own lanes and those of installed packages, by name.

    `LANE:NETWORK`, such as `torch:fused`, is the lane that runs this one of several networks that a model has in its
    framework. It is not listed, as only the model knows the names.

    Packages are looked for when something first asks for more than an own lane, which costs some milliseconds.

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
        lanes = dict(OWN)
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
        profile: a name in `fwbench.suite.profiles.PROFILES`.
        device: `cpu` or `gpu`.
        frameworks: those that the model itself names networks in.
    """
    return tuple(
        lane.name for lane in LANES.values() if lane.is_measured(profile, device) and lane.framework in frameworks
    )


def network(lane: str) -> str:
    """The name of the network in a lane's name; empty where it has none."""
    return lane.partition(":")[2]


def networks(model: str) -> dict[str, str]:
    """Import paths, by framework, of the networks that packages with lanes bring for the model of this name."""
    return {lane.framework: lane.networks[model] for lane in LANES.values() if model in lane.networks}


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
            raise UserError(
                f"{point.value!r} of {package} holds {lane!r}, which is no Lane: upgrade or uninstall {package}."
            )
        if network(lane.name):
            raise UserError(
                f"the lane {lane.name!r} of {package} has a colon in its name, behind which a model's network stands: "
                f"upgrade or uninstall {package}."
            )
        if lane.baseline:
            raise UserError(
                f"the lane {lane.name!r} of {package} claims to be the baseline, which {BASELINE.name!r} is: upgrade "
                f"or uninstall {package}."
            )
    return [dataclasses.replace(lane, package=package) for lane in lanes]
