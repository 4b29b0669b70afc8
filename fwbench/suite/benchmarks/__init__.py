"""The suite's benchmarks, which `pytest --pyargs fwbench.suite.benchmarks --benchmark-only` runs without a checkout."""
