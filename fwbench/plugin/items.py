"""Facts about a test that a run needs: whether it measures, its protocol, and the proof that it asks for."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NoReturn

import pytest

from fwbench.errors import UserError
from fwbench.extensions import needed
from fwbench.gates import Gate
from fwbench.gates.options import of_test
from fwbench.models.project import Project
from fwbench.models.store import Proved
from fwbench.plugin import spreading
from fwbench.plugin.selecting import steered
from fwbench.record.workload import Workload
from fwbench.suite.costs import cost
from fwbench.suite.profiles import Protocol


def left_out(item: pytest.Item, gate: Gate) -> bool:
    """True if this run measures nothing in the test, or its gate does not cover the test's workload."""
    workload = spreading.subject_of(item, Workload)
    if workload is None:
        return item.get_closest_marker("fwbench") is not None and spreading.subject_of(item, str) is None
    return not gate.covers(workload)


def is_kept_from_running(item: pytest.Item) -> bool:
    """True if a marker skips the test. A condition written as text does not count: pytest evaluates it later."""
    for marker in item.iter_markers():
        skips = marker.name in ("skip", "skipif")
        fails_unrun = marker.name == "xfail" and not (marker.kwargs.get("run", True) or item.config.option.runxfail)
        conditions = (marker.kwargs["condition"],) if "condition" in marker.kwargs else marker.args
        holds = marker.name == "skip" or not conditions or any(c and not isinstance(c, str) for c in conditions)
        if holds and (skips or fails_unrun):
            return True
    return False


def is_later(workload: Workload) -> bool:
    """True if a GPU measures a workload when the others have their answers: a fit, or one in another precision."""
    return workload.mode == "fit" or workload.precision != "fp32"


def arrange(items: list[pytest.Item]) -> None:
    """Put the tests that measure into the order in which a GPU gives the most answers soon.

    The workloads that take the least until all their lanes are compiled come first, and later ones (`is_later`) last.
    """
    found = {place: each for place, item in enumerate(items) if (each := spreading.subject_of(item, Workload))}
    ready: dict[Workload, float] = defaultdict(float)
    for workload in found.values():
        figures = cost(workload, 1)
        ready[workload.of_all] += figures.ready if figures else math.inf
    ordered = sorted(found, key=lambda place: (is_later(found[place]), ready[found[place].of_all]))
    for place, item in zip(found, [items[place] for place in ordered], strict=True):
        items[place] = item


def announce(gate: Gate, measured: Mapping[pytest.Item, Workload]) -> None:
    """Announce to a gate the workloads that the run will measure, and those left out on purpose."""
    expected = {}
    for item, workload in measured.items():
        if is_kept_from_running(item):
            gate.deselect(workload)
        elif gate.kind:
            expected[workload] = of_test(item, gate.kind)
    gate.expect(expected)


def protocol_of(item: pytest.Item, workload: Workload, amounts: Protocol) -> Protocol:
    """The protocol of a test: the run's, changed by the test's own `benchmark` marker."""
    marker = item.get_closest_marker("benchmark")
    changed = steered(amounts, marker.kwargs if marker else {})
    return dataclasses.replace(changed, deadline=changed.deadline * workload.epochs)


def fail_unspread(item: pytest.Item, decorator: str) -> NoReturn:
    """Fail a test that could not be spread over workloads or networks, or was not meant to be."""
    sentence = (
        spreading.subject_of(item, str) or f"{item.nodeid} does not say of which model: decorate it with {decorator}"
    )
    pytest.fail(sentence, pytrace=False)


def proving(item: pytest.Item, project: Project, pythons: Mapping[str, str]) -> Callable[[], Proved]:
    """The function that proves the test's network, and fails the test if it cannot."""
    candidate = spreading.subject_of(item, spreading.Candidate)
    if candidate is None:
        fail_unspread(item, "@fwbench.proof(model, ...)")

    def prove() -> Proved:
        try:
            make = needed("prove", "fwbench_prove")
            proved: Proved = make(candidate.model, candidate.framework, project, pythons=pythons)
        except UserError as error:
            pytest.fail(str(error), pytrace=False)
        if proved.state != "proved":
            pytest.fail(proved.sentence, pytrace=False)
        return proved

    return prove
