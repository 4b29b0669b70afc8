"""Networks that remember what they computed, and outputs that go wrong after the first ones."""

import dataclasses

import pytest

from fwbench.compare.agreement import agreement, idle, wrong
from fwbench.record.lanes import LANES
from tests.unit.faults import seen

REMEMBERING = "a network that remembers its outputs"
LATER = "outputs that go wrong later"


@pytest.fixture
def right(small):
    found = small.once("Heavy")
    assert found.failure is None
    return found


@pytest.mark.parametrize(
    ("network", "tried"),
    [
        ("Remembers", "by the identity of the input"),
        ("RemembersByValue", "by a hash of the input's bytes"),
        ("RemembersByAddress", "by the input's address"),
        ("RemembersForWeights", "by the bytes of input and weights"),
    ],
)
def test_a_network_that_remembers_outputs_is_compared_with_nothing(small, right, fault, network, tried):
    found = small.measure(network)
    unseen, seen_before = found.parity["check"]["remembers"]
    assert unseen > 5 * seen_before
    assert agreement(right, found).agrees is False
    assert agreement(found, right).agrees is False
    (line, *_) = seen.said(found)
    assert "error: it remembers outputs" in line
    fault(REMEMBERING, tried, said=line)


def test_a_network_that_remembers_the_last_output_computes_in_each_timed_call(small, right, fault):
    """Two batches that take turns defeat it, and its output does not follow its weights."""
    found = small.measure("RemembersTheLast")
    assert found.samples
    assert min(found.samples) > min(right.samples) / 5
    assert idle(found) == ["weights"]
    assert agreement(right, found).agrees is False
    fault(REMEMBERING, "the last output alone", said=str(agreement(right, found)))


def test_where_a_lane_takes_one_batch_alone_its_weights_tell(small, fault):
    """As an adapter from outside that returns a stored result."""
    right, found = (small.once(network, lane="fixed") for network in ("Heavy", "Remembers"))
    check = found.parity["check"]
    assert not {"follows", "remembers"} & check.keys()
    assert (idle(right), idle(found)) == ([], ["weights"])
    assert agreement(right, found).agrees is False
    (line, *_) = seen.said(found)
    assert "does not change with its weights" in line
    fault(REMEMBERING, "a lane that can take no other batch, and returns a stored result", said=line)


def test_two_networks_that_remember_confirm_each_other_in_nothing(small, fault):
    found = small.once("Remembers", lane="fixed")
    assert agreement(found, found).agrees is None
    fault(REMEMBERING, "on both sides, in lanes that take one batch", said=str(agreement(found, found)))


def test_a_network_that_is_constant_is_said_to_be_so(small, right, fault):
    found = small.measure("Constant")
    assert idle(found) == ["inputs", "weights"]
    assert agreement(right, found).agrees is False
    # Two that are constant may be right: only a proof can say.
    assert agreement(found, found).agrees is None
    (line, *_) = seen.said(found)
    fault(REMEMBERING, "it returns ones, whatever it is given", said=line)


def test_right_networks_are_not_taken_for_others(small, right):
    largest = small.measure("Largest")
    # A class's number moves with the inputs, and by no rounding of the weights.
    assert (idle(largest), largest.parity["check"]["follows"]) == (["weights"], True)
    assert agreement(largest, largest).agrees is True
    assert right.parity["check"].keys() == {"output", "follows"}
    assert agreement(right, right).agrees is True
    for found in (largest, right):
        assert (found.failure, wrong(found)) == (None, "")
    assert seen.said(right) == []


@pytest.mark.parametrize(
    ("network", "tried", "told"),
    [
        ("Later", "NaN from the 21st call on", "returns infinities or NaN after"),
        ("InfiniteLater", "infinities from the 21st call on", "returns infinities or NaN after"),
        ("FewerLater", "half of the batch from the 21st call on", "an output of shape (4, 64) after"),
        ("NoneLater", "an empty output from the 21st call on", "an output of shape (0, 64) after"),
    ],
)
def test_the_last_output_is_checked_like_the_first(small, fault, network, tried, told):
    failure = small.measure(network).failure
    assert (failure.kind, failure.stage) == ("error", "check")
    assert told in failure.message
    fault(LATER, tried, said=failure.message)


def test_a_wrong_batch_is_an_error_in_one_lane_alone(small, fault):
    failure = small.measure("Fewer").failure
    assert (failure.kind, failure.stage) == ("error", "warm-up")
    assert "shape (1, 64) for a batch of 8" in failure.message
    fault(LATER, "one sample computed of a batch of 8, in a single lane", said=failure.message)


@pytest.mark.parametrize(
    ("network", "tried"),
    [("OtherLater", "a thousandth more from the 21st call on"), ("Random", "other random numbers at each call")],
)
def test_an_output_that_changes_while_it_is_timed_is_told(small, fault, network, tried):
    found = small.measure(network)
    assert "has changed by" in wrong(found)
    assert agreement(small.once("Net"), found).agrees is False
    (line, *_) = seen.said(found)
    fault(LATER, tried, said=line)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["ById", "ByPointer", "ByValue", "ForWeights"])
def test_modules_of_pytorch_that_remember_are_found(small, fault, network):
    amounts = {"lane": "torch", "module": "remembering_torch", "framework": "torch"}
    right, found = small.once("Net", **amounts), small.measure(network, **amounts)
    assert agreement(right, right).agrees is True
    assert "remembers" in found.parity["check"]
    assert agreement(right, found).agrees is False
    fault(REMEMBERING, f"a module of PyTorch: {network}", said=seen.said(found)[0])


@pytest.mark.slow
def test_an_adapter_of_jax_that_returns_a_stored_result_is_found(small, fault, monkeypatch):
    """Within `jax.jit` nothing can be remembered: its adapter can."""
    stored = dataclasses.replace(LANES["jax"], name="stored", adapter="remembering_jax:FRAMEWORK")
    monkeypatch.setitem(LANES._all, stored.name, stored)
    right, found = (
        small.measure("Net", lane=lane, module="remembering_jax", framework="jax") for lane in ("jax", stored.name)
    )
    assert (idle(right), idle(found)) == ([], ["inputs", "weights"])
    assert agreement(right, found).agrees is False
    fault(REMEMBERING, "an adapter of JAX whose step returns a stored result", said=seen.said(found)[0])
