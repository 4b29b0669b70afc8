"""Each mistake planted in a small port is named at its module, with its cause where numbers show it, and no other."""

import pytest

from fwbench.parity.case import MODES
from tests.correctness.planted import PLANTED, said
from tests.correctness.planted_networks import TWINS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """On `sys.path`, for the twins' sources."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("planted")
        patch.syspath_prepend(str(path))
        yield path


@pytest.mark.parametrize("network", TWINS)
@pytest.mark.parametrize("mode", MODES)
def test_right_twins_part_nowhere(folder, network, mode):
    assert said(network, folder, mode=mode) == ""


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.network}, {planted.name}")
def test_a_planted_mistake_is_named(folder, planted):
    sentence = said(planted.network, folder, planted.replacing)
    assert sentence.startswith(f"First apart {planted.place} (torch: "), sentence
    assert sentence.endswith(f". {planted.cause}") if planted.cause else ". The" not in sentence, sentence
