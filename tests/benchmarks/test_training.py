"""The suite's training under the name that baselines know."""

from fwbench.suite.benchmarks.test_training import test_fit, test_train_step

__all__ = ["test_fit", "test_train_step"]
