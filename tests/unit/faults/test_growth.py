"""Programs that keep memory of each call."""

import sys

import pytest

from fwbench.meters.growth import Growth
from tests.unit.faults import seen

KIND = "memory that grows with each call"
KIB, MIB = 2**10, 2**20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and glibc's allocator")


def growth(clock, host, device=lambda calls: None, calls=400):
    """What is told of a program whose memory follows these functions of the number of calls."""
    made = [0]
    watched = Growth(lambda: device(made[0]), clock, lambda: {"allocated memory": float(host(made[0]))})
    for _ in range(calls):
        made[0] += 1
        watched.lap(1)
        clock.advance(0.01)
    return watched.read()


@pytest.mark.parametrize(
    ("host", "rate"),
    [
        (lambda calls: 100 * MIB + 64 * KIB * calls, 64 * KIB),
        # The heap takes 16 MiB at a time.
        (lambda calls: calls * MIB // 16 // MIB * 16 * MIB, 1 * MIB),
        (lambda calls: 100 * MIB, 0),
        # A heap that settles, after whatever calls.
        (lambda calls: min(calls, 150) * MIB, 0),
        (lambda calls: 100 * MIB + (calls > 300) * 50 * MIB, 0),
        # Garbage that is collected.
        (lambda calls: 100 * MIB + calls % 70 * MIB, 0),
        # What the harness itself keeps of a call.
        (lambda calls: 100 * MIB + 200 * calls, 0),
        (lambda calls: 100 * MIB - calls * KIB, 0),
    ],
)
def test_only_what_goes_on_growing_is_told(clock, host, rate):
    assert growth(clock, host).value == pytest.approx(rate, rel=0.3)


def test_the_devices_allocator_counts_too(clock, fault):
    told = growth(clock, lambda calls: 100 * MIB, lambda calls: 64.0 * KIB * calls)
    assert told.value == pytest.approx(64 * KIB)
    assert "device allocator" in told.source
    fault(KIND, "64 KiB a call of a GPU's allocator (figures)", said=told.source)


@pytest.mark.parametrize("calls", [5, 64])
def test_a_few_calls_say_nothing(clock, calls):
    """As of 20 steps of JAX's ResNet-50, of which the last half was two passes, one with calls in a queue."""
    assert growth(clock, lambda calls: calls * MIB, calls=calls).value is None
    assert growth(clock, lambda calls: calls * MIB, calls=66).value == MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "tried"),
    [
        ("Grows", "64 KiB a call that nothing writes to"),
        ("GrowsInArrays", "an array of 64 KiB a call"),
        ("GrowsInPieces", "64 pieces of a thousand bytes a call"),
    ],
)
def test_growth_of_a_real_process_is_a_sentence(small, fault, network, tried):
    found = small.measure(network, min_rounds=1500)
    assert found.failure is None
    assert found.value("memory_growth") == pytest.approx(64 * KIB, rel=0.3)
    (line,) = (line for line in seen.said(found) if "memory grows by" in line)
    fault(KIND, tried, said=line)


@pytest.mark.parametrize("network", ["Net", "GrowsAtFirst"])
def test_what_does_not_go_on_growing_is_no_sentence(small, network):
    found = small.measure(network, min_rounds=6000)
    assert found.value("memory_growth") == 0.0
    assert [line for line in seen.said(found) if "memory" in line] == []
