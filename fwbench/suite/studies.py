"""Which workloads there are: the suite of each profile, and the published studies as presets on the same suite."""

from dataclasses import dataclass

from fwbench.record.lanes import OWN

_PAPER_MODELS = ("resnet50", "vit_b_16", "mobilenet_v3_small", "efficientnet_b0")
_MODELS = (*_PAPER_MODELS, "mlp", "cnn")
# Those that the paper's protocol is run with: its own two, and the compiled one that it left out.
_PAPER_LANES = ("torch", "torch-compile", "jax")


@dataclass(frozen=True)
class Part:
    """Workloads of one mode: every combination of lane, model, batch size and seed.

    Attributes:
        optimizer, learning_rate, data, epochs, variant: as in `fwbench.record.workload.Workload`, of every one of them.
    """

    mode: str
    lanes: tuple[str, ...]
    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    seeds: tuple[int, ...] = (0,)
    optimizer: str = "adam"
    learning_rate: float | None = None
    data: str = "synthetic"
    epochs: int = 1
    variant: str = ""


@dataclass(frozen=True)
class Study:
    """A published study on this suite: its settings, its faults corrected.

    Attributes:
        title: what was studied, and where the published numbers are.
        profile: whose amounts it is measured with unless others are asked for.
    """

    title: str
    profile: str
    parts: tuple[Part, ...]


def _lanes(profile: str) -> tuple[str, ...]:
    """fwbench's own lanes that a profile measures."""
    return tuple(lane.name for lane in OWN.values() if profile in lane.profiles and not lane.internal)


# What a profile measures when no study is asked for.
SUITES: dict[str, tuple[Part, ...]] = {
    "quick": (
        Part("inference", _lanes("quick"), _MODELS, (1, 8)),
        Part("train_step", _lanes("quick"), _MODELS, (2,)),
        Part("fit", _lanes("quick"), ("mlp",), (64,), learning_rate=1e-3, data="digits", epochs=5),
    ),
    # Small models, of which a gate can afford several processes a side.
    "ci": (
        Part("inference", _lanes("ci"), ("mobilenet_v3_small",), (1,)),
        Part("inference", _lanes("ci"), ("cnn",), (8,)),
        Part("train_step", _lanes("ci"), ("mlp",), (64,)),
    ),
    "paper": (
        Part("inference", _lanes("paper"), _MODELS, (1, 8, 32, 128)),
        Part("train_step", _lanes("paper"), _MODELS, (32, 64, 128)),
        Part("fit", _lanes("paper"), ("mlp",), (64,), learning_rate=1e-3, data="digits", epochs=20),
    ),
}

STUDIES = {
    "paper-inference": Study(
        "JAX and PyTorch, inference (Tables I and II)",
        "paper",
        (Part("inference", _PAPER_LANES, _PAPER_MODELS, (1, 8, 32, 128)),),
    ),
    # The paper's Adam at 1e-4 with cosine decay, which is the default; two epochs. It could not train ViT in JAX.
    "paper-training": Study(
        "JAX and PyTorch, training on ImageNet-100 (Tables III and IV)",
        "paper",
        (Part("fit", _PAPER_LANES, _PAPER_MODELS, (32, 64, 128), data="imagenet-100", epochs=2),),
    ),
    # Compiled lanes, as it had them; the first epoch is its warm-up. It names neither batch size nor epochs.
    "simple-cnn": Study(
        "a small CNN on data in memory, compiled lanes",
        "quick",
        (Part("fit", ("torch-compile", "jax"), ("cnn",), (128,), learning_rate=1e-3, epochs=5),),
    ),
    # The corrected comparison first: both train with Adam. Then the report's own: its JAX trained with SGD, so that the
    # gap to PyTorch's Adam says nothing of the frameworks. It names no rates; 1e-3 is Adam's usual one.
    "mnist-mlp": Study(
        "784-256-128-10 on handwritten digits",
        "quick",
        (
            Part(
                "fit",
                ("torch", "jax"),
                ("mlp",),
                (64, 256, 1024),
                seeds=(0, 1, 2),
                learning_rate=1e-3,
                data="digits",
                epochs=30,
            ),
            Part(
                "fit",
                ("jax",),
                ("mlp",),
                (64, 256, 1024),
                seeds=(0, 1, 2),
                optimizer="sgd",
                learning_rate=1e-3,
                data="digits",
                epochs=30,
                variant="as-published",
            ),
        ),
    ),
}
