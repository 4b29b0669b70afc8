"""A whole run on machines with a GPU, rehearsed without one; and false readings, which a rehearsal must find."""

import sys
from pathlib import Path

import pytest

from tests.rehearsal import FAULTS, MACHINES, markdown, rehearse
from tests.unit import nvml

PAGE = Path(__file__).parents[2] / "docs/gpu.md"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or nvml.compiler() is None,
    reason="the stand-in for NVML is compiled by a C compiler on Linux",
)


# All of them take minutes; `python -m tests.rehearsal` runs them.
WHOLE = (
    "RTX 4090 with a screen",
    pytest.param("H100 shared with somebody who trains", marks=pytest.mark.slow),
)


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_run_is_as_its_machine_says_and_as_the_page_shows(name, tmp_path):
    found = rehearse(name, tmp_path)
    assert [sentence for _, wrong in found.values() for sentence in wrong] == []
    assert markdown({name: found}).splitlines()[-1] in PAGE.read_text()


def test_the_page_has_a_row_for_every_machine():
    page = PAGE.read_text()
    assert [name for name in MACHINES if f"| {name} |" not in page] == []


PLANTED = [
    ("context opened early", "container with the host's process numbers", "bench", "disturbed by"),
    ("power read late", "T4", "bench", " W, and it drew 300.0 W"),
    ("wrong card", "screen on a GT 710, RTX 4090 in the second slot", "bench", "another GPU has computed"),
    ("a screen taken for a neighbour", "RTX 4090 with a screen", "bench", "disturbed by"),
    ("idle power read while it computes", "T4", "bench", " W, and it drew 60.0 W"),
    ("power limit in milliwatts", "T4", "bench", "a limit of 70000.0 W, and it is 70 W"),
    ("energy of another card", "two H100", "ranks", "W, and each drew 300.0 W"),
    ("load of another card", "screen on a GT 710, RTX 4090 in the second slot", "doctor", "it computes 40% of the"),
]


@pytest.mark.parametrize(("fault", "name", "command", "said"), PLANTED)
def test_a_false_reading_that_is_planted_is_found(fault, name, command, said, tmp_path):
    """Each is put into fwbench as it runs."""
    ((_, wrong),) = rehearse(name, tmp_path, fault, [command]).values()
    assert any(said in sentence for sentence in wrong), wrong


def test_every_fault_that_can_be_planted_is():
    assert {fault for fault, *_ in PLANTED} == FAULTS.keys()
