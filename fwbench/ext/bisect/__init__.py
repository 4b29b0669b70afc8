"""The commits, or the releases, with which a workload has become slower or faster."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    commands={
        "bisect": ("find the commits with which a workload has become slower or faster", "fwbench.ext.bisect.command")
    },
    release="fwbench.ext.bisect.releases:stated",
)
