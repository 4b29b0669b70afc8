"""Training: one optimizer step on a batch that lies on the device, in every lane, for every model."""

import pytest


@pytest.mark.workloads(mode="train_step")
def test_train_step(workload, measure):
    measure(workload)
