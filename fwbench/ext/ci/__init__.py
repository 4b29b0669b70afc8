"""Pull requests on GitHub Actions."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    commands={"ci": ("measure a pull request on GitHub Actions, and comment on it", "fwbench.ext.ci.command")}
)
