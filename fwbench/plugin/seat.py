"""Runs pytest on one side, whose benchmarks hand their calls over to take turns.

`start` runs this script, and the client's first message is its configuration.

For each test, in the order of the configuration:

    client                                seat
      | <-- {"test", "arrived"} ------------ |  it has come to its benchmark
      | -- {"first"} ----------------------> |  it may call, as the other side does not
      | <-- {"call", "first", "calls", ...} - |  seconds of a call and of the first one, peak of memory, and how many
      |                                      |  calls make a step, 0: as many as the client wants
      | -- {"calls": k, "warm": n, ...} ---> |  n steps of k calls each, if it is to take turns
      | <-- {"placed": latency} ------------ |
      | -- {"rounds": n} ------------------> |  a turn, as `fwbench.worker.protocol` has it
      | <-- {"rounds", "cpu_time", "held"} - |
      | -- {"energy"} ---------------------> |  if it is asked for, after all turns
      | <-- {"energy": joules} ------------- |  of a call, or null
      | -- {"finish": {"profiled"}} -------> |  if sources or a profile are asked for
      | <-- {"sources", "profile"} --------- |
      | -- {"go"} -------------------------> |  the test goes on with what its call has returned
      | <-- {"test", "over", "message"} ---- |

A test that does not come to its benchmark, or is not there, is `over` at once; `go` may come in place of `first`.
"""

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fwbench.machine import versions
from fwbench.machine.holes import watched
from fwbench.meters import sampling
from fwbench.meters.memory import host_peak, trim_heap
from fwbench.plugin import marked, waiting
from fwbench.worker.process.pipes import Pipes
from fwbench.worker.process.player import Turns, stray
from fwbench.worker.process.witness import Witness

# Libraries whose versions are recorded if a test has imported them.
_TOLD = ("numpy", "scipy", "pandas", "torch", "jax", "jaxlib", "tensorflow", "triton")

_STDLIB = os.path.dirname(os.__file__) + os.sep

# A step takes as long as the fastest of so many last steps.
_LAST = 3

# Values that switch off all options by which pytest and its plugins write, compare or leave out something.
_OFF: Mapping[str, Any] = {
    **dict.fromkeys(("benchmark_json", "benchmark_save", "benchmark_cprofile", "xmlpath"), None),
    **dict.fromkeys(("benchmark_autosave", "benchmark_skip", "benchmark_disable"), False),
    "benchmark_compare": [],
    "benchmark_compare_fail": [],
    "benchmark_histogram": [],
    "no_cov": True,
    "maxfail": 0,
}


class UnrepeatableError(Exception):
    """A test whose call cannot take turns; the text says why."""


