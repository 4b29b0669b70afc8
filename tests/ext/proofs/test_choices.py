"""Further points of a proof, with sides that compute nothing."""

from types import SimpleNamespace

import pytest

from fwbench.ext.proofs.case import MAIN, Side
from fwbench.ext.proofs.choices.proof import _one_program


class Traced(Side):
    """A side that compares the programs of both modes, as JAX's does."""

    def __init__(self, trains_as_it_infers):
        self.answer = trains_as_it_infers

    def trains_as_it_infers(self):
        return self.answer


# What else a side must have is never asked of it.
Traced.__abstractmethods__ = frozenset()


@pytest.mark.parametrize(("reference", "candidate"), [(True, True), (True, False), (False, True)])
def test_inference_stands_for_training_only_if_both_sides_train_as_they_infer(reference, candidate):
    """The reference may be the one that compares programs, as in a pair of JAX and TensorFlow."""
    sides = Traced(reference), Traced(candidate)
    asked = [SimpleNamespace(sides=lambda point: sides)] * 2
    assert _one_program(asked, MAIN) == (reference and candidate)
