"""The models and modes that proofs are parametrised with."""

import pytest

from fwbench.ext.proofs.proof import Proof, modes_apart
from fwbench.models import CATALOG
from tests.proving import MODELS
from tests.tensorflow import needs_tensorflow


class WithoutSteps(Proof):
    """A proof that makes no optimizers' steps: they take two thirds of a small proof's time.

    A mistake in a network shows without them.
    """

    @property
    def quantities(self):
        return tuple(quantity for quantity in super().quantities if quantity not in ("sgd", "adam"))


def over(cases):
    """Parametrise a test's `proof` with models, frameworks and modes."""
    marks = {"tensorflow": [needs_tensorflow]}
    parameters = [pytest.param(case, id="-".join(case), marks=marks.get(case[1], [])) for case in cases]
    return pytest.mark.parametrize("proof", parameters, indirect=True)


def first_of_each(cases, kind):
    """Cases as parameters of a test: the first of each kind, and among the slow tests the others, which repeat it."""
    seen = set()
    return [
        pytest.param(*case, marks=pytest.mark.slow if kind(*case) in seen or seen.add(kind(*case)) else ())
        for case in cases
    ]


def by_size(models):
    """Models as parameters of a test. Those of more than a million weights take seconds."""
    return [pytest.param(name, marks=pytest.mark.slow if CATALOG[name].parameters > 1e6 else ()) for name in models]


# What every run proves again, proofs on record or not. The others' gradients take gigabytes or a minute in float64.
SMALL = by_size(name for name in MODELS if CATALOG[name].parameters < 4e6)

FRAMEWORKS = ("jax", "tensorflow")
EVERY = [(name, framework, mode) for name in MODELS for framework in FRAMEWORKS for mode in modes_apart(CATALOG[name])]

every_mode = over(EVERY)
inference = over([case for case in EVERY if case[2] == "eval"])


def inference_of(framework):
    """Those of one framework."""
    return over([case for case in EVERY if case[1:] == (framework, "eval")])
