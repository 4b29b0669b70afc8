"""The published studies as presets on the suite (`--fwbench-study`)."""

from fwbench.suite.studies import DIGITS, PAPER_MODELS, Part, Study

# The lanes of the paper's protocol: its own two, and the compiled lane that it left out.
_PAPER_LANES = ("torch", "torch-compile", "jax")

# The study of an MLP: three batch sizes and three seeds.
_MNIST_BATCHES = (64, 256, 1024)
_MNIST = {**DIGITS, "epochs": (30,), "seed": (0, 1, 2)}
_AS_PUBLISHED = {"optimizer": ("sgd",), "variant": ("as-published",)}

STUDIES = {
    "paper-inference": Study(
        "JAX and PyTorch, inference (Tables I and II)",
        "paper",
        (Part("inference", _PAPER_LANES, PAPER_MODELS, (1, 8, 32, 128)),),
    ),
    # The paper's Adam at 1e-4 with cosine decay, which is the default; two epochs. It could not train ViT in JAX.
    "paper-training": Study(
        "JAX and PyTorch, training on ImageNet-100 (Tables III and IV)",
        "paper",
        (Part("fit", _PAPER_LANES, PAPER_MODELS, (32, 64, 128), {"data": ("imagenet-100",), "epochs": (2,)}),),
    ),
    # Compiled lanes, as the study had them: its TensorFlow was Keras's `jit_compile=True`. The first epoch is its
    # warm-up. The study names neither batch size nor epochs.
    "simple-cnn": Study(
        "a small CNN on data in memory, three compiled frameworks",
        "quick",
        (
            Part(
                "fit",
                ("tensorflow-xla", "torch-compile", "jax"),
                ("cnn",),
                (128,),
                {"learning_rate": (1e-3,), "epochs": (5,)},
            ),
        ),
    ),
    # The corrected comparison first: both train with Adam. Then the report's own: its JAX trained with SGD, so that the
    # gap to PyTorch's Adam says nothing of the frameworks. It names no rates; 1e-3 is Adam's usual one.
    "mnist-mlp": Study(
        "784-256-128-10 on handwritten digits",
        "quick",
        (
            Part("fit", ("torch", "jax"), ("mlp",), _MNIST_BATCHES, _MNIST),
            Part("fit", ("jax",), ("mlp",), _MNIST_BATCHES, {**_MNIST, **_AS_PUBLISHED}),
        ),
    ),
}
