"""`--fwbench-against`: all benchmarks of the run in one duet, each reported by its own test."""

import contextlib
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fwbench.compare import duet
from fwbench.compare.criteria import CRITERIA, Threshold
from fwbench.compare.duet_outcome import AnyComparison, outcome, together
from fwbench.compare.findings import Outcome
from fwbench.compare.pair import Comparison, Pair, Stage
from fwbench.errors import Absent, UserError
from fwbench.extensions import extensions, resolve
from fwbench.gates import kept
from fwbench.gates.contract import Gate, Regression
from fwbench.gates.options import thresholds
from fwbench.gates.plain import PlainTests, judge
from fwbench.machine import Machine
from fwbench.meters.energy import counter
from fwbench.models.project import Project
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement, Metric
from fwbench.record.plain import PlainTest
from fwbench.record.quantiles import quantile
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.text import line
from fwbench.worker.chain import Measure, Tell
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.plain import Invocation
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side, find, sides

# The most seconds that the search for a regression's cause may take.
_EXPLAINING = 600.0


class DuetGate(Gate):
    """Runs the duet over all workloads of the run, when the first test asks for its measurement.

    Raises:
        UserError: `--fwbench-against` names no revision, interpreter or release.
    """

    title = "fwbench: duet"
    kind = "duet"
    shows_numbers = True

    def __init__(self, config: pytest.Config, selection: Selection, machine: Machine, project: Project) -> None:
        super().__init__(config)
        self._against = config.getoption("fwbench_against")
        self._project = project
        self._thresholds = thresholds(config, "duet")
        self._machine = machine
        self._selection = selection
        self._stack = contextlib.ExitStack()
        self._sides: tuple[Side, Side] | None = None
        self._expected: dict[Workload, Mapping[str, Threshold]] = {}
        self._comparisons: dict[Workload, Comparison[Workload]] = {}
        self._asked: dict[Workload, Comparison[Workload]] = {}
        self._plain = PlainTests()
        self._has_run = False
        self._seconds = 0.0
        self._end = time.monotonic() + 60 * selection.minutes if selection.minutes else math.inf
        self._fault = ""
        self._refused = ""
        self._taken: list[tuple[Stage, Workload | PlainTest, Pair]] = []
        self._explained: list[str] = []
        self._keep: Callable[[Mapping[str, Any]], None] = lambda record: None
        self._base = find(self._against, self._project.root)

    def covers(self, workload: Workload) -> bool:
        """True except for epochs, which are too long for turns, and the harness's benchmarks, which have no base."""
        return workload.mode != "fit" and not LANES[workload.lane].internal

    def expect(self, workloads: Mapping[Workload, Mapping[str, Threshold]]) -> None:
        self._expected = {workload: {**self._thresholds, **own} for workload, own in workloads.items()}

    def expect_plain(self, tests: Mapping[PlainTest, Mapping[str, Threshold]], called: Invocation) -> None:
        self._plain.thresholds = {test: {**self._thresholds, **own} for test, own in tests.items()}
        self._plain.called = called

    @property
    def against(self) -> Mapping[str, Any]:
        return {"revision": self._base.revision, "interpreter": self._base.interpreter}

    def keep(self, keep: Callable[[Mapping[str, Any]], None]) -> None:
        self._keep = keep

    def take(self, record: Any) -> bool:
        taken = kept.pair(record)
        # Two pairs never take the same times, so an equal record is a copy.
        if taken in self._taken:
            return False
        self._taken.append(taken)
        return True

    def measuring(self, measure: Measure) -> Measure:
        return functools.partial(self._measure, measure)

    def _measure(self, measure: Measure, workload: Workload, protocol: Protocol, tell: Tell) -> Measurement:
        """The measurement made of head's rounds; for a workload that base does not have, the ordinary measurement.

        Raises:
            pytest.exit.Exception: there is nothing to compare with.
        """
        self._has_to_run(protocol, tell)
        comparison = self._asked[workload] = self._comparisons[workload]
        if comparison.kind in ("failed", "missing", "unavailable"):
            assert comparison.fault is not None
            return Measurement(workload, failure=comparison.fault.failure)
        if not comparison.screening:
            return dataclasses.replace(measure(workload, protocol, tell), duet=self._told(comparison))
        head = comparison.described["head"]
        samples = tuple(comparison.samples)
        source = f"head's rounds, n={len(samples)}, of {len(comparison.pairs)} pairs"
        return Measurement(
            comparison.workload,
            samples,
            {"latency_p50": Metric(quantile(samples, 50), source)},
            settings=head["settings"],
            program=Fingerprint.from_json(head["program"]) if head.get("program") else None,
            versions=head["versions"],
            duet=self._told(comparison),
            after_crash=head.get("after_crash"),
            unfit=comparison.pairs[-1].unfit,
        )

    def _has_to_run(self, protocol: Protocol, tell: Tell) -> None:
        """Run the duet, unless it has run; fail the test if the duet has failed before."""
        if self._fault:
            pytest.fail(f"the duet ended with {self._fault}, as its first test tells", pytrace=False)
        if not self._has_run:
            self._run(protocol, tell)
            self._has_run = True

    def judge_plain(self, test: PlainTest, tell: Tell) -> bool:
        self._has_to_run(self._selection.protocol, tell)
        return self._plain.judge(test, self._title("base"))

    def judge(self, measurement: Measurement, test: str) -> None:
        """Fail the test of a regression, or of a workload that base can run and head cannot."""
        comparison = self._comparisons[measurement.asked]
        if comparison.kind == "missing" or not measurement.failure:
            judge(comparison, self._title("base"))

    def outcome(self) -> Outcome:
        asked: list[AnyComparison] = [*self._asked.values(), *self._plain.asked.values()]
        result = outcome(self._title("base"), self._title("head"), asked, self._seconds)
        shared = together(self._asked.values(), self._thresholds["latency"].share)
        notes = [*self._explained, *result.notes, *self._unjudged(), *self._plain.notes()]
        why = self._refused or (f"the duet ended with {self._fault}" if self._fault else "")
        if not (why or asked or self._plain.notes()):
            why = "no test came to its measurement: pytest says above what became of each"
        return dataclasses.replace(
            result, findings=[*result.findings, *shared], notes=[*notes, *filter(None, [line(why)])]
        )

    def _unjudged(self) -> list[str]:
        """A sentence on each metric that was asked for in vain, of those that a duet judges only on request."""
        asked: list[tuple[Mapping[str, Threshold], AnyComparison]] = [
            *((self._expected[workload], comparison) for workload, comparison in self._asked.items()),
            *((self._plain.thresholds[test], comparison) for test, comparison in self._plain.asked.items()),
        ]
        limits = [*self._expected.values(), *self._plain.thresholds.values()] if asked else []
        wanted = {metric for each in limits for metric in each if CRITERIA[metric].asked}
        judged = {metric for _, comparison in asked for metric in comparison.verdicts}
        played = {metric for each, comparison in asked if comparison.screening for metric in each}
        lacking, lost = "no benchmark has it on both sides", "no benchmark that it is asked of ran on both sides"
        why = {metric: lacking if metric in played else lost for metric in sorted(wanted - judged)}
        if "energy" in why and isinstance(absent := counter(asked[0][1].workload.device), Absent):
            why["energy"] = absent
        return [f"{metric} was not compared: {reason}" for metric, reason in why.items()]

    def close(self) -> None:
        self._stack.close()

    def _run(self, protocol: Protocol, tell: Tell) -> None:
        begun = time.monotonic()
        played = duet.Duet(self._expected, self._kept)
        try:
            self._sides = self._stack.enter_context(sides(self._against, self._project, self._selection.pythons))
            servers = Servers()
            pairs = Pairs(
                *self._sides,
                self._project.models,
                self._machine,
                self._selection.device,
                protocol.deadline,
                fit_batch=self._selection.fit_batch,
                cold=self._judged_by("compile_time"),
                warm=self._judged_by("warm_start"),
                metered=self._judged_by("energy"),
                servers=servers,
            )
            plain: list[tuple[Stage, PlainTest, Pair]] = []
            for stage, subject, pair in self._taken:
                if isinstance(subject, PlainTest):
                    plain.append((stage, subject, pair))
                elif subject in self._expected:
                    played.take(stage, subject, pair)
            try:
                with servers:
                    played.play(pairs.play, tell, self._left)
                if self._plain.thresholds:
                    self._plain.play(self._sides, protocol.deadline, plain, self._keep, tell, self._left)
            finally:
                self._seconds = time.monotonic() - begun
            self._comparisons = played.comparisons()
            if protocol.profile == "ci":
                self._explain(tell)
        except KeyboardInterrupt:
            # The run ends here: report what is known.
            self._asked = played.comparisons()
            self._plain.ended()
            raise
        except UserError as error:
            self._refused = str(error)
            pytest.exit(self._refused, pytest.ExitCode.USAGE_ERROR)
        except Exception as error:
            # The pairs took minutes: the next test must not play them again.
            self._fault = type(error).__name__
            raise

    def _judged_by(self, metric: str) -> list[Workload]:
        return [workload for workload, limits in self._expected.items() if metric in limits]

    def _left(self) -> float:
        return self._end - time.monotonic()

    def _explain(self, tell: Tell) -> None:
        """Search for the cause of the worst regression of any metric, and note the answer for the outcome."""
        # These workloads have the batch that fitted into memory.
        comparisons: list[AnyComparison] = [*self._comparisons.values(), *self._plain.comparisons.values()]
        regressed = [
            (verdict.ratio, metric, comparison.workload)
            for comparison in comparisons
            for metric, verdict in comparison.verdicts.items()
            if verdict.kind == "regressed"
        ]
        searches = [resolve(added.cause) for added in extensions() if added.cause]
        if not regressed or not searches:
            return
        _, metric, subject = max(regressed, key=lambda regression: regression[0])
        python = sys.executable
        if isinstance(subject, Workload):
            python = self._selection.pythons.get(LANES[subject.lane].framework, python)
        regression = Regression(
            self._against,
            self._base.top,
            "." if self._base.revision else "",
            self._project,
            python,
            self._machine,
            subject,
            self._plain.called,
            metric,
            min(self._end, time.monotonic() + _EXPLAINING),
        )
        for search in searches:
            try:
                sentences = search(regression, lambda what: tell(f"explaining {subject.id}, {what}"))
            except Exception as error:
                # The verdicts stand, even if the search fails.
                why = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                sentences = [f"not explained: {line(why)}"]
            self._explained.append(f"{subject.id}: {' '.join(sentences)}")

    def _kept(self, stage: Stage, workload: Workload, pair: Pair) -> None:
        self._keep({"stage": stage, "workload": workload.to_json(), "pair": pair.to_json()})

    def _title(self, name: str) -> str:
        unmade = self._against if name == "base" else "this working tree"
        return next((side.title for side in self._sides or () if side.name == name), unmade)

    def _told(self, comparison: Comparison[Workload]) -> dict[str, Any]:
        """The benchmark's comparison for its record."""

        def pairs(name: str) -> list[dict[str, Any]]:
            return [
                {"differences": pair.differences, "values": pair.values, "seconds": pair.seconds}
                for pair in getattr(comparison, name)
            ]

        return {
            "base": self._title("base"),
            "head": self._title("head"),
            "kind": comparison.kind,
            "note": comparison.note,
            "verdicts": {metric: dataclasses.asdict(verdict) for metric, verdict in comparison.verdicts.items()},
            "screening": pairs("screening"),
            "confirmation": pairs("confirmation"),
            "base_versions": comparison.described.get("base", {}).get("versions", {}),
        }
