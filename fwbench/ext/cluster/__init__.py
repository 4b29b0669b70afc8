"""Several accelerators: one workload each at the same time (`--fwbench-workers`), or one workload over all of them."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    pool="fwbench.ext.cluster.pool:spread",
    ranks="fwbench.ext.cluster.ranks.client",
    tables="fwbench.ext.cluster.scaling:of_report",
    ending="fwbench.ext.cluster.scaling:of_run",
)
