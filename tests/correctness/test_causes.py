"""Each mistake planted in a small port is named at its module, with its cause where numbers show it, and no other."""

import pytest

from fwbench.ext.proofs.case import MODES
from tests.correctness.planted import PLANTED, said
from tests.correctness.planted_networks import TWINS
from tests.correctness.proofs import first_of_each


@pytest.mark.parametrize("network", TWINS)
@pytest.mark.parametrize("mode", MODES)
def test_right_twins_part_nowhere(project, network, mode):
    assert said(network, project, mode=mode) == ""


# Of a kind are causes that begin with the same words, such as "There torch scales by".
@pytest.mark.parametrize(
    "planted",
    first_of_each([(planted,) for planted in PLANTED], lambda planted: tuple(planted.cause.split()[:4])),
    ids=lambda planted: f"{planted.network}, {planted.name}",
)
def test_a_planted_mistake_is_named(project, planted):
    sentence = said(planted.network, project, planted.replacing)
    assert sentence.startswith(f"First apart {planted.place} (torch: "), sentence
    assert sentence.endswith(f". {planted.cause}") if planted.cause else ". The" not in sentence, sentence
