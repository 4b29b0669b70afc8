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

from fwbench import text
from fwbench.compare import duet
from fwbench.compare.cases import grouped
from fwbench.compare.criteria import CRITERIA, Threshold
from fwbench.compare.duet_outcome import AnyComparison, outcome, together
from fwbench.compare.findings import Outcome
from fwbench.compare.pair import Comparison, Of, Pair, Stage
from fwbench.errors import Absent, UserError
from fwbench.extensions import extensions, resolve
from fwbench.gates.contract import Gate, Regression, fail
from fwbench.gates.options import thresholds
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
from fwbench.worker.turns.plain import Invocation, PlainPairs
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side, find, sides

# The most seconds that the search for a regression's cause may take.
_EXPLAINING = 600.0


@dataclasses.dataclass
class _Comparisons:
    """Comparisons of workloads, and of plain tests."""

    workloads: dict[Workload, Comparison[Workload]] = dataclasses.field(default_factory=dict)
    tests: dict[PlainTest, Comparison[PlainTest]] = dataclasses.field(default_factory=dict)

    @property
    def every(self) -> dict[Workload | PlainTest, AnyComparison]:
        """All of them; those of plain tests come last."""
        return dict([*self.workloads.items(), *self.tests.items()])


class DuetGate(Gate):
    """Runs the duet over all workloads and plain tests of the run, when the first test asks for its measurement."""

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
        self._plain: dict[PlainTest, Mapping[str, Threshold]] = {}
        self._called: Invocation
        # By plain test, the reason why it is measured in the usual way.
        self._unrepeatable: Mapping[PlainTest, str] = {}
        self._comparisons = _Comparisons()
        self._asked = _Comparisons()  # those that a test has asked for
        self._has_run = False
        self._seconds = 0.0
        self._end = time.monotonic() + 60 * selection.minutes if selection.minutes else math.inf
        # The reason for which the duet came to no end.
        self._ended = ""
        self._taken: list[tuple[Stage, Workload | PlainTest, Pair]] = []
        self._explained: list[str] = []
        self._keep: Callable[[Mapping[str, Any]], None] = lambda record: None
        self._base, self._top = find(self._against, self._project.root)

    def covers(self, workload: Workload) -> bool:
        """True except for epochs, which are too long for turns, and the harness's benchmarks, which have no base."""
        return workload.mode != "fit" and not LANES[workload.lane].internal

    def expect(self, workloads: Mapping[Workload, Mapping[str, Threshold]]) -> None:
        self._expected = {workload: {**self._thresholds, **own} for workload, own in workloads.items()}

    def expect_plain(self, tests: Mapping[PlainTest, Mapping[str, Threshold]], called: Invocation) -> None:
        self._plain = {test: {**self._thresholds, **own} for test, own in tests.items()}
        self._called = called

    @property
    def against(self) -> Mapping[str, Any]:
        return {"revision": self._base.revision, "interpreter": self._base.python}

    def keep(self, keep: Callable[[Mapping[str, Any]], None]) -> None:
        self._keep = keep

    def take(self, stage: Stage, subject: Workload | PlainTest, pair: Pair) -> bool:
        taken = stage, subject, pair
        # Two pairs never take the same times, so an equal record is a copy.
        if taken in self._taken:
            return False
        self._taken.append(taken)
        return True

    def measuring(self, measure: Measure) -> Measure:
        return functools.partial(self._measure, measure)

    def _measure(self, measure: Measure, workload: Workload, protocol: Protocol, tell: Tell) -> Measurement:
        """The measurement made of head's rounds; for a workload that base does not have, the ordinary measurement."""
        self._has_to_run(protocol, tell)
        comparison = self._asked.workloads[workload] = self._comparisons.workloads[workload]
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
        if self._ended:
            fail(f"{self._ended}, as its first test tells")
        if not self._has_run:
            self._run(protocol, tell)
            self._has_run = True

    def judge_plain(self, test: PlainTest, tell: Tell) -> bool:
        self._has_to_run(self._selection.protocol, tell)
        if test in self._unrepeatable:
            return True
        comparison = self._asked.tests[test] = self._comparisons.tests[test]
        self._judge(comparison)
        if comparison.kind in ("failed", "unavailable"):
            assert comparison.fault is not None
            failure = comparison.fault.failure
            if comparison.kind == "unavailable":
                pytest.skip(failure.message)
            fail(f"{test.name}: {failure.message}\n\n{failure.detail}".rstrip())
        return not comparison.screening

    def judge(self, measurement: Measurement, test: str) -> None:
        comparison = self._comparisons.workloads[measurement.asked]
        if comparison.kind == "missing" or not measurement.failure:
            self._judge(comparison)

    def _judge(self, comparison: Comparison[Of]) -> None:
        """Fail the test of a benchmark that is worse than base, or that base can run and head cannot."""
        name, base = comparison.workload.id, self._title("base")
        if comparison.kind == "missing":
            fail(f"{name} is missing: {comparison.note}, and {base} can")
        slower = [
            f"{metric} {text.change(verdict.ratio)} ({' to '.join(map(text.change, verdict.interval))})"
            for metric, verdict in comparison.verdicts.items()
            if verdict.kind == "regressed"
        ]
        if slower:
            fail(f"{name} regressed: {', '.join(slower)} against {base}")

    def outcome(self) -> Outcome:
        asked = self._asked.every
        result = outcome(self._title("base"), self._title("head"), asked.values(), self._seconds)
        shared = together(self._asked.workloads.values(), self._thresholds["latency"].share)
        notes = [*self._explained, *result.notes, *self._unjudged(asked), *self._usual()]
        why = self._ended
        if not (why or asked or self._unrepeatable):
            why = "no test came to its measurement: pytest says above what became of each"
        return dataclasses.replace(
            result, findings=[*result.findings, *shared], notes=[*notes, *filter(None, [line(why)])]
        )

    def _usual(self) -> list[str]:
        """A sentence for each reason why plain tests were measured in the usual way."""
        by_reason = grouped(self._unrepeatable, self._unrepeatable.__getitem__)
        usual = "measured in the usual way, and not compared"
        return [f"{usual}: {', '.join(test.name for test in tests)}: {why}" for why, tests in by_reason.items()]

    def _unjudged(self, asked: Mapping[Workload | PlainTest, AnyComparison]) -> list[str]:
        """A sentence on each metric that was asked for in vain, of those that a duet judges only on request."""
        if not asked:
            return []
        limits: dict[Workload | PlainTest, Mapping[str, Threshold]]
        limits = dict([*self._expected.items(), *self._plain.items()])
        wanted = {metric for each in limits.values() for metric in each if CRITERIA[metric].asked}
        judged = {metric for comparison in asked.values() for metric in comparison.verdicts}
        played = {metric for subject, each in asked.items() if each.screening for metric in limits[subject]}
        lacking, lost = "no benchmark has it on both sides", "no benchmark that it is asked of ran on both sides"
        why = {metric: lacking if metric in played else lost for metric in sorted(wanted - judged)}
        if "energy" in why and isinstance(absent := counter(next(iter(asked)).device), Absent):
            why["energy"] = absent
        return [f"{metric} was not compared: {reason}" for metric, reason in why.items()]

    def close(self) -> None:
        self._stack.close()

    def _run(self, protocol: Protocol, tell: Tell) -> None:
        begun = time.monotonic()
        workloads = duet.Duet(self._expected, self._kept)
        tests: duet.Duet[PlainTest] | None = None

        def compared() -> _Comparisons:
            return _Comparisons(workloads.comparisons(), tests.comparisons() if tests else {})

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
                cold=_judged_by("compile_time", self._expected),
                warm=_judged_by("warm_start", self._expected),
                metered=_judged_by("energy", self._expected),
                servers=servers,
            )
            try:
                with servers:
                    self._play(workloads, pairs.play, tell)
                if self._plain:
                    metered = _judged_by("energy", self._plain)
                    plain = PlainPairs(*self._sides, self._called, protocol.deadline, metered=metered.__contains__)
                    self._unrepeatable = plain.unrepeatable
                    tests = duet.Duet(self._plain, self._kept)
                    self._play(tests, plain.play, tell)
            finally:
                self._seconds = time.monotonic() - begun
            self._comparisons = compared()
            if protocol.profile == "ci":
                self._explain(tell)
        except KeyboardInterrupt:
            # The run ends here: report what is known.
            self._asked = compared()
            raise
        except UserError as error:
            self._ended = str(error)
            pytest.exit(self._ended, pytest.ExitCode.USAGE_ERROR)
        except Exception as error:
            # The pairs took minutes: the next test must not play them again.
            self._ended = f"the duet ended with {type(error).__name__}"
            raise

    def _play(self, played: duet.Duet[Any], play: duet.Play[Any], tell: Tell) -> None:
        """Play a duet's pairs after those that an earlier part of the run has played."""
        for stage, subject, pair in self._taken:
            if subject in played.thresholds:
                played.take(stage, subject, pair)
        played.play(play, tell, self._left)

    def _left(self) -> float:
        return self._end - time.monotonic()

    def _explain(self, tell: Tell) -> None:
        """Search for the cause of the worst regression of any metric, and note the answer for the outcome."""
        # These workloads have the batch that fitted into memory.
        regressed = [
            (verdict.ratio, metric, comparison.workload)
            for comparison in self._comparisons.every.values()
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
            self._top,
            "." if self._base.revision else "",
            self._project,
            python,
            self._machine,
            subject,
            self._called,
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

    def _kept(self, stage: Stage, subject: Workload | PlainTest, pair: Pair) -> None:
        named = {"test": subject.name} if isinstance(subject, PlainTest) else {"workload": subject.to_json()}
        self._keep({"stage": stage, **named, "pair": pair.to_json()})

    def _title(self, name: str) -> str:
        unmade = self._against if name == "base" else "this working tree"
        return next((side.title for side in self._sides or () if side.name == name), unmade)

    def _told(self, comparison: Comparison[Workload]) -> dict[str, Any]:
        """The benchmark's comparison for its record."""
        stages = {
            stage: [{name: getattr(pair, name) for name in ("differences", "values", "seconds")} for pair in pairs]
            for stage, pairs in (("screening", comparison.screening), ("confirmation", comparison.confirmation))
        }
        return {
            "base": self._title("base"),
            "head": self._title("head"),
            "kind": comparison.kind,
            "note": comparison.note,
            "verdicts": {metric: dataclasses.asdict(verdict) for metric, verdict in comparison.verdicts.items()},
            **stages,
            "base_versions": comparison.described.get("base", {}).get("versions", {}),
        }


def _judged_by(metric: str, limits: Mapping[Of, Mapping[str, Threshold]]) -> list[Of]:
    return [subject for subject, own in limits.items() if metric in own]
