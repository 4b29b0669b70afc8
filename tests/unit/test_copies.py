"""Copies of one measurement among records, found by what no two measurements share."""

import pytest

from fwbench.record.copies import Copies
from fwbench.record.fingerprint import Fingerprint
from tests.unit.recorded import measured, metric


def of_program(digest, **fields):
    return measured(program=Fingerprint(form="HLO", digest=digest) if digest else None, **fields)


FULLER = {"attempts": ({"reason": "other load"},)}


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ([of_program("old"), of_program("new")], [0, 1]),
        ([of_program("old"), of_program("new"), of_program("old")], [0, 1, 0]),
        ([of_program(None), of_program("new"), of_program("old")], [0, 0, 1]),
        # A fuller copy that states no program takes none from the one that it replaces.
        ([of_program("old"), of_program("new"), of_program(None, **FULLER)], [0, 1, 0]),
        ([of_program("old"), of_program("old", throughput=3.0)], [0, 1]),
    ],
)
def test_measurements_of_two_programs_keep_their_own_places(given, numbers):
    copies = Copies(given)
    assert [copies.number(m) for m in given] == numbers
    assert len(copies.kept) == max(numbers) + 1


def test_the_fullest_copy_is_kept():
    fuller = of_program(None, **FULLER)
    assert Copies([of_program("old"), fuller, of_program("old")]).kept == [fuller]


def test_an_attempt_is_a_copy_of_the_measurement_whose_whole_numbers_were_read_as_floats():
    of_numbers = [measured(stages={"build": one}, metrics={"host_peak_memory": metric(one)}) for one in (2, 2.0)]
    assert len(Copies([of_numbers[1], measured(throughput=3.0).beside(of_numbers[0])]).kept) == 1
