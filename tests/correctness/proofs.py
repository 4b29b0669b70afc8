"""The models and modes that proofs are parametrised with."""

import pytest

from fwbench.models import CATALOG
from fwbench.parity.case import MODELS
from fwbench.parity.proof import modes


def over(cases):
    """Parametrise a test's `proof` with models and modes."""
    return pytest.mark.parametrize("proof", [pytest.param(case, id="-".join(case)) for case in cases], indirect=True)


EVERY = [(model, mode) for model in MODELS for mode in modes(CATALOG[model])]

every_mode = over(EVERY)
inference = over([(model, "eval") for model in MODELS])
