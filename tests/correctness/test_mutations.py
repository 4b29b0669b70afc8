"""The proof finds what it is for: each mutation of a JAX network, one mistake a port makes, breaks it."""

import jax
import pytest

from fwbench.ext.proofs.errors import bound
from fwbench.models import CATALOG
from tests.proving import MODELS
from tests.proving.mutations import MUTATIONS, find
from tests.proving.planting import Mutation
from tests.tensorflow import needs_tensorflow


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.model}-{mutation.name}")
def test_a_mutation_is_found(mutation, unless_recorded):
    least = bound(CATALOG[mutation.model], mutation.quantity)
    what = f"that the proof of {mutation.model} finds {mutation.name}"
    unless_recorded(mutation.model, what, lambda full: full.mutations.get(mutation.name, 0.0) > least)
    find(mutation)


@needs_tensorflow
@pytest.mark.parametrize("model", MODELS)
def test_tensorflows_mutations_are_found(model, unless_recorded):
    import torchvision  # noqa: F401 (before TensorFlow, whose LLVM its compiler's would clash with)

    from tests.proving import tensorflow_mutations as planted

    mutations = [mutation for mutation in planted.MUTATIONS if mutation.model == model]
    assert mutations
    least = {mutation.name: bound(CATALOG[model], mutation.quantity) for mutation in mutations}
    assert len(least) == len(mutations)
    what = f"that the proof of {model} in TensorFlow finds {', '.join(least)}"
    unless_recorded(
        model,
        what,
        lambda full: all(full.mutations.get(name, 0.0) > error for name, error in least.items()),
        "tensorflow",
    )
    for mutation in mutations:
        planted.find(mutation)


def test_a_mutation_that_the_proof_does_not_find_is_an_error():
    unchanged = Mutation("mlp", "eval", "output", "nothing", lambda module, patch: None)
    with pytest.raises(AssertionError, match=r"mlp: the proof of output does not find nothing-output \(\d"):
        find(unchanged)


def test_a_mutation_that_breaks_the_arithmetic_is_not_found():
    def infinite(module, patch):
        patch.setattr(jax.nn, "relu", lambda x: x * float("nan"))

    with pytest.raises(AssertionError, match=r"does not find infinite-output \(nan\)"):
        find(Mutation("mlp", "eval", "output", "infinite", infinite))


def test_no_two_mutations_of_a_model_have_one_name():
    names = [(mutation.model, mutation.name) for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
