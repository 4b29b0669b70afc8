"""The workload to measure: pure data that travels as JSON from pytest to the worker and onto the record."""

import dataclasses
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fwbench.record.decoding import Decoded
from fwbench.record.fields import Axes, Field, Size, fields, spelled

TRAINING = ("train_step", "fit")
# A call takes and returns a state, such as a cache.
STATEFUL = ("prefill", "decode")
# A call is a forward pass.
FORWARD = ("inference", *STATEFUL)
MODES = (*FORWARD, *TRAINING)
# Modes of the benchmarks that price the harness itself.
HARNESS_MODES = ("dispatch", "fixed")
# The most exact first.
PRECISIONS = ("fp64", "fp32", "tf32", "bf16")
# Precisions that are faster than fp32 and have larger errors, which their rows state.
LOWER = ("tf32", "bf16")
DEVICES = ("cpu", "gpu")
OPTIMIZERS = ("adam", "sgd")
WEIGHTS = ("drawn", "pretrained")
CALLS = ("program", "module")
DATA = ("digits", "mnist", "imagenet-100", "synthetic")

# Names show a list of at most so many sizes whole, and the first half of so many of a longer one.
_SHOWN = 8


def shown(size: Size) -> int | str:
    """A size in ids and tables. A long list is cut, and ends in the number of its sizes and a checksum."""
    if isinstance(size, int):
        return size
    whole = spelled(size)
    if len(size) <= _SHOWN:
        return whole
    return f"{spelled(size[: _SHOWN // 2])}-of{len(size)}-{zlib.crc32(whole.encode()):08x}"


