"""Finds benchmarks of pytest-benchmark's that measure only the start of their work, and lists them after the run.

JAX, and PyTorch on CUDA, may compute a call's result after the call has returned. Such a call is made a few times more,
with a wait for its result. `fwbench.plugin` registers this module in every run with benchmarks. The module imports no
framework, and looks for those that are imported.
"""

import contextlib
import inspect
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture, PauseInstrumentation

_STARTS = pytest.StashKey[list[str]]()

# Calls that are waited for, and the seconds after which no further one is made.
_CALLS, _PATIENCE = 5, 0.5
# A call is listed if it takes more than so many times as long with its result as was measured.
_MORE = 1.2

# Arranges the arguments of a call, by position and by name.
Arrange = Callable[[], tuple[Sequence[Any], Mapping[str, Any]]]

_PEDANTIC = inspect.signature(BenchmarkFixture.pedantic)


def pedantic_call(*given: Any, **named: Any) -> tuple[inspect.BoundArguments, Arrange]:
    """All arguments of a call of `BenchmarkFixture.pedantic`, and what arranges those of each call of its target."""
    asked = _PEDANTIC.bind(*given, **named)
    asked.apply_defaults()
    setup, fixed = asked.arguments["setup"], (asked.arguments["args"], asked.arguments["kwargs"] or {})
    return asked, lambda: (setup and setup()) or fixed


def wait_for(result: object) -> None:
    """Wait for results that a framework has only begun to compute."""
    if jax := sys.modules.get("jax"):
        jax.block_until_ready(result)
    if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _may_be_computing(result: object) -> bool:
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        return True
    return jax is not None and any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(result))


class _Watched(BenchmarkFixture):
    """The fixture `benchmark`, which looks at each call once it is measured.

    Attributes:
        starts: sentences on the calls of which only the start was measured.
    """

    starts: list[str]

    def __call__(self, function_to_benchmark: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = super().__call__(function_to_benchmark, *args, **kwargs)  # type: ignore[no-untyped-call]
        self._look(result, function_to_benchmark, lambda: (args, kwargs), None)
        return result

    def pedantic(self, target: Callable[..., Any], *given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        result = super().pedantic(target, *given, **named)  # type: ignore[no-untyped-call]
        asked, arrange = pedantic_call(self, target, *given, **named)
        of = asked.arguments
        # A target that was called once may not be repeatable.
        if of["setup"] or of["rounds"] * of["iterations"] + of["warmup_rounds"] > 1:
            self._look(result, target, arrange, of["teardown"])
        return result

    def _look(
        self,
        result: object,
        call: Callable[..., Any],
        arrange: Arrange,
        clear: Callable[..., object] | None,
    ) -> None:
        if not self.enabled or self.stats is None:
            return
        # An error here is no fault of the test's.
        with contextlib.suppress(Exception):
            if _may_be_computing(result):
                # All calls that were measured may be waiting in a queue.
                wait_for(result)
                measured = self.stats.stats.median
                begun, whole = _fastest(call, arrange, clear)
                if whole > _MORE * max(begun, measured):
                    from fwbench import units

                    shown = f"{units.seconds(measured)}, and {units.seconds(whole)} with its result"
                    self.starts.append(f"{self.fullname} measured only the start of its work: {shown}")


def _fastest(call: Callable[..., Any], arrange: Arrange, clear: Callable[..., object] | None) -> tuple[float, float]:
    """The shortest times, over a few calls, until a call returned and until its result was computed, in seconds."""
    timed: list[tuple[float, float, float]] = []
    end = time.perf_counter() + _PATIENCE
    while len(timed) < _CALLS and (not timed or time.perf_counter() < end):
        args, kwargs = arrange()
        with PauseInstrumentation():  # type: ignore[no-untyped-call]
            begun = time.perf_counter()
            result = call(*args, **kwargs)
            returned = time.perf_counter()
            wait_for(result)
            computed = time.perf_counter()
            wait_for(result)
            # The second wait had nothing to wait for, so it shows the time of waiting itself.
            waited = time.perf_counter()
        timed.append((returned - begun, computed - begun, waited - computed))
        if clear:
            clear(*args, **kwargs)
    # The minimum of each by itself, as a process may be stopped in any of them.
    begun, whole, waiting = map(min, zip(*timed, strict=True))
    return begun, whole - waiting


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """Watch pytest-benchmark's fixture, and nobody else's of that name."""
    value = yield
    if fixturedef.argname == "benchmark" and type(value) is BenchmarkFixture:
        vars(value)["starts"] = request.config.stash.setdefault(_STARTS, [])
        value.__class__ = _Watched
    return value


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the tests that have measured only the start of their work."""
    for sentence in config.stash.get(_STARTS, ()):
        terminalreporter.write_line(f"fwbench: {sentence}", yellow=True)
