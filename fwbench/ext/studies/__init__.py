"""What a study adds: further tables and figures, published numbers beside one's own, and one's own report in LaTeX."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    tables="fwbench.ext.studies.tables:of_report",
    ending="fwbench.ext.studies.tables:of_run",
    notes="fwbench.ext.studies.tables:notes",
    figures="fwbench.ext.studies.figures:draw",
    formats={"latex": "fwbench.ext.studies.paper:write"},
    studies="fwbench.ext.studies.presets:STUDIES",
)
