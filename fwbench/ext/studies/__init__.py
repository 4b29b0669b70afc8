"""What a study adds: its workloads, figures, published numbers beside one's own, and one's own report in LaTeX."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    tables="fwbench.ext.studies.published:beside",
    figures="fwbench.ext.studies.figures:draw",
    formats={"latex": "fwbench.ext.studies.paper:write"},
    studies="fwbench.ext.studies.presets:STUDIES",
)
