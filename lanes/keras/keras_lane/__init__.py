"""Lanes of fwbench for Keras's other backends: inference of the network that a model names in Keras."""

from dataclasses import replace

from fwbench.record.lanes import OWN

LANE = [
    replace(
        OWN[like],
        name=f"keras-{backend}",
        framework=f"keras_{backend}",
        title=f"Keras ({title})",
        derived="tensorflow",
        adapter=f"keras_lane.on_{backend}:FRAMEWORK",
        distributions=(*distributions, "keras"),
        environment={**OWN[like].environment, "KERAS_BACKEND": backend},
        parity=None,
        processes={},
    )
    for backend, title, like, distributions in (
        ("jax", "JAX", "jax", ("jax", "jaxlib", "flax")),
        ("torch", "PyTorch", "torch-compile", ("torch",)),
    )
]