class Call(Turns):
    """The call of a benchmark.

    Args:
        function: called with the arguments that `arrange` returns, and followed by `clear`; those two are not timed.

    Attributes:
        calls: the number of calls in a step.
        result: of the last call.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arrange: waiting.Arrange,
        clear: Callable[..., object] | None = None,
        calls: int = 1,
    ) -> None:
        super().__init__(self._run, self._ready)
        self._function, self._arrange, self._clear = function, arrange, clear
        self._given: tuple[Sequence[Any], Mapping[str, Any]] = (), {}
        self._cpu = 0.0
        self._has_run = False
        self.calls = calls
        self.result: Any = None

    def settle(self, steps: int) -> float:
        """Run so many steps; return the seconds of the fastest of the last ones, as calls may become slower."""
        begun = self._computed()
        fastest = min(list(self._timed(steps))[-_LAST:])
        self.usual = fastest, (self._computed() - begun) / steps
        return fastest

    def profile(self, root: str) -> list[tuple[str, str, int, float]]:
        """Rows of function, file, line, and the seconds of a call that pass there.

        Args:
            root: names of files in this folder are relative to it; of the standard library's, to the library's folder.
        """
        times = sampling.sampled(lambda: self.settle(1), Call._run.__code__)
        profile, own = [], Call._run.__code__.co_filename
        for (function, file, line), seconds in times.items():
            # This file's line stands for a C function that the benchmark calls directly.
            place = file.removeprefix(root + os.sep).removeprefix(_STDLIB)
            named = ("the benchmark's call", "") if file == own else (function, place)
            profile.append((*named, line, seconds / self.calls))
        return profile

    def _timed(self, rounds: int) -> Iterator[float]:
        for _ in range(rounds):
            try:
                yield self._once()
            except Exception as error:
                if not self._has_run:
                    raise
                # Python replaces a StopIteration that leaves a generator by another error.
                error = error.__cause__ if isinstance(error.__cause__, StopIteration) else error
                said = f"{type(error).__name__}: {error}".removesuffix(": ")
                raise UnrepeatableError(f"its call cannot be repeated: {said}") from error
            self._has_run = True

    def _once(self) -> float:
        """Seconds of a step, without `arrange` and `clear`."""
        args, kwargs = self._given = self._arrange()
        begun = time.process_time()
        (seconds,) = super()._timed(1)
        self._cpu += time.process_time() - begun
        if self._clear:
            self._clear(*args, **kwargs)
        return seconds

    def _computed(self) -> float:
        return self._cpu

    def _run(self) -> None:
        function, (args, kwargs) = self._function, self._given
        for _ in range(self.calls):
            result = function(*args, **kwargs)
        self.result = result

    def _run_together(self, calls: int) -> None:
        for _ in self._timed(calls):
            pass

    def _ready(self) -> None:
        waiting.wait_for(self.result)


class Seat:
    """The plugin by which the benchmarks of one side's tests take turns.

    Args:
        config: `tests`, their names in order; `side`, `tree`, `root` and `own`, as `stray` takes them.
    """

    def __init__(self, config: Mapping[str, Any], pipes: Pipes, witness: Witness) -> None:
        self._config, self._pipes, self._witness = config, pipes, witness
        self._test = ""
        self._used = False
        self._unrepeatable = ""
        self._over: dict[str, Any] = {}
        self._missing: list[str] = []
        # By the file's id, the reason why it could not be collected.
        self._uncollected: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Switch off what a run writes or compares, and fwbench's own runs."""
        for name, value in vars(config.option).items():
            if name.startswith("fwbench_"):
                setattr(config.option, name, [] if isinstance(value, list) else None)
        for name, value in _OFF.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        # pytest-benchmark has no annotations.
        of_benchmark: Any = BenchmarkFixture
        call, pedantic, seat = of_benchmark.__call__, of_benchmark.pedantic, self

        def played(fixture: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            seat.take_turns(Call(function, lambda: (args, kwargs)), calls=0)
            # Once more, for the statistics that a test may read.
            fixture._min_rounds, fixture._max_time, fixture._warmup = 1, 0.0, False
            return call(fixture, function, *args, **kwargs)

        def pedantically(fixture: Any, target: Callable[..., Any], *given: Any, **named: Any) -> Any:
            asked, arrange = waiting.pedantic_call(fixture, target, *given, **named)
            of = asked.arguments
            if of["rounds"] == of["iterations"] == 1 and not of["warmup_rounds"] and of["setup"] is None:
                seat.refuse("its pedantic call has one round and no setup, so it may not be repeatable")
            seat.take_turns(Call(target, arrange, of["teardown"], of["iterations"]), calls=of["iterations"])
            asked.arguments |= {"rounds": 1, "warmup_rounds": 0}
            return pedantic(*asked.args, **asked.kwargs)

        of_benchmark.__call__, of_benchmark.pedantic = played, pedantically

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Turn tests that pytest-codspeed would measure into benchmarks, before pytest-benchmark leaves them out."""
        marked.adopt(item)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Choose the asked tests, in their order."""
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in self._config["tests"] if name in found]
        self._missing = [name for name in self._config["tests"] if name not in found]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note why a file cannot be collected."""
        if report.failed:
            last = report.longreprtext.strip().rpartition("\n")[2]
            self._uncollected[report.nodeid] = f"it cannot be collected: {last.removeprefix('E').strip()}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self) -> bool:
        """Let no other plugin end a test that waits for its turn."""
        return True

    def pytest_collection_finish(self) -> None:
        """Report the tests that are not there."""
        for name in self._missing:
            why = next((why for file, why in self._uncollected.items() if name.startswith(file)), "it has no such test")
            self._pipes.send({"test": name, "over": "absent", "message": why})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin a test."""
        self._test, self._used, self._unrepeatable = nodeid, False, ""
        self._over = {"over": "passed", "message": ""}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of the test; its gravest phase counts."""
        if report.failed and self._over["over"] != "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message.partition("\n")[0] if crash else str(report.longrepr)
            self._over = {"over": "failed", "message": message, "detail": report.longreprtext}
        elif report.skipped and self._over["over"] == "passed" and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._over = {"over": "skipped", "message": reason.removeprefix("Skipped: ")}

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Report the outcome of the test."""
        if self._unrepeatable:
            self._over = {"over": "unrepeatable", "message": self._unrepeatable}
        self._pipes.send({"test": nodeid, **self._over})

    def take_turns(self, call: Call, calls: int) -> None:
        """Let a benchmark's call take turns.

        Args:
            calls: the number of calls in a step, if the test sets it; 0: the client chooses it.
        """
        if self._used:
            self.refuse("it uses its benchmark twice")
        self._used = True
        # Coverage, or a debugger, would be measured with the call.
        instruments = sys.gettrace(), sys.getprofile()
        sys.settrace(None)
        sys.setprofile(None)
        try:
            self._begin(call, calls)
        finally:
            sys.settrace(instruments[0])
            sys.setprofile(instruments[1])

    def _begin(self, call: Call, calls: int) -> None:
        self._pipes.send({"test": self._test, "arrived": True})
        if "go" in (self._pipes.receive() or {"go": True}):
            return
        first = call.settle(1)
        if inspect.isawaitable(call.result):
            if inspect.iscoroutine(call.result):
                call.result.close()
            self.refuse("its call returns something that nobody awaits")
        try:
            self._play(call, first, calls)
        except UnrepeatableError as error:
            self.refuse(str(error))

    def _play(self, call: Call, first: float, calls: int) -> None:
        """Take the turns that the client asks for; `first` is the seconds of the first step."""
        # Freed, so that the peak of memory is that of one step alone.
        call.result = None
        trim_heap()
        peak = host_peak(lambda: call.settle(1)).value
        told: dict[str, Any] = {
            "first": first / call.calls,
            "call": min(first, call.usual[0]) / call.calls,
            "calls": calls,
        }
        told |= {"peak": peak, "versions": versions(name for name in _TOLD if name in sys.modules)}
        self._pipes.send({**stray(self._config), **told})
        while (message := self._pipes.receive()) is not None and "go" not in message:
            if "warm" in message:
                call.calls = message["calls"]
                call.pad(message["padding"])
                self._pipes.send({"placed": call.settle(message["warm"])})
            elif "energy" in message:
                joules = call.energy()
                self._pipes.send({"energy": None if joules is None else joules / call.calls})
            elif "finish" in message:
                profile = call.profile(self._config["root"]) if message["finish"]["profiled"] else []
                self._pipes.send({"sources": self._witness.sources(), "profile": profile})
            else:
                turn = watched(call.usual, message["rounds"], call.turn, message["rounds"])
                turn["rounds"] = [seconds / call.calls for seconds in turn["rounds"]]
                self._pipes.send({**turn, "cpu_time": turn["cpu_time"] / call.calls})

    def refuse(self, why: str) -> NoReturn:
        """End a test whose call cannot take turns."""
        self._unrepeatable = why
        raise UnrepeatableError(why)


def main() -> None:
    pipes = Pipes()
    config = pipes.receive()
    if config is None:
        return
    os.chdir(config["folder"])
    # `waiting` is not needed: each turn waits for its result.
    unwatched = ("-p", f"no:{waiting.__name__}")
    own = ("-p", "fwbench.plugin", *unwatched, "-o", f"cache_dir={config['caches']}", "--continue-on-collection-errors")
    with Witness(config["root"], own_package=True) as witness:
        code = pytest.main([*config["arguments"], *own], plugins=[Seat(config, pipes, witness)])
    pipes.send({"ended": int(code)})


if __name__ == "__main__":
    main()
