"""This machine: its fingerprint, its GPU through NVML, and what else runs on it."""

from fwbench.machine.host import Machine, machine, physical_cores, versions

__all__ = ["Machine", "machine", "physical_cores", "versions"]
