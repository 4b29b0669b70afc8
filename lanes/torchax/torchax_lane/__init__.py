"""A lane of fwbench for torchax, by which JAX runs inference of every network in PyTorch."""

from fwbench.record.lanes import OWN, Lane

_JAX = OWN["jax"]

LANE = Lane(
    name="torchax",
    framework="torchax",
    title="PyTorch on JAX (torchax)",
    derived="torch",
    adapter="torchax_lane.adapter:FRAMEWORK",
    distributions=("torchax", "jax", "jaxlib", "torch"),
    environment=_JAX.environment,
    recorded=_JAX.recorded,
    caches=_JAX.caches,
    sharing=_JAX.sharing,
)


def export(module, inputs, folder, workload):
    """Write the module as a serialised JAX function, and its weights apart. The exporting process calls this."""
    import jax
    import numpy as np
    import torchax

    weights, function = torchax.extract_jax(module)
    arrays = torchax.default_env().t2j_copy(tuple(inputs.values()))
    # The written function states the precision of each product.
    with jax.default_matmul_precision("highest"):
        program = jax.export.export(jax.jit(function))(weights, arrays)
    (folder / "program.jax").write_bytes(program.serialize())
    np.savez(folder / "weights.npz", **weights)
