"""Inference: a forward pass, in every lane, for every model and batch size of the run's profile or study."""

import fwbench


@fwbench.benchmark(modes=["inference"])
def test_inference(fwbench_measure):
    fwbench_measure()
