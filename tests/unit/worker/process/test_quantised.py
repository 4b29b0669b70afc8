"""A lane whose weights are quantised: what its record says, and that only its declaration spares it a difference."""

import dataclasses

import numpy as np
import pytest

from fwbench import frameworks
from fwbench.compare.agreement import idle
from fwbench.compare.cases import cases
from fwbench.compare.parity import apart, evidence
from fwbench.meters import sketching
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.process.run import Measuring
from tests.unit.fakes import FakeFramework, FakeProgram

RANDOM = np.random.default_rng(0)
WEIGHTS, INPUTS = (RANDOM.normal(size=size).astype(np.float32) for size in ((64, 8), (4, 64)))


def to_int8(weights):
    scale = np.abs(weights).max() / 127
    return np.round(weights / scale) * scale


class Product(FakeProgram):
    """A product with weights, which it may round first, and whose result it may make infinite."""

    def __init__(self, clock, rounded=lambda weights: weights, factor=1.0):
        super().__init__(clock)
        self.given, self.rounded, self.factor = WEIGHTS, rounded, factor

    def weights(self):
        return {"w": self.given}

    def restart(self, weights, draw=0):
        self.given = weights["w"]

    def output(self):
        return INPUTS @ self.rounded(self.given) * np.float32(self.factor)


@pytest.fixture
def measured(monkeypatch, clock, protocol, tmp_path):
    """Measure a program in a lane of this name that declares this format, beside what float64 makes of it."""

    def measure(name, quantised, **program):
        file = str(tmp_path / "exact.npz")
        exact = INPUTS.astype(np.float64) @ WEIGHTS.astype(np.float64)
        sketching.write(file, sketching._all_folded({"output": exact}, lengths=True))
        monkeypatch.setattr(frameworks, "load", lambda adapter: FakeFramework(Product(clock, **program)))
        lane = dataclasses.replace(LANES["torch"], name=name, framework=name, quantised=quantised, parity=None)
        workload = Workload(name, "noop", "inference", batch_size=4)
        told = {"file": file, "lane": "torch"}
        return Measuring(workload, lane, CATALOG["noop"], protocol, lambda stage: None, clock, exact=told).run()

    return measure


@pytest.mark.parametrize(("declared", "word"), [("int8", "quantised"), ("", "different")])
def test_a_declared_lane_has_its_error_and_the_same_lane_undeclared_is_different(measured, declared, word):
    both = [measured("plain", ""), measured("rounded", declared, rounded=to_int8)]
    one, other = cases(both)
    assert evidence(one, other).word == evidence(other, one).word == word
    assert apart(one, other) == ("" if declared else word)
    # Rounding to 255 steps is off by a thousandth of the largest weight.
    plain, rounded = (case.value("output_error") for case in (one, other))
    assert plain < 1e-6
    assert 1e-3 < rounded < 1e-1
    assert [m.settings.get("quantised") for m in both] == [None, declared or None]
    assert other.lane == ("rounded (int8)" if declared else "rounded")


def test_a_weight_that_stays_where_it_is_makes_no_lane_idle(measured):
    """Rounded to a given grid, no weight moves by some units, and no output."""
    rounded = measured("rounded", "int8", rounded=lambda weights: np.round(2 * weights) / 2)
    assert (idle(rounded), idle(dataclasses.replace(rounded, settings={}))) == ([], ["weights"])
    assert evidence(*cases([measured("plain", ""), rounded])).word == "quantised"


def test_what_is_not_finite_fails_as_in_any_lane(measured):
    found = measured("rounded", "int8", rounded=to_int8, factor=np.inf)
    assert "infinities or NaN" in found.failure.message
