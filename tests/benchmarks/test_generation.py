"""The suite's generation under the name that baselines know."""

from fwbench.suite.benchmarks.test_generation import test_generation

__all__ = ["test_generation"]
