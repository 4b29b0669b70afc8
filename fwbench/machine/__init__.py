"""This machine: its fingerprint, its GPU through NVML, and what else runs on it."""

from fwbench.machine.host import machine, physical_cores, versions
from fwbench.record.machine import Machine

__all__ = ["Machine", "machine", "physical_cores", "versions"]
