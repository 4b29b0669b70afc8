"""A look at each network before anything is timed."""

import dataclasses

import pytest

import fwbench
from fwbench.ext.proofs import surveying
from fwbench.ext.proofs.surveying import survey
from fwbench.models import CATALOG
from fwbench.record.measurement import Failure
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES

MODEL = fwbench.Model("mine", torch="mine:Net", jax="mine:net", inputs=fwbench.normal(4))
NAMES = {"up.weight": (8, 4), "up.bias": (8,)}


class Lines:
    """A progress line that keeps what stays."""

    def __init__(self):
        self.kept = []

    def line(self, text, *, stays=False):
        self.kept += [text] if stays else []


def surveyed(found, workloads=None):
    """What is said, and which workloads' networks were built.

    Args:
        found: the answer by framework.
    """
    built, lines = [], Lines()

    def shapes(workload, protocol):
        built.append(workload.id)
        return found[workload.lane.partition("-")[0]]

    lanes = ("torch", "torch-compile", "jax")
    asked = workloads or [Workload(lane, "mine", batch_size=size) for size in (1, 8) for lane in lanes]
    models = {**CATALOG, "mine": MODEL}
    survey([(workload, PROFILES["quick"]) for workload in asked], models, shapes, lines)
    return lines.kept, built


def test_each_framework_builds_its_network_once_and_equal_names_and_shapes_are_nothing_to_say():
    assert surveyed({"torch": NAMES, "jax": NAMES}) == ([], ["torch-mine-inference-b1", "jax-mine-inference-b1"])


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"high.weight": (8, 4), "up.bias": (8,)}, ["torch alone up.weight (8, 4)", "jax alone high.weight (8, 4)"]),
        ({"up.weight": (4, 8), "up.bias": (8,)}, ["torch alone up.weight (8, 4)", "jax alone up.weight (4, 8)"]),
        ({**NAMES, **{f"more.{n}": () for n in range(5)}}, ["jax alone more.0 (), more.1 (), more.2 (), 2 more"]),
    ],
)
def test_other_names_or_shapes_are_said_once_a_model(other, named):
    (said,), _ = surveyed({"torch": NAMES, "jax": other})
    assert all(f"in {each}" in said for each in named), said


def test_a_network_that_cannot_be_built_is_said_and_one_that_is_not_installed_is_not():
    said, _ = surveyed({"torch": Failure("error", "no such checkpoint"), "jax": NAMES})
    assert [("torch" in line, "no such checkpoint" in line) for line in said] == [(True, True)]
    assert surveyed({"torch": Failure("unavailable", "there is no torch"), "jax": NAMES})[0] == []


@pytest.mark.parametrize("deadline", [5.0, 600.0])
def test_a_network_that_never_comes_is_left_to_its_tests_soon(deadline):
    """They would wait for it as long again."""
    given, lines = [], Lines()

    def shapes(workload, protocol):
        given.append(protocol.deadline)
        return Failure("timed_out", "no result")

    protocol = dataclasses.replace(PROFILES["quick"], deadline=deadline)
    survey([(Workload("torch", "mine"), protocol)], {"mine": MODEL}, shapes, lines)
    assert (given, lines.kept) == ([min(deadline, surveying._PATIENCE)], [])


def test_the_suites_own_networks_and_the_lane_without_one_are_not_built():
    others = [Workload("torch", "mlp"), Workload("noop", "mine")]
    assert surveyed({}, others) == ([], [])
