"""The workloads of each profile's suite, and the form of published studies, which extensions add as presets."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fwbench.extensions import extensions, resolve
from fwbench.record.lanes import OWN
from fwbench.record.workload import DEVICES, STATEFUL

# The four networks of the published studies.
PAPER_MODELS = ("resnet50", "vit_b_16", "mobilenet_v3_small", "efficientnet_b0")
_MODELS = (*PAPER_MODELS, "mlp", "cnn")
# The settings of epochs over the handwritten digits.
DIGITS: Mapping[str, tuple[Any, ...]] = {"data": ("digits",), "learning_rate": (1e-3,)}


@dataclass(frozen=True)
class Part:
    """Workloads of one mode: every combination of lane, model, batch size and settings.

    Attributes:
        settings: the values of other fields of `fwbench.record.workload.Workload`, by name.
        smaller: the batch sizes of models whose calls would take too long with the others, by name.
    """

    mode: str
    lanes: tuple[str, ...]
    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    smaller: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A published study on this suite: its settings, its faults corrected.

    Attributes:
        title: what was studied, and where the published numbers are.
        profile: the profile whose amounts it is measured with unless another is asked for.
    """

    title: str
    profile: str
    parts: tuple[Part, ...]


def _generation(lanes: tuple[str, ...]) -> tuple[Part, ...]:
    """Parts for models with a state, if an option names any: no profile has the minutes for them by default."""
    return tuple(Part(mode, lanes, (), (1, 8)) for mode in STATEFUL)


def _suites(device: str) -> dict[str, tuple[Part, ...]]:
    def lanes(profile: str) -> tuple[str, ...]:
        return tuple(lane.name for lane in OWN.values() if lane.is_measured(profile, device))

    # Sized by the minutes that a run takes. Compiling training steps takes long, so `quick` has those of one large and
    # one small model alone. On a GPU, where it measures the compiled PyTorch lane too, inference has one batch size.
    inference, training = {"cpu": ((1, 8), (2,)), "gpu": ((32,), (32,))}[device]
    # A call of a second leaves no time for turns.
    smaller = {"vit_b_16": (1, 2)} if device == "cpu" else {}
    # `quick` measures everything in IEEE float32, in which few users compute on a GPU. So it measures the large models
    # also in the precisions that they use.
    usual = (
        Part("inference", lanes("quick"), ("resnet50", "vit_b_16"), inference, {"precision": ("tf32", "bf16")}),
    ) * (device == "gpu")
    return {
        "quick": (
            Part("inference", lanes("quick"), _MODELS, inference, smaller=smaller),
            *usual,
            Part("train_step", lanes("quick"), ("resnet50", "mlp"), training),
            Part("fit", lanes("quick"), ("mlp",), (64,), {**DIGITS, "epochs": (5,)}),
            *_generation(lanes("quick")),
        ),
        # Small models, so that a gate can afford several processes a side.
        "ci": (
            Part("inference", lanes("ci"), ("mobilenet_v3_small",), (1,)),
            Part("inference", lanes("ci"), ("cnn",), (8,)),
            Part("train_step", lanes("ci"), ("mlp",), (64,)),
            *_generation(lanes("ci")),
        ),
        "paper": (
            Part("inference", lanes("paper"), _MODELS, (1, 8, 32, 128)),
            Part("train_step", lanes("paper"), _MODELS, (32, 64, 128)),
            Part("fit", lanes("paper"), ("mlp",), (64,), {**DIGITS, "epochs": (20,)}),
            *_generation(lanes("paper")),
        ),
    }


# The parts that a profile measures without a study: by device, then by profile.
SUITES: dict[str, dict[str, tuple[Part, ...]]] = {device: _suites(device) for device in DEVICES}


@functools.cache
def studies() -> Mapping[str, Study]:
    """The published studies that extensions add, by name."""
    found = (resolve(added.studies) for added in extensions() if added.studies)
    return {name: study for each in found for name, study in each.items()}
