"""What is said of a search for causes."""

import dataclasses
import math

from fwbench.compare.findings import Verdict
from fwbench.ext.causes import sentences as causes
from fwbench.ext.causes.steps import Stretch
from fwbench.report.verdicts import lines
from tests.unit.test_verdicts import finding, outcome


def test_a_change_of_three_magnitudes_is_told_in_times():
    of_times = Verdict("regressed", 1459.0, (1400.0, 1500.0), 0.95, 10)
    shown = "\n".join(lines(outcome(dataclasses.replace(finding("regressed"), verdict=of_times))))
    assert "1,459 times" in shown
    assert "1,400 times to 1,500 times (95%)" in shown
    assert causes.change(Stretch(0, 1, -math.log(1459), -math.log(1500), -math.log(1400), 4)) == (
        "1/1,459 (1/1,500 to 1/1,400)"
    )
