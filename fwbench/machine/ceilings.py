"""What lanes have reached on this machine, kept between runs, so that one need not measure it again."""

import contextlib
import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path

from fwbench.machine.disturbances import slowed
from fwbench.record import files
from fwbench.record.machine import Machine
from fwbench.record.measurement import Measurement, Metric
from fwbench.record.metrics import CEILINGS
from fwbench.record.workload import TRAINING, Workload

# Seconds after which they are measured again: firmware and settings of a machine change.
_VALID = 30 * 86400.0

# Lane, precision, and on a CPU whether it trains and whether it is plain, as XLA's options differ there.
CeilingKey = tuple[str, str, bool, bool]


def ceiling_key(workload: Workload) -> CeilingKey:
    """What workloads must have in common for ceilings to hold for both."""
    on_cpu = workload.device == "cpu"
    return workload.lane, workload.precision, on_cpu and workload.mode in TRAINING, on_cpu and workload.plain


class Kept:
    """Ceilings by machine and key, a file each; what cannot be read or written is not known.

    Args:
        folder: that holds them, and need not be there yet.
        machine: that they are of.
    """

    def __init__(self, folder: Path, machine: Machine) -> None:
        self._folder = folder
        self._machine = [machine.device, machine.accelerator, machine.driver, machine.power_limit]
        self._machine += [machine.cpu, machine.threads]

    def has(self, workload: Workload) -> bool:
        """Whether ceilings are kept that may hold for a workload; the versions behind them are known afterwards."""
        return self._read(workload) is not None

    def of(self, measurement: Measurement) -> dict[str, Metric]:
        """The ceilings that hold for a measurement; none where they were made by other versions."""
        stored = self._read(measurement.workload)
        if stored is None or stored[0] != dict(measurement.versions):
            return {}
        return stored[1]

    def keep(self, measurement: Measurement) -> None:
        """Keep what a measurement has found, unless something disturbed it and may have made it lower."""
        if any(measurement.value(name) is None for name in (*CEILINGS, "other_load")) or slowed(measurement):
            return
        metrics = {name: measurement.metrics[name] for name in CEILINGS}
        on = time.strftime("%Y-%m-%d", time.gmtime())
        content = {
            "versions": dict(measurement.versions),
            "metrics": {
                name: replace(metric, source=f"{metric.source}, on {on}").to_json(name)
                for name, metric in metrics.items()
            },
        }
        path = self._path(measurement.workload)
        # A run needs no cache.
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write(path, json.dumps(content))

    def _read(self, workload: Workload) -> tuple[dict[str, str], dict[str, Metric]] | None:
        path = self._path(workload)
        try:
            if time.time() - path.stat().st_mtime > _VALID:
                return None
            stored = json.loads(files.read(path))
            metrics = {name: Metric.from_json(name, metric) for name, metric in stored["metrics"].items()}
            return dict(stored["versions"]), {name: metrics[name] for name in CEILINGS}
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            return None

    def _path(self, workload: Workload) -> Path:
        told = json.dumps([*self._machine, *ceiling_key(workload)])
        return self._folder / hashlib.sha256(told.encode()).hexdigest()[:16]
