"""This machine: its fingerprint, its GPU through NVML, and the other load on it."""

from fwbench.machine.host import cpu_vendor, last_cache, machine, physical_cores, versions
from fwbench.record.machine import Machine

__all__ = ["Machine", "cpu_vendor", "last_cache", "machine", "physical_cores", "versions"]
