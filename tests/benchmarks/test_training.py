"""Training, in every lane: single optimizer steps on a batch that lies on the device, and epochs on data."""

import pytest


@pytest.mark.workloads(mode="train_step")
def test_train_step(workload, measure):
    measure(workload)


@pytest.mark.workloads(mode="fit")
def test_fit(workload, measure):
    """A round is an epoch, the first one with compilation."""
    measure(workload)
