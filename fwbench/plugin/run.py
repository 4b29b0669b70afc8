"""A run of pytest in which something is measured: its selection, workers, gate and progress, and where our records
enter pytest-benchmark's.

pytest's own process imports no framework; a worker measures, and its samples are replayed as the benchmark's rounds.
"""

import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fwbench.errors import UserError, hint
from fwbench.gates import Gate, choose
from fwbench.gates import options as gate_options
from fwbench.machine import machine, versions
from fwbench.meters.energy import counter
from fwbench.models import CATALOG
from fwbench.models.project import Project
from fwbench.parity.store import Proved
from fwbench.plugin import later, plan, pooling, replaying, resuming, saving, spreading
from fwbench.plugin.conditions import conditions
from fwbench.plugin.progress import Progress
from fwbench.plugin.selecting import fetch_weights, select, steered_by_marker
from fwbench.plugin.session import Session, unkept
from fwbench.record import files
from fwbench.record.journal import SCHEMA, Journal
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.report import summary, units
from fwbench.report.cases import cases
from fwbench.report.evidence import differ
from fwbench.suite.profiles import TURNS, Protocol
from fwbench.worker import interrupts
from fwbench.worker.prove import prove as prove_model
from fwbench.worker.slot import Setup

# Options of pytest-benchmark that mean nothing if benchmarks do not run.
_NEEDS_BENCHMARKS = ("save", "autosave", "json", "compare", "compare-fail", "histogram")

_CLOCK = pytest.StashKey[replaying.ReplayClock]()

_NOT_PARALLEL = "cannot work with -n/--dist: benchmarks do not run in parallel; leave out -n."


