"""The pytest plugin: options, markers, fixtures, and where our records enter pytest-benchmark's.

pytest's own process imports no framework; a worker measures, and its samples are replayed as the benchmark's rounds.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fwbench.gates import Gate, choose
from fwbench.gates import options as gate_options
from fwbench.machine import Machine, machine, versions
from fwbench.models.project import Project
from fwbench.plugin import options as axes
from fwbench.plugin.progress import Progress
from fwbench.plugin.session import Session
from fwbench.record.journal import SCHEMA
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.record.workload import MODES, Workload
from fwbench.report import summary
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection

Measure = Callable[[Workload], Measurement]

# Under these names results can be grouped: each with the workload's field that it is.
_PARAMETERS = {
    "framework": "lane",
    "model": "model",
    "mode": "mode",
    "batch_size": "batch_size",
    "precision": "precision",
}

_SELECTION = pytest.StashKey[Selection]()
_SESSION = pytest.StashKey[Session]()
_PROGRESS = pytest.StashKey[Progress]()
_CLOCK = pytest.StashKey["ReplayClock"]()
_GATE = pytest.StashKey[Gate | None]()
_MACHINE = pytest.StashKey[Machine]()
_PROJECT = pytest.StashKey[Project]()
_RAN = pytest.StashKey[bool]()  # whether there is anything that a gate could judge
_SHOWN = pytest.StashKey[set[str]]()  # the tests whose outcome the progress line has told


class ReplayClock:
    """A timer that shows the time it was last set to, so that pytest-benchmark reads a worker's samples exactly."""

    __name__ = "fwbench_worker"

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pytest_addoption(parser: pytest.Parser) -> None:
    axes.add_options(parser.getgroup("fwbench", "fwbench: what to measure, and how much"))
    gate_options.add_options(parser.getgroup("fwbench-gate", "fwbench: what fails a run"))


def pytest_configure(config: pytest.Config) -> None:
    for lane in LANES.values():
        config.addinivalue_line("markers", f"{lane.name}: measures the lane {lane.title}.")
    for mode in MODES:
        config.addinivalue_line("markers", f"{mode}: measures the mode {mode}.")
    config.addinivalue_line("markers", "workloads(mode): spread the test over the run's frameworks, models and sizes.")
    config.addinivalue_line(
        "markers", "fwbench_workload(workload): what a test measures that was spread over the run's."
    )
    _refuse_parallel(config)
    config.stash[_SHOWN] = set()
    config.addinivalue_line(
        "markers", f"{gate_options.MARKER}(metric:percent%[+amount]): what fails a gate, of this test."
    )
    config.stash[_SELECTION] = axes.select(config, machine())
    config.stash[_MACHINE] = dataclasses.replace(machine(), threads=selection(config).threads)
    config.stash[_PROJECT] = Project(config.rootpath, (*config.getini("pythonpath"), config.rootpath))
    config.stash[_GATE] = choose(config, selection(config), config.stash[_MACHINE], config.stash[_PROJECT])


def _refuse_parallel(config: pytest.Config) -> None:
    """pytest-benchmark switches itself off under xdist, then saves and compares nothing and exits with 0."""
    if config.getoption("dist", "no") == "no" or hasattr(config, "workerinput"):
        return
    for option in ("save", "autosave", "json", "compare", "compare-fail", "histogram"):
        if config.getoption(f"benchmark_{option.replace('-', '_')}"):
            raise pytest.UsageError(
                f"--benchmark-{option} cannot work with -n/--dist: benchmarks do not run in parallel; leave out -n."
            )


def parametrize(metafunc: pytest.Metafunc, workloads: list[Workload]) -> None:
    """Spread a test over workloads, under primitives that pytest-benchmark can group by and under stable ids."""
    metafunc.parametrize(
        tuple(_PARAMETERS),
        [
            pytest.param(
                *(getattr(workload, field) for field in _PARAMETERS.values()),
                id=workload.id,
                marks=[
                    getattr(pytest.mark, workload.lane),
                    getattr(pytest.mark, workload.mode),
                    pytest.mark.fwbench_workload(workload),
                ],
            )
            for workload in workloads
        ],
    )


