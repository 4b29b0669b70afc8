"""Plain tests (those with the fixture `benchmark` alone) in a duet: each is judged by its turns."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from fwbench import text
from fwbench.compare.criteria import Threshold
from fwbench.compare.duet import Duet
from fwbench.compare.pair import Comparison, Of, Pair, Stage
from fwbench.record.plain import PlainTest
from fwbench.worker.turns.plain import Invocation, PlainPairs
from fwbench.worker.turns.sides import Side


class PlainTests:
    """The plain tests of a duet.

    Attributes:
        thresholds: by test and metric; empty: there are no plain tests.
        called: how pytest was called.
        asked: the comparisons of the tests that were judged.
        unrepeatable: by test, the reason why it was measured in the usual way.
    """

    def __init__(self) -> None:
        self.thresholds: Mapping[PlainTest, Mapping[str, Threshold]] = {}
        self.called: Invocation
        self.asked: dict[PlainTest, Comparison[PlainTest]] = {}
        self.unrepeatable: dict[PlainTest, str] = {}
        self._played: Duet[PlainTest] | None = None

    def play(
        self,
        sides: tuple[Side, Side],
        deadline: float,
        taken: Sequence[tuple[Stage, PlainTest, Pair]],
        keep: Callable[[Mapping[str, Any]], None],
        tell: Callable[[str], None],
        left: Callable[[], float],
    ) -> None:
        """Let all plain tests take turns.

        Args:
            taken: pairs of an earlier part of the run.
            keep: called with each pair as soon as it is played, as JSON primitives.
        """
        pairs = PlainPairs(*sides, self.called, deadline, metered=lambda test: "energy" in self.thresholds[test])

        def kept(stage: Stage, test: PlainTest, pair: Pair) -> None:
            keep({"stage": stage, "test": test.name, "pair": pair.to_json()})

        self._played = Duet(self.thresholds, kept)
        for stage, test, pair in taken:
            if test in self.thresholds:
                self._played.take(stage, test, pair)
        self.unrepeatable = pairs.unrepeatable
        self._played.play(pairs.play, tell, left)

    def judge(self, test: PlainTest, base: str) -> bool:
        """Fail, skip or pass a test by its comparison; return True if it is to be measured in the usual way instead.

        Args:
            base: the title of base.
        """
        if test in self.unrepeatable:
            return True
        comparison = self.comparisons[test]
        self.asked[test] = comparison
        judge(comparison, base)
        fault = comparison.fault
        if comparison.kind == "failed" and fault:
            pytest.fail(f"{test.name}: {fault.failure.message}\n\n{fault.failure.detail}".rstrip(), pytrace=False)
        if comparison.kind == "unavailable" and fault:
            pytest.skip(fault.failure.message)
        return not comparison.screening

    def ended(self) -> None:
        """Mark all comparisons as judged, as the run ends early and must report all that is known."""
        if self._played:
            self.asked = self._played.comparisons()

    @functools.cached_property
    def comparisons(self) -> dict[PlainTest, Comparison[PlainTest]]:
        """The comparison of each test, once all are played."""
        return self._played.comparisons() if self._played else {}

    def notes(self) -> list[str]:
        """A sentence for each reason why tests were measured in the usual way."""
        by_reason: dict[str, list[str]] = {}
        for test, why in self.unrepeatable.items():
            by_reason.setdefault(why, []).append(test.name)
        usual = "measured in the usual way, and not compared"
        return [f"{usual}: {', '.join(names)}: {why}" for why, names in by_reason.items()]


def judge(comparison: Comparison[Of], base: str) -> None:
    """Fail the test of a benchmark that is worse than base, or that base can run and head cannot.

    Args:
        base: the title of base.
    """
    name = comparison.workload.id
    if comparison.kind == "missing":
        pytest.fail(f"{name} is missing: {comparison.note}, and {base} can", pytrace=False)
    slower = [
        f"{metric} {text.change(verdict.ratio)} ({' to '.join(map(text.change, verdict.interval))})"
        for metric, verdict in comparison.verdicts.items()
        if verdict.kind == "regressed"
    ]
    if slower:
        pytest.fail(f"{name} regressed: {', '.join(slower)} against {base}", pytrace=False)
