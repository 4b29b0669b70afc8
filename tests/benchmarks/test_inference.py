"""Inference: a forward pass, in every lane, for every model and batch size."""

import pytest


@pytest.mark.workloads(mode="inference")
def test_inference(workload, measure):
    measure(workload)
