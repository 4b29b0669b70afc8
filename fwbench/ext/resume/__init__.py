"""Going on with a run that was ended (`--fwbench-resume`)."""

from fwbench.extensions import Extension

EXTENSION = Extension(resume="fwbench.ext.resume.resuming:begin")
