"""The parts that make one of two sides slower or faster, found by pairs of both with parts of one put back."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    commands={
        "explain": (
            "find what makes a workload slower or faster: lines, files, variables, distributions",
            "fwbench.ext.causes.command",
        )
    },
    remarks="fwbench.ext.causes.speeds:remarks",
    cause="fwbench.ext.causes.regression:sentences_on",
)