@dataclass(frozen=True)
class Workload(Decoded):
    """One configuration to measure: the benchmark's id, the worker's input and the record's key.

    Each field has its description beside it, and the fields stand in the order in which an id shows them.

    Raises:
        ValueError: a field has a value that no worker could run; one sentence says which.
    """

    lane: Annotated[str, Field("A lane, which `fwbench list` names.", source="--fwbench-lanes")]
    model: Annotated[str, Field("A model, which `fwbench list` or a test names.", source="--fwbench-models")]
    mode: Annotated[
        str,
        Field(
            "What is measured: a forward pass, a prompt (`prefill`) or one further step (`decode`) with a state, one "
            "optimizer step, or epochs of training with validation; `dispatch` and `fixed` price the harness itself.",
            choices=(*MODES, *HARNESS_MODES),
            open=True,
            source="the test",
        ),
    ] = "inference"
    batch_size: Annotated[
        int, Field("Samples of a step, of all devices together.", least=1, source="--fwbench-batch-sizes")
    ] = 1
    precision: Annotated[
        str,
        Field(
            "Arithmetic: `fp32` is IEEE everywhere, and never a framework's default.",
            "{}",
            choices=PRECISIONS,
            open=True,
            source="--fwbench-precision",
        ),
    ] = "fp32"
    # Not part of the id: the machine's fingerprint names the accelerator.
    device: Annotated[str, Field("Where it runs.", choices=DEVICES, source="the machine")] = "cpu"
    weights: Annotated[
        str,
        Field(
            "The models' weights: drawn with a seed, or torchvision's published ones.", "{}", choices=WEIGHTS, open=True
        ),
    ] = "drawn"
    data: Annotated[
        str, Field("The data that epochs are trained on.", "{}", choices=DATA, open=True, modes=("fit",), single=True)
    ] = "synthetic"
    data_path: Annotated[
        str | None,
        Field(
            "Where the data are: for `mnist` the folder of its files, for `imagenet-100` a folder or a name on the "
            "Hugging Face hub.",
            modes=("fit",),
            single=True,
        ),
    ] = None
    epochs: Annotated[int, Field("Epochs of a training.", "e{}", least=1, modes=("fit",))] = 1
    optimizer: Annotated[
        str,
        Field("The optimizer of training; `sgd` has momentum.", "{}", choices=OPTIMIZERS, open=True, modes=TRAINING),
    ] = "adam"
    learning_rate: Annotated[
        float | None,
        Field("The learning rate of training, in place of the optimizer's own.", "lr{:g}", modes=TRAINING, single=True),
    ] = None
    accumulate: Annotated[
        int,
        Field(
            "Equal parts that a training batch is cut into; their gradients are added up.",
            "a{}",
            least=1,
            modes=TRAINING,
        ),
    ] = 1
    remat: Annotated[
        bool,
        Field(
            "Activation checkpointing (rematerialisation): the backward pass computes the activations of a block (of a "
            "ResNet, ViT, MobileNetV3 or EfficientNet) again instead of keeping them.",
            "remat",
            modes=TRAINING,
        ),
    ] = False
    seed: Annotated[int, Field("The seed of drawn weights, of the batch and of the data's order.", "s{}", least=0)] = 0
    variant: Annotated[
        str, Field("A study's label for a comparison that is not the corrected one.", "{}", source="the study")
    ] = ""
    axes: Annotated[
        Axes,
        Field(
            "A value for each of the model's axes that has several, such as a sequence length; of one axis it may be a "
            "list of sizes, which a call takes in turn.",
            source="the model",
        ),
    ] = ()
    plain: Annotated[
        bool,
        Field(
            "Networks of their framework's own operators alone, without fwbench's forms of convolutions for JAX on a "
            "CPU.",
            "plain",
        ),
    ] = False
    call: Annotated[
        str,
        Field(
            "How JAX's lane calls a network: its compiled program with the network's arrays, or `module`, as users of "
            "its library do, by `flax.nnx.jit`, `equinox.filter_jit` or `jax.jit`. In other lanes both are the same.",
            "{}",
            choices=CALLS,
            open=True,
            modes=FORWARD,
        ),
    ] = "program"
    target: Annotated[
        str | None,
        Field(
            "The GPU that programs are compiled for without being run, in place of the device at hand.",
            "{}",
            source="--fwbench-programs-only",
        ),
    ] = None
    devices: Annotated[
        int,
        Field(
            "Devices over which a step is spread, each with an equal part of the batch (data parallelism); on a CPU, "
            "processes with cores of their own.",
            "d{}",
            least=1,
            source="--fwbench-devices",
        ),
    ] = 1

    def __post_init__(self) -> None:
        for name, field in FIELDS.items():
            field.check(getattr(self, name))
        if self.batch_size % self.parts:
            raise ValueError(f"a batch of {self.batch_size} cannot be cut into {self.parts} equal parts")

    def halved(self) -> "Workload | None":
        """The workload with half the batch, rounded down to a multiple of `parts`; None if that leaves nothing."""
        samples = self.batch_size // 2 // self.parts
        return dataclasses.replace(self, batch_size=samples * self.parts) if samples else None

    def fitted(self, unfit: Sequence[int]) -> "Workload":
        """The workload with half the last of the batches that did not fit into memory; itself if there are none.

        Raises:
            ValueError: that batch has no half.
        """
        if not unfit:
            return self
        smaller = dataclasses.replace(self, batch_size=unfit[-1]).halved()
        if smaller is None:
            raise ValueError(f"a batch of {unfit[-1]} has no smaller one")
        return smaller

    @property
    def anywhere(self) -> "Workload":
        """The workload without the data's path, which may differ between machines."""
        return dataclasses.replace(self, data_path=None)

    @property
    def of_all(self) -> "Workload":
        """The workload of all lanes: its own lane is empty."""
        return dataclasses.replace(self, lane="")

    @property
    def parts(self) -> int:
        """The number of equal parts of a batch: for each device, those whose gradients it adds up."""
        return self.devices * self.accumulate

    @property
    def takes_turns(self) -> bool:
        """True if a duet can measure it: not epochs, which are too long, nor several devices, which have no seats."""
        return self.mode != "fit" and self.devices == 1

    @property
    def subject(self) -> str:
        """The model at its axes' values and on its devices, for readers: `tiny-bert length 128 on 2 devices`."""
        devices = [f"on {self.devices} devices"] if self.devices > 1 else []
        return " ".join([self.model, *(f"{axis} {shown(size)}" for axis, size in self.axes), *devices])

    @property
    def runner(self) -> str:
        """The lane without the name of a network: `torch-compile` of `torch-compile:fused`."""
        return self.lane.partition(":")[0]

    @property
    def each(self) -> "list[Workload]":
        """The workloads of a single size of each axis that a call runs, in order; itself alone without a list."""
        for place, (axis, sizes) in enumerate(self.axes):
            if isinstance(sizes, tuple):
                before, after = self.axes[:place], self.axes[place + 1 :]
                return [dataclasses.replace(self, axes=(*before, (axis, size), *after)) for size in sizes]
        return [self]

    @property
    def samples(self) -> int:
        """The number of samples that a call computes."""
        return self.batch_size * len(self.each)

    @property
    def id(self) -> str:
        """The stable name under which baselines keep this workload; default values are left out."""
        axes = [f"{axis}{shown(size)}" for axis, size in self.axes]
        return "-".join([self.lane, self.model, self.mode, f"b{self.batch_size}", *axes, *self.marks(FIELDS)])

    def marks(self, names: Iterable[str]) -> list[str]:
        """The parts of an id for these fields: those that are not the default, and those that only this mode has."""
        return [
            field.mark.format(getattr(self, name))
            for name, field in ((name, FIELDS[name]) for name in names)
            if field.mark and (getattr(self, name) != field.default or field.modes == (self.mode,))
        ]

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON primitives."""
        return {**dataclasses.asdict(self), "axes": dict(self.axes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Workload":
        """The inverse of `to_json`; an unknown field raises a TypeError."""
        axes = data.get("axes", {}).items()
        return cls(**{**data, "axes": tuple((axis, of if isinstance(of, int) else tuple(of)) for axis, of in axes)})


FIELDS = fields(Workload)


def keeps(operation: str, arithmetic: str | None, precision: str) -> bool:
    """True if the arithmetic that a probe found in an operation keeps what a workload's precision promises.

    Attention may be more exact: PyTorch computes it in IEEE float32 even where TF32 is allowed.
    """
    if operation == "attention" and arithmetic in PRECISIONS:
        return PRECISIONS.index(arithmetic) <= PRECISIONS.index(precision)
    return arithmetic == precision
