"""A whole run on machines with a GPU, rehearsed without one; and false readings, which a rehearsal must find."""

import sys
from pathlib import Path

import pytest

from tests.rehearsal import FAULTS, MACHINES, markdown, rehearse
from tests.unit import nvml
from tests.unit.shared import needs

PAGE = Path(__file__).parents[2] / "docs/gpu.md"

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or nvml.compiler() is None,
        reason="the stand-in for NVML is compiled by a C compiler on Linux",
    ),
    needs("trials"),
]


# `python -m tests.rehearsal` runs all of them.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["RTX 4090 with a screen", "H100 shared with somebody who trains"])
def test_a_whole_run_is_as_its_machine_says_and_as_the_page_shows(name, tmp_path):
    found = rehearse(name, tmp_path)
    assert [sentence for _, wrong in found.values() for sentence in wrong] == []
    assert markdown({name: found}).splitlines()[-1] in PAGE.read_text()


def test_the_page_has_a_row_for_every_machine():
    page = PAGE.read_text()
    assert [name for name in MACHINES if f"| {name} |" not in page] == []


GT_710 = "screen on a GT 710, RTX 4090 in the second slot"
# Faults, and the sentence by which each is found.
FAST = [(GT_710, "doctor", {"load of another card": "it computes 40% of the"})]
SLOW = [
    ("T4", "bench", {"power read late": " W, and it drew 300.0 W", "power limit in milliwatts": "a limit of 70000.0"}),
    ("container with the host's process numbers", "bench", {"context opened early": "disturbed by"}),
    (GT_710, "bench", {"wrong card": "another GPU has computed"}),
    ("RTX 4090 with a screen", "bench", {"a screen taken for a neighbour": "disturbed by"}),
    ("T4", "bench", {"idle power read while it computes": " W, and it drew 60.0 W"}),
    ("two H100", "ranks", {"energy of another card": "W, and each drew 300.0 W"}),
]


@pytest.mark.parametrize(
    ("name", "command", "planted"), [*FAST, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_a_false_reading_that_is_planted_is_found(name, command, planted, tmp_path):
    """Each is put into fwbench as it runs."""
    ((_, wrong),) = rehearse(name, tmp_path, tuple(planted), [command]).values()
    for said in planted.values():
        assert any(said in sentence for sentence in wrong), wrong


def test_every_fault_that_can_be_planted_is():
    assert {fault for *_, planted in (*FAST, *SLOW) for fault in planted} == FAULTS.keys()
