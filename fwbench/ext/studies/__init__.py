"""Studies: their workloads, published numbers beside one's own, and one's own report in LaTeX."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    tables="fwbench.ext.studies.published:beside",
    formats={"latex": "fwbench.ext.studies.paper:write"},
    studies="fwbench.ext.studies.presets:STUDIES",
)