def selection(config: pytest.Config) -> Selection:
    """The run's axes, as its options chose them."""
    return config.stash[_SELECTION]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _deselect(config, items)
    for item in items:
        if "measure" not in getattr(item, "fixturenames", ()):
            continue
        clock = item.stash[_CLOCK] = ReplayClock()
        # Only the closest marker counts, so this one carries what the test's own says.
        own = item.get_closest_marker("benchmark")
        kwargs = {"group": _group(item), **(own.kwargs if own else {}), "timer": clock}
        item.add_marker(pytest.mark.benchmark(**kwargs), append=False)
        # A workload that fails has no rounds to replay; its failure says so already.
        item.add_marker(pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all"))


def _deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out modes that the run has no workloads of, whatever is not part of a study, and what no gate covers."""
    study, gate = selection(config).study, config.stash[_GATE]

    def is_out(item: pytest.Item) -> bool:
        workload = _workload(item)
        if _spread(item) is None and item.get_closest_marker("workloads") is not None:
            return True
        if study is not None and _spread(item) is None and "measure" in getattr(item, "fixturenames", ()):
            return True
        return gate is not None and workload is not None and not gate.covers(workload)

    left_out = [item for item in items if is_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _group(item: pytest.Item) -> str | None:
    """Frameworks of one model, mode and size side by side in pytest-benchmark's table."""
    params = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
    if not params or "model" not in params:
        return None
    return " ".join(
        str(part)
        for part in (
            params["model"],
            params.get("mode", ""),
            f"b{params['batch_size']}" if "batch_size" in params else "",
        )
        if part
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    gate = config.stash[_GATE]
    if gate:
        _announce(session.items, gate)
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal is None or config.get_verbosity() < 0 or hasattr(config, "workerinput"):
        return
    capture = config.pluginmanager.getplugin("capturemanager")
    progress = Progress(terminal, capture.global_and_fixture_disabled if capture else nullcontext)
    progress.total = sum("measure" in getattr(item, "fixturenames", ()) for item in session.items)
    config.stash[_PROGRESS] = progress


def _announce(items: Sequence[pytest.Item], gate: Gate) -> None:
    """Tell a gate what the run will measure, and what is left out on purpose."""
    expected = {}
    for item in items:
        workload = _workload(item)
        if workload is None or "measure" not in getattr(item, "fixturenames", ()):
            continue
        if _is_kept_from_running(item):
            gate.deselect(workload)
        elif gate.kind:
            expected[workload] = gate_options.of_test(item, gate.kind)
    gate.expect(expected)


def _is_kept_from_running(item: pytest.Item) -> bool:
    """Whether a marker does it; of a condition in text, pytest tells when it comes to the test."""
    for marker in item.iter_markers():
        skips = marker.name in ("skip", "skipif")
        fails_unrun = marker.name == "xfail" and not (marker.kwargs.get("run", True) or item.config.option.runxfail)
        conditions = (marker.kwargs["condition"],) if "condition" in marker.kwargs else marker.args
        holds = marker.name == "skip" or not conditions or any(c and not isinstance(c, str) for c in conditions)
        if holds and (skips or fails_unrun):
            return True
    return False


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Not reached after a usage error; after errors of collection, nothing runs."""
    session.config.stash[_RAN] = not session.config.option.collectonly and not session.testsfailed


@pytest.fixture
def mode() -> str:
    """What one step does, unless the test is parametrized with another mode."""
    return "inference"


@pytest.fixture
def batch_size() -> int:
    """Samples per step, unless the test is parametrized with another size."""
    return 1


@pytest.fixture
def precision() -> str:
    """The arithmetic, unless the test is parametrized with another."""
    return "fp32"


@pytest.fixture
def workload(
    request: pytest.FixtureRequest, framework: str, model: str, mode: str, batch_size: int, precision: str
) -> Workload:
    """The test's workload: the one it was spread to, or that of its parameters, `framework` and `model` at least."""
    spread = _spread(request.node)
    chosen = selection(request.config)
    return spread or Workload(framework, model, mode, batch_size, precision, chosen.device, chosen.weights)


def _spread(item: pytest.Item) -> Workload | None:
    marker = item.get_closest_marker("fwbench_workload")
    spread: Workload | None = marker.args[0] if marker else None
    return spread


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """What was left out on purpose is not missing."""
    for item in items:
        gate, workload = item.config.stash[_GATE], _workload(item)
        if gate and workload:
            gate.deselect(workload)


def _workload(item: pytest.Item) -> Workload | None:
    """What a test will measure, as far as its parameters tell: the fixtures below make the same of them."""
    spread = _spread(item)
    if spread:
        return spread
    given: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    chosen = selection(item.config)
    try:
        fields = {field: given[name] for name, field in _PARAMETERS.items() if name in given}
        return Workload(**fields, device=chosen.device, weights=chosen.weights)
    except (TypeError, ValueError):
        return None


@pytest.fixture(scope="session")
def fwbench_session(pytestconfig: pytest.Config) -> Iterator[Session]:
    """The run's workers and journal; both end with the run."""
    storage = getattr(pytestconfig._benchmarksession.storage, "path", Path(".benchmarks"))  # type: ignore[attr-defined]
    session = Session(
        selection(pytestconfig), pytestconfig.stash[_MACHINE], Path(storage), pytestconfig.stash[_PROJECT]
    )
    pytestconfig.stash[_SESSION] = session
    yield session
    session.close()


@pytest.fixture
def measure(request: pytest.FixtureRequest, fwbench_session: Session, benchmark: Any) -> Measure:
    """Measure a workload in a fresh process and make its samples this benchmark's rounds.

    With benchmarks disabled it runs one cheap call instead. A workload that cannot run here skips the test; one that
    fails fails it, and its record is kept.
    """
    config = request.config
    steered = axes.steered_by_marker(fwbench_session.selection.protocol, request.node.get_closest_marker("benchmark"))
    progress = config.stash.get(_PROGRESS, None)
    clock = request.node.stash[_CLOCK]

    gate = config.stash[_GATE]

    def measured(workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        if gate:
            measurement = gate.measure(workload, protocol, fwbench_session.measure, tell)
        else:
            measurement = fwbench_session.measure(workload, protocol, tell)
        fwbench_session.keep(measurement)
        return measurement

    def run(workload: Workload) -> Measurement:
        protocol = dataclasses.replace(steered, deadline=steered.deadline * workload.epochs)
        if benchmark.disabled:
            smoke = dataclasses.replace(protocol, smoke=True)
            measurement: Measurement = benchmark.pedantic(fwbench_session.run, args=(workload, smoke))
        elif progress is None:
            measurement = measured(workload, protocol, lambda _: None)
        else:
            config.stash[_SHOWN].add(request.node.nodeid)
            progress.begin(workload.id)
            measurement = measured(workload, protocol, progress.stage)
            progress.end(measurement)
        if not benchmark.disabled and not measurement.failure and (gate is None or gate.timed):
            benchmark.extra_info.update(_extra_info(measurement))
            _replay(measurement, benchmark, clock)
        if gate:
            gate.judge(measurement, request.node.nodeid)
        if measurement.failure:
            benchmark.has_error = True
            if measurement.failure.kind == "unavailable":
                pytest.skip(measurement.failure.message)
            pytest.fail(f"{workload.id}: {measurement.failure}", pytrace=False)
        return measurement

    return run


def _replay(measurement: Measurement, benchmark: Any, clock: ReplayClock) -> None:
    # Cycled, because cProfile makes a call more than there are rounds.
    samples = itertools.cycle(measurement.samples)

    def reset() -> None:
        clock.now = 0.0

    def replay() -> None:
        clock.now = next(samples)

    benchmark.pedantic(replay, setup=reset, rounds=len(measurement.samples))


def _extra_info(measurement: Measurement) -> dict[str, Any]:
    record = measurement.to_json()
    del record["samples"], record["failure"]
    return record


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add the accelerator, the threads and this interpreter's versions; drop the clock rate of the moment."""
    distributions = tuple(dict.fromkeys(name for lane in LANES.values() for name in lane.distributions))
    machine_info["fwbench"] = {**config.stash[_MACHINE].to_json(), "versions": versions(distributions)}
    for key in ("hz_actual", "hz_actual_friendly"):
        machine_info.get("cpu", {}).pop(key, None)


def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add the schema, and the failures: pytest-benchmark keeps what has rounds alone."""
    session = config.stash.get(_SESSION, None)
    failed = [m.to_json() for m in session.measurements if m.failure] if session else []
    output_json["fwbench"] = {"schema": SCHEMA, "failures": failed}


def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
    """The progress line has said it all: no letter after it."""
    if report.when == "call" and report.outcome != "skipped" and report.nodeid in config.stash[_SHOWN]:
        return report.outcome, "", ""
    return None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    gate = session.config.stash[_GATE]
    if gate and session.config.stash.get(_RAN, False):
        session.exitstatus = gate.finish(int(session.exitstatus))


def pytest_unconfigure(config: pytest.Config) -> None:
    gate = config.stash.get(_GATE, None)
    if gate:
        gate.close()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    try:
        return (yield)
    finally:
        # Also when pytest-benchmark has just raised because of a regression.
        session, gate = config.stash.get(_SESSION, None), config.stash[_GATE]
        if session and session.measurements and not (gate and gate.shows_numbers):
            _write_summary(terminalreporter, session)
        if gate and config.stash.get(_RAN, False):
            terminalreporter.section(gate.title)
            for line in gate.lines(session.journal.path if session else None):
                terminalreporter.write_line(line)


def _write_summary(terminal: Any, session: Session) -> None:
    here = session.machine
    where = here.accelerator if here.device == "gpu" else f"{here.cpu}, {here.threads} threads"
    terminal.section(f"fwbench: {session.selection.protocol.profile} profile on {where}")
    for lines in (summary.table(session.measurements), summary.epochs(session.measurements)):
        for line in (*lines, "") if lines else ():
            terminal.write_line(line)
    for note in summary.notes(session.measurements):
        terminal.write_line(f"note: {note}")
    terminal.write_line(f"journal: {session.journal.path}")