class Run:
    """The plugin that is registered when a test or an option first needs fwbench.

    Raises:
        pytest.UsageError: an option cannot be used; one sentence.
    """

    def __init__(self, config: pytest.Config) -> None:
        for marker in spreading.markers():
            config.addinivalue_line("markers", marker)
        self._config = config
        if not hasattr(config, "workerinput"):
            self._refuse_parallel()
            resuming.refuse(config)
        self._pool = pooling.pool(config)
        here = self._pool.machine if self._pool else machine()
        self.selection = select(config, here)
        self.machine = dataclasses.replace(here, threads=self.selection.threads)
        self.project = Project(config.rootpath, (*config.getini("pythonpath"), config.rootpath))
        if self._pool:
            self._pool.equip(self._setup())
        self.gate: Gate | None = choose(config, self.selection, self.machine, self.project)
        self._plan: plan.Plan | None = None
        self._progress = Progress()
        self._conditions: dict[str, Any] = {}
        self._resumed: resuming.Resumed | None = None
        self._duet: Journal | None = None  # of a duet's pairs
        self._told: list[str] = []  # what it goes on with
        self._unwritten: list[str] = []  # a sentence on each file of the run's that could not be written
        self._ran = False  # whether there is anything that a gate could judge
        self._usage_error: pytest.UsageError | None = None
        self._measures = False  # whether any selected test does
        self._spent: dict[str, float] = {}  # seconds that a pool took for a test's measurement
        self._made: list[later.Made] = []
        self._begun = time.monotonic()

    @functools.cached_property
    def session(self) -> Session:
        """The workers and the journal, which end with the run."""
        resumed = self._resumed.by_workload() if self._resumed else {}
        run = self.selection, self.machine, self._storage, self.project, self._conditions
        return Session(*run, self.gate, self._pool, resumed)

    def _setup(self) -> Setup:
        """The settings by which a pool measures for this run."""
        asked = self.selection
        return Setup(
            self.project,
            asked.device,
            asked.pythons,
            asked.threads,
            asked.processes,
            asked.patience,
            asked.fit_batch,
        )

    @property
    def _benchmarking(self) -> Any:
        """pytest-benchmark's session."""
        return self._config._benchmarksession  # type: ignore[attr-defined]

    @property
    def _storage(self) -> Path:
        return Path(getattr(self._benchmarking.storage, "path", ".benchmarks"))

    @property
    def _measurements(self) -> list[Measurement]:
        return self.session.measurements if "session" in vars(self) else []

    # Collection

    def spread(self, metafunc: pytest.Metafunc, marker: pytest.Mark) -> None:
        """Spread a test with one of our markers over its workloads or networks."""
        try:
            if marker.name == "fwbench":
                found = spreading.workloads(marker, self.selection, self.project)
                spreading.parametrize(metafunc, found)
            else:
                spreading.parametrize_candidates(metafunc, spreading.candidates(marker, self.project))
        except ValueError as error:
            spreading.parametrize_fault(metafunc, f"{metafunc.definition.nodeid}: {error}")
        except pytest.UsageError as error:
            # Not while a module is collected: pytest would show it as that module's fault, with a traceback.
            self._usage_error = error
            spreading.parametrize(metafunc, [])

    def workload(self, item: pytest.Item) -> Workload:
        """The workload of a test.

        Raises:
            pytest.fail.Exception: the test could not be spread, or was not meant to be.
        """
        found = spreading.workload_of(item)
        if found is None:
            _fail_unspread(item, "@fwbench.benchmark(model, ...)")
        assert found is not None
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what this run does not measure, and give the rest our clock."""
        if self._usage_error:
            raise self._usage_error
        self._refuse_unknown_models()
        self._deselect(items)
        for item in items:
            if "fwbench_measure" not in getattr(item, "fixturenames", ()):
                continue
            # A failed workload has no rounds to replay, and its failure already says so.
            item.add_marker(pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all"))
            workload = spreading.workload_of(item)
            if workload is None:
                continue
            clock = item.stash[_CLOCK] = replaying.ReplayClock()
            # pytest-benchmark reads only the closest marker, so this one repeats what the test's own says.
            own = item.get_closest_marker("benchmark")
            kwargs = {"group": replaying.group(workload), **(own.kwargs if own else {}), "timer": clock}
            item.add_marker(pytest.mark.benchmark(**kwargs), append=False)

    def _refuse_unknown_models(self) -> None:
        for name in self.selection.asked.get("models", ()):
            if name not in self.project.models:
                known = [name for name, model in self.project.models.items() if model.parameters or name not in CATALOG]
                raise pytest.UsageError(f"unknown model {name!r} in --fwbench-models: {hint(name, known)}.")

    def _deselect(self, items: list[pytest.Item]) -> None:
        """Leave out tests of which this run measures nothing, and tests that its gate does not cover."""

        def is_out(item: pytest.Item) -> bool:
            workload = spreading.workload_of(item)
            if workload is None:
                return item.get_closest_marker("fwbench") is not None and spreading.fault_of(item) is None
            return self.gate is not None and not self.gate.covers(workload)

        left_out = [item for item in items if is_out(item)]
        if left_out:
            self._config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Keep tests that were left out on purpose from counting as missing."""
        for item in items:
            workload = spreading.workload_of(item)
            if self.gate and workload:
                self.gate.deselect(workload)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Announce the tests to the gate and the progress line, and fetch missing weights.

        Runs first, as the terminal asks right afterwards what there is to say.
        """
        measured = {item: workload for item in session.items if (workload := spreading.workload_of(item))}
        self._measures = bool(measured)
        if self.gate:
            self._expect(measured, self.gate)
        published = dict.fromkeys(w.model for w in measured.values() if w.weights == "pretrained")
        if published and not self._config.option.collectonly:
            models = [self.project.models[name] for name in published]
            fetch_weights(models, self.selection.pythons.get("torch", sys.executable))
        if not measured or self._benchmarking.disabled or self._benchmarking.skip:
            return
        saving.take_over(self._benchmarking, self._unwritten.append)
        asked = {item: w for item, w in measured.items() if not _is_kept_from_running(item)}
        self._begin_journal(asked)
        if not self._config.option.collectonly:
            try:
                self.session.expect((w, self._protocol(item, w)) for item, w in asked.items() if not self._has(item))
            except OSError as error:
                raise pytest.UsageError(unkept(error)) from None
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is None or self._config.get_verbosity() < 0 or hasattr(self._config, "workerinput"):
            return
        self._plan = self._planned(measured)
        capture = self._config.pluginmanager.getplugin("capturemanager")
        uncaptured = capture.global_and_fixture_disabled if capture else nullcontext
        self._progress = Progress(terminal, uncaptured, len(measured), self._plan)

    def _begin_journal(self, measured: dict[pytest.Item, Workload]) -> None:
        """Begin the journal; a resumed run copies what it takes from another journal at once."""
        if (reason := files.unwritable(self._storage / "journal")) and not self._config.option.collectonly:
            raise pytest.UsageError(
                f"{self._storage} cannot be written ({reason}), and each measurement is kept there as soon as it is "
                "made: name another folder by --benchmark-storage=DIR."
            )
        self._conditions = conditions(
            self.selection,
            self.machine,
            self.project,
            measured.values(),
            self._storage,
            self._config.pluginmanager.get_plugins(),
        )
        named = self._config.getoption("fwbench_resume")
        asked = {item.nodeid: (workload, self._protocol(item, workload)) for item, workload in measured.items()}
        if self.gate and self.gate.against and not self._config.option.collectonly:
            run = self._storage, self._conditions, asked, self.gate
            self._duet, self._told = resuming.go_on(named, *run)
        elif named is not None:
            self._resumed = resuming.resume(named, self._storage, self._conditions, asked)

    def _has(self, item: pytest.Item) -> bool:
        """Whether the test's measurement is taken from a journal."""
        return self._resumed is not None and item.nodeid in self._resumed.taken

    def _planned(self, measured: dict[pytest.Item, Workload]) -> plan.Plan:
        """The estimated duration of the run."""
        benchmarks = {
            item.nodeid: (workload, self._protocol(item, workload))
            for item, workload in measured.items()
            if not self._has(item) and not _is_kept_from_running(item)
        }
        duet = self.gate is not None and self.gate.kind == "duet"
        programs = self.selection.protocol.programs
        return plan.plan(
            benchmarks,
            plan.known(self._storage, self.machine, measured.values(), programs=programs, duet=duet),
            threads=self.selection.threads,
            metered=not isinstance(counter(self.selection.device), str),
            processes=self.selection.processes,
            duet=duet,
            at_once=len(self._pool) if self._pool else 1,
        )

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what is taken from a journal, and how long the rest will take."""
        lines = self._resumed.lines() if self._resumed else self._told
        resumed = [f"fwbench: {line}" for line in lines]
        spread = [f"fwbench: {self._pool.told}"] if self._pool and self._measures else []
        planned = [self._plan.told()] if self._plan and self._plan.pending else []
        duet = self.gate is not None and self.gate.kind == "duet"
        whole, turns = (units.duration(60 * self.selection.minutes * share) for share in (1, TURNS))
        ends = (
            f"the duet ends after {whole}" if duet else f"lanes take turns in what is left of {whole}, {turns} at least"
        )
        minutes = [f"fwbench: {ends}"] if planned and self.selection.minutes else []
        return [*spread, *resumed, *planned, *minutes]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Correct the plan by the time that a test took; a test skipped beforehand has no `call` phase."""
        if self._plan and report.when != "setup":
            # A pooled test's own time says nothing: its measurement was made elsewhere.
            seconds = self._spent.pop(report.nodeid, report.duration)
            self._plan.took(report.nodeid, seconds if report.when == "call" and report.passed else None)

    def _expect(self, measured: dict[pytest.Item, Workload], gate: Gate) -> None:
        """Tell a gate what the run will measure, and what is left out on purpose."""
        expected = {}
        for item, workload in measured.items():
            if _is_kept_from_running(item):
                gate.deselect(workload)
            elif gate.kind:
                expected[workload] = gate_options.of_test(item, gate.kind)
        gate.expect(expected)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Run the loop; pytest does not call this after a usage error, and runs no test after collection errors."""
        self._ran = not self._config.option.collectonly and not session.testsfailed
        with interrupts.in_order():
            done = yield
            if self._made:
                self._go_on()
            return done

    def _go_on(self) -> None:
        """Measure disturbed workloads again and let lanes take turns, after every test has its measurement."""
        if self.session.caches is None:
            later.measure_again(self._made, self.session, self.gate, self._progress, math.inf)
            return
        turns, end = later.turns(self._begun, self.selection.minutes)
        later.measure_again(self._made, self.session, self.gate, self._progress, turns)
        later.take_turns(self._made, self.session, self.project, self._progress, end)

    # Measuring

    def measuring(self, item: pytest.Item, benchmark: Any) -> Callable[[], Measurement]:
        """The value of the fixture `fwbench_measure`."""
        workload = self.workload(item)
        protocol = self._protocol(item, workload)
        if hasattr(self._config, "workerinput") and (asked := self._needs_benchmarks()):
            pytest.fail(f"{asked} {_NOT_PARALLEL}", pytrace=False)

        def measure() -> Measurement:
            if benchmark.disabled:
                smoke = dataclasses.replace(protocol, smoke=True)
                tell = self._progress.stage
                measurement: Measurement = benchmark.pedantic(self.session.run, args=(workload, smoke, tell))
            else:
                measurement = self._measured(item, workload, protocol)
            timed = self.gate is None or self.gate.timed
            if not benchmark.disabled and not measurement.failure and timed:
                replaying.rename(benchmark, measurement)
                benchmark.extra_info.update(replaying.extra_info(measurement))
                replaying.replay(measurement, benchmark, item.stash[_CLOCK])
                self._made.append(later.Made(item, protocol, benchmark, measurement))
            if self.gate:
                self.gate.judge(measurement, item.nodeid)
            if measurement.failure:
                benchmark.has_error = True
                if measurement.failure.kind == "unavailable":
                    pytest.skip(measurement.failure.message)
                pytest.fail(f"{workload.id}: {measurement.failure}", pytrace=False)
            return measurement

        return measure

    def _protocol(self, item: pytest.Item, workload: Workload) -> Protocol:
        """The protocol of a test."""
        steered = steered_by_marker(self.selection.protocol, item.get_closest_marker("benchmark"))
        return dataclasses.replace(steered, deadline=steered.deadline * workload.epochs)

    def _measured(self, item: pytest.Item, workload: Workload, protocol: Protocol) -> Measurement:
        self._progress.begin(workload.id, item.nodeid)
        try:
            measurement = self.session.measure(workload, protocol, self._progress.stage)
        except UserError as error:
            pytest.exit(str(error), pytest.ExitCode.INTERRUPTED)
        self._progress.end(measurement)
        if self._pool:
            self._spent[item.nodeid] = sum(measurement.stages.values()) + (measurement.overhead_s or 0.0)
        if self.session.unkept:
            # This measurement is still shown and saved, but hours more must not be spent on what cannot be stored.
            item.session.shouldstop = self.session.unkept
        return measurement

    # Proving

    def proving(self, item: pytest.Item) -> Callable[[], Proved]:
        """The value of the fixture `fwbench_prove`."""
        candidate = spreading.candidate_of(item)
        if candidate is None:
            _fail_unspread(item, "@fwbench.proof(model, ...)")
        assert candidate is not None

        def prove() -> Proved:
            try:
                pythons = self.selection.pythons
                proved = prove_model(candidate.model, candidate.framework, self.project, pythons=pythons)
            except UserError as error:
                pytest.fail(str(error), pytrace=False)
            if proved.state != "proved":
                pytest.fail(proved.sentence, pytrace=False)
            return proved

        return prove

    # What pytest-benchmark stores

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, config: pytest.Config, machine_info: dict[str, Any]) -> None:
        """Add our fingerprint; a run with other people's benchmarks alone is stored as if fwbench were not there."""
        if self._measures:
            self.describe_machine(machine_info)

    def describe_machine(self, machine_info: dict[str, Any]) -> None:
        """Add accelerator, threads and this interpreter's versions; drop the momentary clock rate."""
        distributions = tuple(dict.fromkeys(name for lane in LANES.values() for name in lane.distributions))
        machine_info["fwbench"] = {**self.machine.to_json(), "versions": versions(distributions)}
        for key in ("hz_actual", "hz_actual_friendly"):
            machine_info.get("cpu", {}).pop(key, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, config: pytest.Config, output_json: dict[str, Any]) -> None:
        """Add the schema and the failures: pytest-benchmark stores only benchmarks with rounds."""
        if not self._measures:
            return
        failed = [m.to_json() for m in self._measurements if m.failure]
        output_json["fwbench"] = {"schema": SCHEMA, "failures": failed}

    # The end

    def pytest_report_teststatus(self, report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
        """Print no letter for a test that the progress line has already reported."""
        if report.when == "call" and report.outcome != "skipped" and report.nodeid in self._progress.shown:
            return report.outcome, "", ""
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let the gate set the exit status, and end the workers."""
        if self.gate and self._ran:
            try:
                session.exitstatus = self.gate.finish(int(session.exitstatus))
            except OSError as error:
                self._unwritten.append(f"{error.filename} cannot be written ({error.strerror})")
        strict = gate_options.DIFFERENT in self._config.getoption("fwbench_fail")
        if strict and session.exitstatus == pytest.ExitCode.OK and differ(cases(self._measurements)):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        told = self._unwritten or self._unmeasured()
        if told and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        if "session" in vars(self):
            self.session.close()
        if self._duet:
            self._duet.close()

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Release what the gate holds."""
        if self.gate:
            self.gate.close()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Iterator[None]:
        """Write the table and the gate's findings, even if pytest-benchmark has just raised for a regression."""
        try:
            return (yield)
        finally:
            if self._measurements and not (self.gate and self.gate.shows_numbers):
                _write_summary(terminalreporter, self.session)
            for line in self._resumed.lines() if self._resumed and self._measurements else ():
                terminalreporter.write_line(f"resumed: {line}")
            if self.gate and self._ran:
                terminalreporter.section(self.gate.title)
                journal = self.session.journal.path if "session" in vars(self) else None
                for line in self.gate.lines(journal):
                    terminalreporter.write_line(line)
            for sentence in self._unwritten:
                journal = self.session.journal.path if "session" in vars(self) else None
                again = journal and not (self.gate and self.gate.kind == "duet")
                told = (
                    f"; {resuming.OPTION}={journal} then saves what it holds without measuring it again"
                    if again
                    else ""
                )
                terminalreporter.write_line(f"ERROR: {sentence}{told}", red=True)
            if sentence := self._unmeasured():
                terminalreporter.write_line(f"ERROR: {sentence}", red=True)

    def _unmeasured(self) -> str:
        """Why no framework could be measured; empty if one was measured or none was asked for."""
        asked = [m.failure for m in self._measurements if not LANES[m.workload.lane].internal]
        first = next((failure for failure in asked if failure), None)
        return f"nothing could be measured: {first.message}" if first and all(asked) else ""

    def _needs_benchmarks(self) -> str | None:
        """The option of pytest-benchmark's that was given and that needs benchmarks to run."""
        for option in _NEEDS_BENCHMARKS:
            if self._config.getoption(f"benchmark_{option.replace('-', '_')}", None):
                return f"--benchmark-{option}"
        return None

    def _refuse_parallel(self) -> None:
        """Refuse xdist: pytest-benchmark switches itself off under it, saves and compares nothing, and exits with 0."""
        if self._config.getoption("dist", "no") != "no" and (asked := self._needs_benchmarks()):
            raise pytest.UsageError(f"{asked} {_NOT_PARALLEL}")


def _fail_unspread(item: pytest.Item, decorator: str) -> None:
    sentence = spreading.fault_of(item) or f"{item.nodeid} does not say of which model: decorate it with {decorator}"
    pytest.fail(sentence, pytrace=False)


def _is_kept_from_running(item: pytest.Item) -> bool:
    """Whether a marker skips the test; a condition written as text is evaluated when its turn comes."""
    for marker in item.iter_markers():
        skips = marker.name in ("skip", "skipif")
        fails_unrun = marker.name == "xfail" and not (marker.kwargs.get("run", True) or item.config.option.runxfail)
        conditions = (marker.kwargs["condition"],) if "condition" in marker.kwargs else marker.args
        holds = marker.name == "skip" or not conditions or any(c and not isinstance(c, str) for c in conditions)
        if holds and (skips or fails_unrun):
            return True
    return False


def _write_summary(terminal: Any, session: Session) -> None:
    here = session.machine
    where = here.accelerator if here.device == "gpu" else f"{here.cpu}, {here.threads} threads"
    terminal.section(f"fwbench: {session.selection.protocol.profile} profile on {where}")
    study = session.selection.study
    found = session.measurements
    for line in summary.sentences(found):
        terminal.write_line(line)
    for lines in (summary.table(found), summary.epochs(found, study), summary.devices(found)):
        for line in (*lines, "") if lines else ():
            terminal.write_line(line)
    for note in summary.notes(session.measurements):
        terminal.write_line(f"note: {note}")
    if session.journal.path:
        terminal.write_line(f"journal: {session.journal.path}")
