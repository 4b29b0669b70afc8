"""Benchmarks that have measured only the start of their work, in runs without a gate."""

import sys

import pytest

from fwbench.plugin import waiting
from tests.unit.shared import ALONE
from tests.unit.test_plain_duet import ran

# Computes in 4 ms what a call has begun, when it is waited for.
JAX = """
import time
from types import SimpleNamespace


class Array:
    computed = False


def begin():
    return Array()


def block_until_ready(result):
    for array in tree.leaves(result):
        if not array.computed:
            time.sleep(0.004)
            array.computed = True
    return result


tree = SimpleNamespace(leaves=lambda result: [result] if isinstance(result, Array) else [])
"""
# Does so, too, and returns nothing.
TORCH = """
import time
from types import SimpleNamespace

begun = []


def synchronize():
    time.sleep(0.004 * bool(begun))
    begun.clear()


cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=synchronize)
"""
TESTS = """
import pytest

calls = []


def test_imports_nothing(benchmark):
    benchmark.pedantic(calls.append, args=(1,), rounds=3)
    assert len(calls) == 3


def test_starts(benchmark):
    import jax
    benchmark(jax.begin)


def test_arranged(benchmark):
    import jax
    cleared = []
    benchmark.pedantic(
        lambda one: jax.begin(), setup=lambda: ((1,), {}), teardown=lambda one: cleared.append(one), rounds=3
    )
    assert len(cleared) == 3 + 5


def test_waits(benchmark):
    import jax
    benchmark(lambda: jax.block_until_ready(jax.begin()))


def test_returns_no_array(benchmark):
    import jax
    calls.clear()
    benchmark.pedantic(calls.append, args=(1,), rounds=3)
    assert len(calls) == 3


def test_once(benchmark):
    import jax
    calls.clear()
    benchmark.pedantic(lambda: calls.append(1) or jax.begin())
    assert len(calls) == 1


def test_breaks(benchmark):
    import jax
    left = [jax.begin() for _ in range(3)]
    benchmark.pedantic(left.pop, rounds=3)


def test_fails(benchmark):
    import jax
    benchmark(jax.begin)
    benchmark(jax.begin)


@pytest.fixture
def own(benchmark):
    return benchmark.pedantic


def test_by_a_fixture_of_its_own(own):
    import jax
    own(jax.begin, rounds=2, iterations=5)


def test_launches(benchmark):
    import torch
    benchmark(torch.begun.append, 1)


def test_synchronizes(benchmark):
    import torch
    benchmark(lambda: torch.begun.append(1) or torch.cuda.synchronize())
"""
STARTED = ["test_starts", "test_arranged", "test_fails", "test_by_a_fixture_of_its_own", "test_launches"]
BRIEFLY = ("--benchmark-max-time=0.01", "--benchmark-min-rounds=2", "-q")


# Without the plugins for GPUs, which are installed on machines without one, too.
ON_CPU = {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}


def told(folder, *arguments):
    """The tests whose start alone was measured, and what was said of them, and all that was."""
    done = ran(folder, sys.executable, "-m", "pytest", *ALONE, *BRIEFLY, *arguments, **ON_CPU)
    lines = [line for line in done.stdout.splitlines() if "only the start" in line]
    return {line.split()[1].partition("::")[2]: line.partition("work: ")[2] for line in lines}, done.stdout


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "jax.py").write_text(JAX)
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nfilterwarnings = error\n")
    return tmp_path


def test_what_measured_only_its_start_is_told_with_both_times(folder):
    starts, said = told(folder)
    assert [*starts] == STARTED
    for times in starts.values():
        _, unit, _, second, other, *rest = times.replace(",", "").split()
        assert unit in ("us", "ns")
        assert (other, rest) == ("ms", ["with", "its", "result"])
        assert 3.5 < float(second) < 20
    # A fault of the test's stays as it would be, without a frame of ours.
    assert "FixtureAlreadyUsed" in said
    assert "waiting.py" not in said
    assert "1 failed, 10 passed" in said


@pytest.mark.parametrize("option", ["--benchmark-disable", "--benchmark-skip", "-pno:fwbench.plugin.waiting"])
def test_nothing_is_told_where_nothing_was_measured_or_it_is_switched_off(folder, option):
    assert told(folder, option)[0] == {}


def test_a_stop_of_the_process_anywhere_hides_no_start(monkeypatch):
    now = [0.0]
    # Waiting takes 1 ms, and for what is computed nothing, but in the second call.
    waits = iter([1e-3, 0.0, 1e-3, 1e-3, 1e-3, 0.0, 2e-3, 0.0, 1e-3, 0.0])

    def take(seconds):
        now[0] += seconds

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(waiting, "wait_for", lambda result: take(next(waits)))
    begun, whole = waiting._fastest(lambda: take(1e-6), lambda: ((), {}), None)
    assert (begun, whole) == pytest.approx((1e-6, 1.001e-3))


def test_the_real_jax(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import jax\nimport jax.numpy as jnp\n\n"
        "X = jnp.ones((1000, 1000))\n"
        "F = jax.jit(lambda x: x @ x @ x)\n\n\n"
        # Of more rounds the last would wait for the first: JAX takes only so many calls at once.
        "def test_starts(benchmark):\n    benchmark.pedantic(F, (X,), rounds=9, warmup_rounds=1)\n\n\n"
        "def test_waits(benchmark):\n    benchmark.pedantic(lambda: F(X).block_until_ready(), rounds=9)\n"
    )
    starts, said = told(tmp_path)
    assert [*starts] == ["test_starts"], said
