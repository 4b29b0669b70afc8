"""The gate on programs, which compares them with those of a record and times nothing (`--fwbench-programs-only`)."""

from fwbench.extensions import Extension

EXTENSION = Extension(programs="fwbench.ext.programs.gate:ProgramsOnly")
