"""Many accelerators at the same time, one workload each (`--fwbench-workers`)."""

from fwbench.extensions import Extension

EXTENSION = Extension(pool="fwbench.ext.cluster.pool:spread")
