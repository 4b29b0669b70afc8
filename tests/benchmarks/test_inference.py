"""The suite's inference under the name that baselines know."""

from fwbench.suite.benchmarks.test_inference import test_inference

__all__ = ["test_inference"]
