"""Copies of one measurement among records, found by what no two measurements share."""

import dataclasses
import json

import pytest

from fwbench.record import schema
from fwbench.record.copies import Copies
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Measurement
from tests.unit.recorded import measured


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


def test_a_whole_number_is_the_same_number_when_it_is_read_back():
    # JSON that another program has written may have whole numbers without a point.
    made = dataclasses.replace(measured(), stages={"build": 1})
    read = Measurement.from_json(schema.measurement(json.loads(json.dumps(made.to_json()))))
    again = dataclasses.replace(read, stages={"build": 2.0}, attempts=(json.loads(json.dumps(made.to_json())),))
    assert Copies([made, read, again]).kept == [again]
