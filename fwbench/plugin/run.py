"""A run of pytest in which something is measured: its selection, workers, gate, progress, and its part in
pytest-benchmark's records.

pytest's own process imports no framework; a worker measures, and its samples become the benchmark's rounds.
"""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fwbench import units
from fwbench.errors import UserError, hint
from fwbench.extensions import addition, needed, resolve
from fwbench.gates import Gate, choose
from fwbench.gates import options as gate_options
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.models.project import Project, unknown_network
from fwbench.plugin import ending, marked, plain, plan, pooling, saving, spreading
from fwbench.plugin.items import announce, arrange, fail_unspread, is_kept_from_running, left_out, protocol_of
from fwbench.plugin.progress import Progress
from fwbench.plugin.selecting import select
from fwbench.plugin.session import RESUME, Asked, Resumed, Session, unkept
from fwbench.plugin.turning import Turning, may_follow, seconds_left
from fwbench.record import files
from fwbench.record.journal import AGAINST, SCHEMA
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import TURNS, Protocol
from fwbench.worker.client import interrupts, starting


class Run:
    """The plugin that is registered when a test or an option first needs fwbench."""

    def __init__(self, config: pytest.Config) -> None:
        for marker in spreading.markers():
            config.addinivalue_line("markers", marker)
        self._config = config
        gate_options.refuse(config)
        starting.require_files()
        self._pool = pooling.pool(config)
        here = self._pool.machine if self._pool else machine()
        self.selection = select(config, here)
        self.machine = dataclasses.replace(here, threads=self.selection.threads)
        self.project = Project(config.rootpath, (*config.getini("pythonpath"), config.rootpath))
        if self._pool:
            self._pool.equip(self.selection, self.project)
        self.gate = choose(config, self.selection, self.machine, self.project)
        self._plan: plan.Plan | None = None
        self._progress = Progress()
        self._conditions: dict[str, Any] = {}
        self._resumed: Resumed | None = None
        self._unwritten: list[str] = []  # a sentence on each file of the run's that could not be written
        self._ran = False  # whether there is anything that a gate could judge
        self._usage_error: pytest.UsageError | None = None
        self._measures = False  # whether any selected test measures
        self._unsurveyed: list[tuple[Workload, Protocol]] = []  # their networks are built once before all else
        self._turning: Turning | None = None  # lets lanes take turns
        self._spent: dict[str, float] = {}  # seconds that a pool took for a test's measurement
        self._benchmarks: dict[str, Any] = {}  # pytest-benchmark's fixture of each test that was measured
        self._begun = time.monotonic()

    @functools.cached_property
    def session(self) -> Session:
        """The workers and the journal, which end with the run."""
        run = self.selection, self.machine, self._storage, self.project, self._conditions
        session = Session(*run, self.gate, self._pool, self._resumed)
        session.has_time = self._has_time
        return session

    def _has_time(self) -> bool:
        """True if disturbed workloads may be measured again, as the lanes' turns still have their share of the time."""
        if not self._turning:
            return True
        left = self._plan.left if self._plan else 0.0
        return time.monotonic() + left < self._begun + 60 * self.selection.minutes * (1 - TURNS)

    @property
    def _is_duet(self) -> bool:
        return self.gate.kind == "duet"

    @property
    def _judging(self) -> Gate:
        """The gate, or one that judges nothing if no test was run."""
        return self.gate if self._ran else Gate(self._config)

    @property
    def _begun_session(self) -> Session | None:
        return vars(self).get("session")

    @property
    def _benchmarking(self) -> Any:
        """pytest-benchmark's session."""
        return self._config._benchmarksession  # type: ignore[attr-defined]

    @property
    def _storage(self) -> Path:
        return Path(getattr(self._benchmarking.storage, "path", ".benchmarks"))

    # Collection

    def spread(self, metafunc: pytest.Metafunc, marker: pytest.Mark) -> None:
        """Spread a test with one of our markers over its workloads or networks."""
        subjects: Sequence[spreading.Subject] = ()
        try:
            if marker.name == "fwbench":
                subjects = spreading.workloads(marker, self.selection, self.project)
            else:
                subjects = spreading.candidates(marker, self.project)
        except ValueError as error:
            subjects = [f"{metafunc.definition.nodeid}: {error}"]
        except pytest.UsageError as error:
            # Raised later: while a module is collected, pytest would show it as that module's fault, with a traceback.
            self._usage_error = error
        spreading.parametrize(metafunc, subjects)

    def workload(self, item: pytest.Item) -> Workload:
        """The workload of a test; a test that could not be spread, or was not meant to be, fails."""
        workload = spreading.subject_of(item, Workload)
        if workload is None:
            fail_unspread(item, "@fwbench.benchmark(model, ...)")
        return workload

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what this run does not measure, and give the rest its place in pytest-benchmark's table."""
        if self._usage_error:
            raise self._usage_error
        self._refuse_unknown_models()
        for item in items if self._is_duet else ():
            marked.adopt(item)
        deselected = [item for item in items if left_out(item, self.gate)]
        if deselected:
            config.hook.pytest_deselected(items=deselected)
            items[:] = [item for item in items if item not in deselected]
        if self.selection.device == "gpu" and self.selection.minutes and not self._is_duet:
            arrange(items)
        for item in items:
            if "fwbench_measure" not in getattr(item, "fixturenames", ()):
                continue
            # A failed workload has no rounds, and its failure already says so.
            item.add_marker(pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all"))
            if workload := spreading.subject_of(item, Workload):
                saving.equip(item, workload)

    def _refuse_unknown_models(self) -> None:
        for name in self.selection.asked.get("models", ()):
            if name not in self.project.models:
                known = [name for name, model in self.project.models.items() if model.parameters or name not in CATALOG]
                raise pytest.UsageError(f"unknown model {name!r} in --fwbench-models: {hint(name, known)}.")
        for lane in self.selection.asked.get("lanes", ()):
            if why := unknown_network(self.project.models.values(), lane):
                raise pytest.UsageError(f"--fwbench-lanes: {why}.")

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Keep tests that were left out on purpose from counting as missing."""
        for item in items:
            workload = spreading.subject_of(item, Workload)
            if workload:
                self.gate.deselect(workload)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Announce the tests to the gate and the progress line, and fetch missing weights.

        Runs first, as the terminal asks for the plan's lines right afterwards.
        """
        measured = {item: workload for item in session.items if (workload := spreading.subject_of(item, Workload))}
        self._measures = bool(measured)
        announce(self.gate, measured)
        published = dict.fromkeys(w.model for w in measured.values() if w.weights == "pretrained")
        if published and not self._config.option.collectonly:
            models = [self.project.models[name] for name in published]
            try:
                stored = needed("pretrained", "--fwbench-set weights=pretrained")
                stored.fetch(models, self.selection.pythons.get("torch", sys.executable))
            except UserError as error:
                raise pytest.UsageError(str(error)) from None
        if self._benchmarking.disabled or self._benchmarking.skip:
            return
        plainly = self._is_duet and plain.announce(
            self._config, self.gate, session.items, lambda told: self._progress.line(told)
        )
        if not measured and not plainly:
            return
        saving.take_over(self._benchmarking, self._unwritten.append)
        asked = {
            item.nodeid: (workload, protocol_of(item, workload, self.selection.protocol))
            for item, workload in measured.items()
            if not is_kept_from_running(item)
        }
        try:
            self._begin_journal(asked)
            taken = self._resumed.taken if self._resumed else {}
            left = {test: both for test, both in asked.items() if test not in taken}
            if not self._config.option.collectonly:
                self.session.expect(left.values())
        except OSError as error:
            raise pytest.UsageError(unkept(error)) from None
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        self._unsurveyed = [] if self._pool or self._is_duet else list(left.values())
        follow = not self._is_duet and may_follow(self.selection, measured.values())
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None and self._config.get_verbosity() >= 0:
            self._announce_plan(terminal, left, len(measured), follow)
        if follow and not self._config.option.collectonly:
            workloads = {test: workload for test, (workload, _) in asked.items()}
            of_run = self.session, self.project, self._progress, self._begun
            self._turning = Turning(*of_run, workloads, self._plan)
            if not (self._pool or hasattr(self._config, "workerinput") or self.selection.processes > 1):
                self.session.stays = self._turning.stays

    def _announce_plan(self, terminal: Any, left: Asked, total: int, follow: bool) -> None:
        """Plan what is left to measure, and show progress by it; `follow`: lanes take turns after that."""
        turns = functools.partial(seconds_left, self._begun, self.selection.minutes) if follow else None
        at_once = len(self._pool) if self._pool else 1
        selected, duet = self.selection, self._is_duet
        planned = plan.estimates(left, self._storage, self.machine, selected.processes, duet, kept=selected.minutes > 0)
        self._plan = plan.Plan(*planned, duet, at_once, turns)
        capture = self._config.pluginmanager.getplugin("capturemanager")
        uncaptured = capture.global_and_fixture_disabled if capture else nullcontext
        self._progress = Progress(terminal, uncaptured, total, self._plan)

    def _begin_journal(self, asked: Asked) -> None:
        """Begin the journal; a resumed run copies what it takes from another journal at once."""
        if (reason := files.unwritable(self._storage / "journal")) and not self._config.option.collectonly:
            raise pytest.UsageError(
                f"{self._storage} cannot be written ({reason}), and each measurement is kept there as soon as it is "
                "made: name another folder by --benchmark-storage=DIR."
            )
        files.sweep(self._storage, below=True)
        duet = self.gate if self.gate.against else None
        if duet:
            duet.keep(lambda record: self.session.note(record))
        named, of_run = self._config.getoption("fwbench_resume"), (self.selection, self.machine, self.project)
        if named is None and not addition("resume"):
            against = {AGAINST: duet.against} if duet else {}
            self._conditions = {
                "profile": self.selection.protocol.profile,
                "machine": self.machine.to_json(),
                **against,
            }
            return
        begin, plugins = needed("resume", RESUME), self._config.pluginmanager.get_plugins()
        self._conditions, self._resumed = begin(*of_run, asked, self._storage, plugins, named, duet)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what is taken from a journal, and how long the rest will take."""
        resumed = [f"fwbench: {line}" for line in (self._resumed.lines if self._resumed else ())]
        spread = [f"fwbench: {self._pool.told}"] if self._pool and self._measures else []
        planned = [self._plan.told()] if self._plan and self._plan.pending else []
        whole, turns = (units.duration(60 * self.selection.minutes * share) for share in (1, TURNS))
        if planned and self._is_duet and self.selection.minutes:
            planned.append(f"fwbench: the duet ends after {whole}")
        elif planned and self._turning:
            planned.append(f"fwbench: lanes take turns in what is left of {whole}, {turns} at least")
        return [*spread, *resumed, *planned]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Correct the plan by the time that a test took; a test skipped beforehand has no `call` phase."""
        if self._plan and report.when != "setup":
            # A pooled test's own time means nothing: its measurement was made elsewhere.
            seconds = self._spent.pop(report.nodeid, report.duration)
            self._plan.took(report.nodeid, seconds if report.when == "call" and report.passed else None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self) -> bool | None:
        """Let pytest-timeout end no test of a duet: the first one waits for all of it."""
        return True if self._is_duet else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Run the loop; pytest does not call this after a usage error, and runs no test after collection errors."""
        self._ran = not self._config.option.collectonly and not session.testsfailed
        with interrupts.in_order():
            if self._ran and self._unsurveyed and (path := addition("survey")):
                resolve(path)(self._unsurveyed, self.project.models, self.session.shapes, self._progress)
            done = yield
            if self._benchmarks and self._turning:
                self._turning.take()
            return done

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Let lanes take turns once their workload is measured, or before another one; outside of any time limit."""
        workload = spreading.subject_of(item, Workload)
        if self._turning and workload:
            self._turning.before(workload)
        done = yield
        if self._turning and workload:
            self._turning.measured(workload)
        return done

    # Measuring

    def measuring(self, item: pytest.Item, benchmark: Any) -> Callable[[], Measurement]:
        """The value of the fixture `fwbench_measure`."""
        workload = self.workload(item)
        protocol = protocol_of(item, workload, self.selection.protocol)
        if hasattr(self._config, "workerinput") and (option := gate_options.needs_rounds(self._config)):
            pytest.fail(f"{option} {gate_options.NOT_PARALLEL}", pytrace=False)

        def measure() -> Measurement:
            try:
                if benchmark.disabled:
                    smoke = dataclasses.replace(protocol, smoke=True)
                    tell = self._progress.stage
                    measurement: Measurement = benchmark.pedantic(self.session.run, args=(workload, smoke, tell))
                else:
                    measurement = self._measured(item, benchmark, workload, protocol)
            except UserError as error:
                pytest.exit(str(error), pytest.ExitCode.INTERRUPTED)
            if not benchmark.disabled and not measurement.failure and self.gate.timed:
                saving.replay(measurement, benchmark)
                self._benchmarks[item.nodeid] = benchmark
            self.gate.judge(measurement, item.nodeid)
            if measurement.failure:
                benchmark.has_error = True
                if measurement.failure.kind == "unavailable":
                    pytest.skip(measurement.failure.message)
                pytest.fail(f"{workload.id}: {self._progress.once(measurement).failure}", pytrace=False)
            return measurement

        return measure

    def _measured(self, item: pytest.Item, benchmark: Any, workload: Workload, protocol: Protocol) -> Measurement:
        benchmark.skipped = True  # else pytest-benchmark warns that it was not used, if the run is ended here
        self._progress.begin(workload.id, item.nodeid)
        measurement = self.session.measure(item.nodeid, workload, protocol, self._progress.stage)
        if again := self._benchmarks.pop(item.nodeid, None):
            # The test's earlier outcome, which pytest-benchmark must not store.
            self._benchmarking.benchmarks.remove(again.stats)
        self._progress.end(measurement)
        if self._pool:
            self._spent[item.nodeid] = sum(measurement.stages.values()) + (measurement.overhead_s or 0.0)
        if self.session.unkept:
            # This measurement is still shown and saved, but hours more must not be spent on what cannot be stored.
            item.session.shouldstop = self.session.unkept
        return measurement

    # Our part in pytest-benchmark's records

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, config: pytest.Config, machine_info: dict[str, Any]) -> None:
        """Add our fingerprint; a run with other people's benchmarks alone is stored as if fwbench were not there."""
        if self._measures:
            saving.describe(machine_info, self.machine)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, config: pytest.Config, output_json: dict[str, Any]) -> None:
        """Add the schema and the failures: pytest-benchmark stores only benchmarks with rounds."""
        if not self._measures:
            return
        begun = self._begun_session
        failed = [m.to_json() for m in begun.measurements if m.failure] if begun else []
        rounds = [played.to_json() for played in begun.rounds] if begun else []
        output_json["fwbench"] = {"schema": SCHEMA, "failures": failed, **({"rounds": rounds} if rounds else {})}

    # The end

    def pytest_report_teststatus(self, report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
        """Print no letter for a test that the progress line has reported; summaries (`-r`) ask again for its word."""
        if report.when == "call" and report.nodeid in self._progress.shown:
            self._progress.shown.discard(report.nodeid)
            expected = "xfailed" if report.skipped else "xpassed"
            return expected if hasattr(report, "wasxfail") else report.outcome, "", ""
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let the gate set the exit status, and end the workers."""
        ending.finish(session, self._begun_session, self._judging, self._unwritten)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Release what the gate holds."""
        self.gate.close()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> Iterator[None]:
        """Write the table and the gate's findings, even if pytest-benchmark has just raised for a regression."""
        saving.hide(self._benchmarking, self._config, self._benchmarks.values(), bool(self.gate.title))
        try:
            return (yield)
        finally:
            ended = exitstatus == pytest.ExitCode.INTERRUPTED
            ending.write(terminalreporter, self._begun_session, self._judging, self._resumed, self._unwritten, ended)
