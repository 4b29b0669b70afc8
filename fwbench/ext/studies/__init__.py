"""What a study needs: the published tables beside one's own, and one's own in LaTeX."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    tables="fwbench.ext.studies.published:beside", formats={"latex": "fwbench.ext.studies.paper:write"}
)
