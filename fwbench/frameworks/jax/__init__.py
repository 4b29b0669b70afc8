"""JAX: the networks in Flax NNX, called through `jax.jit` over flat leaves."""
